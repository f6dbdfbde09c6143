#!/usr/bin/env python3
"""Writes tests/fixtures/gguf/dequantize.bin: random rows of each type and their float32 values, as other
people's code widens them (the Python packages gguf and ml_dtypes; pip install gguf ml_dtypes numpy).

A record: name (16 bytes, zero padded), elements (u32), bytes (u32), the row's bytes, its float32 values."""

import pathlib
import struct

import gguf
import ml_dtypes
import numpy as np

BLOCKS = 6
# Where float16 numbers lie in a block: random bits there could be infinite.
HALVES = {
    "q4_0": [0], "q4_1": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q8_0": [0],
    "q2_k": [80, 82], "q3_k": [108], "q4_k": [0, 2], "q5_k": [0, 2], "q6_k": [208],
}  # fmt: skip


def record(name: str, row: bytes, values: np.ndarray) -> bytes:
    values = np.ascontiguousarray(values, dtype="<f4").reshape(-1)
    return struct.pack("<16sII", name.encode(), values.size, len(row)) + row + values.tobytes()


def main() -> None:
    random = np.random.default_rng(20261201)
    records = []
    for name, halves in HALVES.items():
        kind = gguf.GGMLQuantizationType[name.upper()]
        _, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
        for offset in halves:
            numbers = (random.standard_normal(BLOCKS) * 0.1).astype("<f2")
            blocks[:, offset : offset + 2] = numbers.view(np.uint8).reshape(BLOCKS, 2)
        records.append(record(name, blocks.tobytes(), gguf.dequantize(blocks, kind)))
    every_byte = np.arange(256, dtype=np.uint8)
    records.append(record("f8_e4m3", every_byte.tobytes(), every_byte.view(ml_dtypes.float8_e4m3fn).astype("f4")))
    records.append(record("f8_e5m2", every_byte.tobytes(), every_byte.view(ml_dtypes.float8_e5m2).astype("f4")))
    codes = random.integers(0, 65536, 512).astype("<u2")
    records.append(record("f16", codes.tobytes(), codes.view("<f2").astype("f4")))
    records.append(record("bf16", codes.tobytes(), codes.view(ml_dtypes.bfloat16).astype("f4")))
    for name, kind in {"f64": "<f8", "f32": "<f4"}.items():
        numbers = random.standard_normal(64).astype(kind)
        records.append(record(name, numbers.tobytes(), numbers.astype("f4")))
    for name in ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]:
        kind = np.dtype(f"{name[0]}{int(name[1:]) // 8}")
        info = np.iinfo(kind)
        numbers = random.integers(info.min, info.max, 64, dtype=kind, endpoint=True)
        records.append(record(name, numbers.astype(numbers.dtype.newbyteorder("<")).tobytes(), numbers.astype("f4")))
    path = pathlib.Path(__file__).parent.parent / "tests/fixtures/gguf/dequantize.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(records))


main()
