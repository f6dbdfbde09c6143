#!/usr/bin/env python3
"""Writes the fixtures of the format tests with other people's writers (pip install gguf safetensors numpy):

tests/fixtures/safetensors/types.safetensors   every element type
tests/fixtures/gguf/types.gguf                 every metadata type, tensors of readable and unreadable types
tests/fixtures/gguf/<family>.gguf              the models of tests/fixtures/models as llama.cpp converts them:
                                               its names, metadata, permutation of Q and K, Gemma's norms plus 1
tests/fuzz/corpus/{gguf,safetensors}/          small valid files for the fuzzers to start from
"""

import json
import math
import pathlib

import gguf
import numpy as np
import safetensors
import safetensors.numpy

FIXTURES = pathlib.Path(__file__).parent.parent / "tests/fixtures"
ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma3": gguf.MODEL_ARCH.GEMMA3,
}


def write_safetensors_types() -> None:
    """Byte i of each tensor is (37 i + 11) mod 256; of the booleans, mod 2."""
    sizes = {
        "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
        "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
    }  # fmt: skip
    arrays = {}  # keeps the data alive until it is written
    tensors = {}

    def add(name: str, dtype: str, shape: list[int], data: np.ndarray) -> None:
        arrays[name] = data
        tensors[name] = safetensors.TensorSpec(dtype=dtype, shape=shape, data_ptr=data.ctypes.data, data_len=data.nbytes)

    for name, size in sizes.items():
        data = (np.arange(2 * 3 * size) * 37 + 11).astype(np.uint8)
        add(name, name, [2, 3], data % 2 if name == "bool" else data)
    add("scalar", "float32", [], np.array([1.5], dtype="<f4"))
    add("empty", "float32", [0, 7], np.zeros(0, dtype="<f4"))
    path = FIXTURES / "safetensors/types.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(safetensors.serialize(tensors, metadata={"note": "größer ≥ kleiner"}))


def write_gguf_types() -> None:
    path = FIXTURES / "gguf/types.gguf"
    writer = gguf.GGUFWriter(path, "kv8test")
    writer.add_uint8("value.u8", 200)
    writer.add_int8("value.i8", -100)
    writer.add_uint16("value.u16", 60000)
    writer.add_int16("value.i16", -30000)
    writer.add_uint32("value.u32", 4000000000)
    writer.add_int32("value.i32", -2000000000)
    writer.add_float32("value.f32", 0.1)
    writer.add_bool("value.bool", True)
    writer.add_string("value.string", "größer ≥ kleiner")
    writer.add_uint64("value.u64", 2**64 - 1)
    writer.add_int64("value.i64", -(2**62))
    writer.add_float64("value.f64", math.pi)
    writer.add_array("array.strings", ["a", "", "größer", "x" * 300])
    writer.add_array("array.integers", [3, -4, 5])
    writer.add_array("array.floats", [0.5, -0.25])
    writer.add_array("array.bools", [True, False, True])
    random = np.random.default_rng(7)
    numbers = random.standard_normal((3, 256)).astype(np.float32)
    writer.add_tensor("f32", numbers)
    writer.add_tensor("f16", numbers.astype(np.float16))
    for kind in ["BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]:
        quantized = gguf.quantize(numbers, gguf.GGMLQuantizationType[kind])
        writer.add_tensor(kind.lower(), quantized, raw_dtype=gguf.GGMLQuantizationType[kind])
    for kind in ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"]:
        elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
        blocks = random.integers(0, 256, (3, 256 // elements * size), dtype=np.uint8)
        writer.add_tensor(kind.lower(), blocks, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.add_tensor("i32", np.array([[[1, -2], [3, -4], [5, -6]]], dtype=np.int32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_model(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """All tensors of a bfloat16 model as float32."""
    tensors = {}
    # The package's own order is another one each time.
    for name, info in sorted(
        safetensors.deserialize((folder / "model.safetensors").read_bytes()), key=lambda entry: entry[0]
    ):
        assert info["dtype"] == "BF16", name
        bits = np.frombuffer(bytes(info["data"]), dtype="<u2").astype(np.uint32) << 16
        tensors[name] = bits.view(np.float32).reshape(info["shape"])
    return tensors


def neighbours(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows i and i + half of each head become neighbours, as llama.cpp's llama architecture wants them."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def llama3_frequency_factors(config: dict) -> np.ndarray:
    rope = config["rope_parameters"]
    exponents = np.arange(0, config["head_dim"], 2) / config["head_dim"]
    wavelengths = 2 * math.pi * rope["rope_theta"] ** exponents
    context = rope["original_max_position_embeddings"]
    smooth = (context / wavelengths - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    smooth = np.clip(smooth, 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def add_metadata(writer: gguf.GGUFWriter, family: str, config: dict) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    rope = config["rope_parameters"].get("full_attention", config["rope_parameters"])
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if family == "llama":
        writer.add_vocab_size(config["vocab_size"])
        writer.add_rope_dimension_count(config["head_dim"])
    if family == "gemma3":
        writer.add_sliding_window(config["sliding_window"])
    if config.get("bos_token_id") is not None:
        writer.add_bos_token_id(config["bos_token_id"])
    if config.get("eos_token_id") is not None:
        writer.add_eos_token_id(config["eos_token_id"])
    writer.add_chat_template("{{ messages[0]['content'] }}")


def write_model(family: str, architecture: gguf.MODEL_ARCH) -> None:
    folder = FIXTURES / "models" / family
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(FIXTURES / f"gguf/{family}.gguf", gguf.MODEL_ARCH_NAMES[architecture])
    add_metadata(writer, family, config)
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    for name, values in read_model(folder).items():
        if family == "gemma3" and name.endswith("norm.weight"):
            values = values + 1
        if family == "llama" and name.endswith(("q_proj.weight", "q_proj.bias")):
            values = neighbours(values, config["num_attention_heads"])
        if family == "llama" and name.endswith(("k_proj.weight", "k_proj.bias")):
            values = neighbours(values, config["num_key_value_heads"])
        new_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert new_name is not None, name
        if values.ndim == 1:
            writer.add_tensor(new_name, np.ascontiguousarray(values, dtype=np.float32))
        else:
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(new_name, gguf.quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)
    if config["rope_parameters"].get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_frequency_factors(config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_fuzz_seeds() -> None:
    """Files that get a fuzzer past the parser, into what reads models and scales: one layer, 4 tokens."""
    corpus = FIXTURES.parent / "fuzz/corpus"
    for folder in ["gguf", "safetensors"]:
        (corpus / folder).mkdir(parents=True, exist_ok=True)
    for name in ARCHITECTURES:
        writer = gguf.GGUFWriter(corpus / f"gguf/{name}", name)
        writer.add_block_count(1)
        writer.add_context_length(64)
        writer.add_embedding_length(8)
        writer.add_feed_forward_length(8)
        writer.add_head_count(2)
        writer.add_head_count_kv([1])
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(1e4)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(32)
        writer.add_sliding_window(8)
        writer.add_sliding_window_pattern([True])
        writer.add_eos_token_id(1)
        writer.add_eot_token_id(2)
        writer.add_chat_template("x")
        writer.add_tensor("token_embd.weight", np.ones((4, 8), np.float32))
        writer.add_tensor("blk.0.attn_q.weight", np.ones((8, 8), np.float16))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    scales = {
        f"model.layers.{layer}.self_attn.{name}": np.full(heads, 0.5, np.float32)
        for layer, heads in [(0, 2), (2, 4)]
        for name in ["k_scale", "v_scale"]
    }
    safetensors.numpy.save_file(scales, corpus / "safetensors/scales")


write_safetensors_types()
write_gguf_types()
write_fuzz_seeds()
for family_name, arch in ARCHITECTURES.items():
    write_model(family_name, arch)
