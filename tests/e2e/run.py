#!/usr/bin/env python3
"""End-to-end tests of the program `kv8`: each runs it as a user would and looks at what comes out.

    tests/e2e/run.py --program build/kv8 [unittest options: -v, -k PATTERN]

KV8_FIXTURES names another folder of fixtures. Cases for commands that talk to the network aren't here.
"""

import argparse
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent.parent
FIXTURES = Path(os.environ.get("KV8_FIXTURES") or ROOT / "tests/fixtures")
PROGRAM = ROOT / "build/kv8"

# Exit codes, as `kv8 --help` documents them.
OK, OUT_OF_BOUNDS, USAGE, BAD_MODEL, NOT_WRITTEN, INTERRUPTED = 0, 1, 2, 3, 5, 130

# The families that run today, with the options that their golden logits want.
FAMILIES = {
    "llama": (), "qwen2": (), "qwen3": (), "gemma3": (), "qwen3_fp8_block": (),
    "llama_fp8_kv_tensor": ("--kv-cache-dtype", "fp8"), "llama_fp8_kv_head": ("--kv-cache-dtype", "fp8"),
}


def kv8(*arguments, stdin="", timeout=120, **environment):
    """Runs the program; environment holds additional variables."""
    return subprocess.run([str(PROGRAM), *map(str, arguments)], input=stdin, capture_output=True, text=True,
                          timeout=timeout, env={**os.environ, **environment})


class Case(unittest.TestCase):
    def expect(self, result, status):
        self.assertEqual(result.returncode, status, f"{result.args}\n{result.stdout}\n{result.stderr}")
        return result

    def model(self, name):
        folder = FIXTURES / "models" / name
        if not folder.exists():
            self.skipTest(f"no fixture {folder}")
        return folder


def byte_characters():
    """The character that stands for each byte in a byte-level tokenizer: itself if it can be seen, else one from 256 on."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("\xa1"), ord("\xac") + 1), *range(ord("\xae"), ord("\xff") + 1)]
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in seen else chr(next(hidden)) for byte in range(256)]


def byte_tokenizer():
    """A tokenizer.json whose ids are the text's bytes: enough to run text through a tiny model."""
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {character: byte for byte, character in enumerate(byte_characters())}, "merges": []}}


class TextCase(Case):
    """Cases that run text through the fixtures' models, which have no tokenizers of their own."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def text_model(self, name, **files):
        """A folder with the fixture's model, a tokenizer of bytes, and more files as JSON or text."""
        folder = self.folder / name
        folder.mkdir()
        for path in self.model(name).iterdir():
            (folder / path.name).symlink_to(path.resolve())
        (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
        for file, content in files.items():
            (folder / file.replace("__", ".")).write_text(content if isinstance(content, str) else json.dumps(content))
        return folder


class CommandLine(Case):
    def test_version(self):
        text = self.expect(kv8("version"), OK).stdout
        self.assertRegex(text, r"^kv8 \d+\.\d+\.\d+\n")
        described = json.loads(self.expect(kv8("version", "--json"), OK).stdout)
        self.assertEqual(described["version"], text.split()[1])
        self.assertEqual(described["simd"], text.split()[-1])

    def test_the_instruction_set_can_be_limited(self):
        self.assertIn("SCALAR", self.expect(kv8("version", KV8_SIMD="scalar"), OK).stdout)
        self.assertIn("scalar", self.expect(kv8("version", KV8_SIMD="mmx"), USAGE).stderr)

    def test_help_names_every_command_and_the_exit_codes(self):
        out = self.expect(kv8("--help"), OK).stdout
        for word in ("run", "info", "tokenize", "check", "eval", "bench", "version", "Exit codes"):
            self.assertIn(word, out)

    def test_every_command_has_help(self):
        for command in ("run", "info", "tokenize", "check", "eval", "bench", "version"):
            with self.subTest(command):
                self.assertIn("Usage: kv8 " + command, self.expect(kv8(command, "--help"), OK).stdout)

    def test_mistakes_are_explained_on_stderr(self):
        for arguments in ((), ("fly",), ("info",), ("info", "a", "b"), ("version", "--loud"), ("run", "x", "--temperature", "hot")):
            with self.subTest(arguments):
                result = self.expect(kv8(*arguments), USAGE)
                self.assertEqual(result.stdout, "")
                self.assertIn("--help", result.stderr)

    def test_missing_model_names_the_path(self):
        for command in (("info", "/nowhere/model.gguf"), ("run", "/nowhere", "-p", "x")):
            with self.subTest(command):
                result = self.expect(kv8(*command), BAD_MODEL)
                self.assertIn("/nowhere", result.stderr)
                self.assertEqual(result.stdout, "")

    def test_damaged_model_is_an_error_not_a_crash(self):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(b"GGUF\x03\x00\x00\x00" + b"\xff" * 40)
            file.flush()
            self.assertIn(file.name, self.expect(kv8("info", file.name), BAD_MODEL).stderr)

    def test_broken_pipe_is_silent(self):
        process = subprocess.Popen([str(PROGRAM), "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()
        process.wait(timeout=30)


class Models(Case):
    def test_info(self):
        for name in sorted(path.name for path in (FIXTURES / "models").iterdir() if path.name in FAMILIES):
            with self.subTest(name):
                info = json.loads(self.expect(kv8("info", self.model(name), "--json"), OK).stdout)
                self.assertGreater(info["parameters"], 0)
                # The halves of a page, less the scales' share.
                cache = info["cache"]
                ratio = cache["bf16"]["bytes_per_token"] / cache["fp8"]["bytes_per_token"]
                self.assertAlmostEqual(ratio, 2.0, delta=0.02)
                self.assertIn(info["family"], self.expect(kv8("info", self.model(name)), OK).stdout)

    def test_check_against_golden_logits(self):
        for name in FAMILIES:
            with self.subTest(name):
                folder = self.model(name)
                result = kv8("check", folder, "--golden", folder / "golden.safetensors", "--json", *FAMILIES[name])
                report = json.loads(self.expect(result, OK).stdout)
                self.assertTrue(report["passed"])
                self.assertLess(report["max_error"], 5e-2 if FAMILIES[name] else 2e-3)
                self.assertLess(report["rms_error"], 1e-3)
                self.assertGreater(report["positions"], 0)

    def test_check_fails_outside_its_bounds(self):
        folder = self.model("llama")
        golden = ("--golden", folder / "golden.safetensors")
        self.assertIn("FAILED", self.expect(kv8("check", folder, *golden, "--logit-error", "1e-9"), OUT_OF_BOUNDS).stdout)
        self.expect(kv8("check", folder, *golden, "--kv-cache-dtype", "fp8"), OUT_OF_BOUNDS)
        self.expect(kv8("check", folder, *golden, "--kv-cache-dtype", "fp8", "--logit-error", "10", "--rms-error", "10", "--margin", "100"), OK)
        for bound in ("--logit-error", "--rms-error", "--margin"):
            for value in ("nan", "-1"):
                self.assertIn(bound, self.expect(kv8("check", folder, *golden, bound, value), USAGE).stderr)

    def test_check_names_what_the_golden_file_lacks(self):
        folder = self.model("llama")
        result = kv8("check", folder, "--golden", folder / "golden.safetensors", "--tensor", "logit_s")
        self.assertIn("logit_s", self.expect(result, BAD_MODEL).stderr)
        self.assertIn("/nowhere", self.expect(kv8("check", folder, "--golden", "/nowhere"), BAD_MODEL).stderr)

    def test_run_without_a_tokenizer_says_so(self):
        result = self.expect(kv8("run", self.model("llama"), "-p", "x"), BAD_MODEL)
        self.assertIn("tokenizer", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_values_that_make_no_sense(self):
        folder = self.model("llama")
        golden = ("--golden", folder / "golden.safetensors")
        for option in (("--kv-cache-dtype", "fp9"), ("--attention-accumulate", "more"), ("--kv-cache-dtype-skip-layers", "99")):
            with self.subTest(option):
                self.assertIn(option[1], self.expect(kv8("check", folder, *golden, *option), USAGE).stderr)


class BenchLatency(Case):
    def run_latency(self, model, *arguments):
        return kv8("bench", "latency", model, "--prompt-lengths", "16,48,32", "--output-tokens", "3", "--rounds", "2", *arguments)

    def test_json_and_page(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "latency.html"
            result = self.expect(self.run_latency(self.model("gemma3"), "--json", "--html", page), OK)
            report = json.loads(result.stdout)
            text = page.read_text()
        self.assertEqual(report["prompt_lengths"], [16, 32, 48])
        self.assertEqual([one["name"] for one in report["subjects"]], ["bf16", "fp8", "fp8-skip-windows"])
        bf16, fp8, skip = report["subjects"]
        self.assertEqual(bf16["bytes_per_token"], 2 * fp8["bytes_per_token"])
        self.assertEqual(bf16["window_bytes_per_sequence"], skip["window_bytes_per_sequence"])
        for subject in report["subjects"]:
            self.assertEqual([point["prompt_tokens"] for point in subject["points"]], [16, 32, 48])
            self.assertEqual([point["rounds"] for point in subject["points"]], [2, 2, 2])
            self.assertIn("slope_ms_per_token", subject["itl_fit"])
            self.assertIn("a_ms_per_token2", subject["ttft_fit"])
        self.assertEqual([one["subject"] for one in report["comparisons"]], ["fp8", "fp8-skip-windows"])
        self.assertIn("--prompt-lengths 16,48,32", report["command"])
        plots = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
        self.assertEqual(len(plots), 3)
        for plot in plots:
            ElementTree.fromstring(plot)
        self.assertNotIn("<script", text)

    def test_table_without_windows(self):
        out = self.expect(self.run_latency(self.model("llama"), "--max-model-len", "40"), OK).stdout
        self.assertIn("fp8 beside bf16", out)
        self.assertNotIn("skip-windows", out)
        self.assertRegex(out, r"\n +37 ")  # 48, cut to 40 less 3

    def test_mistakes(self):
        model = self.model("llama")
        self.assertIn("int4", self.expect(self.run_latency(model, "--caches", "bf16,int4"), USAGE).stderr)
        self.assertIn("--output-tokens", self.expect(self.run_latency(model, "--max-model-len", "3"), USAGE).stderr)
        self.expect(kv8("bench", "latency", model, "--prompt-lengths", "0"), USAGE)
        self.expect(kv8("bench", "latency", model, "--rounds", "0"), USAGE)
        self.assertIn("/nowhere/x.html", self.expect(self.run_latency(model, "--html", "/nowhere/x.html"), BAD_MODEL).stderr)

    def test_interrupted_it_ends_cleanly(self):
        process = subprocess.Popen([str(PROGRAM), "bench", "latency", str(self.model("llama")), "--prompt-lengths", "8",
                                    "--output-tokens", "2", "--rounds", "1000000", "--json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # The notes on stderr come when the model is loaded; a signal before the first round is an error, after it a report.
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, INTERRUPTED, errors)
        if out:
            self.assertTrue(json.loads(out)["interrupted"])
        else:
            self.assertIn("interrupted", errors)


def gguf_string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_vocabulary(tokens, merges):
    """A GGUF of a vocabulary alone, as llama.cpp's converter writes with --vocab-only: no tensors, no sizes of a model."""
    def strings(values):
        return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(gguf_string, values))

    def string(value):
        return struct.pack("<I", 8) + gguf_string(value)

    pairs = {"general.architecture": string("llama"), "tokenizer.ggml.model": string("gpt2"),
             "tokenizer.ggml.pre": string("gpt-2"), "tokenizer.ggml.tokens": strings(tokens),
             "tokenizer.ggml.token_type": struct.pack("<IIQ", 9, 5, len(tokens)) + struct.pack("<i", 1) * len(tokens),
             "tokenizer.ggml.merges": strings(merges)}
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(gguf_string(key) + value for key, value in pairs.items())


class Text(TextCase):
    def test_output_that_cannot_be_written_is_an_error(self):
        folder = self.text_model("llama")
        golden = folder / "golden.safetensors"
        prompt = ("-p", "x", "-n", 3)
        for arguments in (("version",), ("--help",), ("run", "--help"), ("--version",), ("info", folder), ("info", folder, "--json"),
                          ("tokenize", folder, "-p", "x"), ("tokenize", folder, "-d", 65), ("check", folder, "--golden", golden),
                          ("eval", "numerics", "--max-keys", 1024, "--heads", 1, "--head-dim", 32),
                          ("bench", "latency", folder, "--prompt-lengths", 8, "--output-tokens", 2, "--rounds", 1),
                          ("run", folder, *prompt), ("run", folder, *prompt, "--json")):
            with self.subTest(arguments), open("/dev/full", "w", encoding="utf-8") as full:
                result = subprocess.run([str(PROGRAM), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=full,
                                        stderr=subprocess.PIPE, text=True, timeout=120, check=False)
                self.assertEqual(result.returncode, NOT_WRITTEN, result.stderr)
                self.assertIn("kv8: standard output: No space left on device", result.stderr)

    def test_numbers_out_of_range_are_refused(self):
        folder = self.text_model("llama")
        for option in ("-n", "--seed", "--top-k", "--max-model-len", "--prefill-chunk", "--threads"):
            for value in ("99999999999999999999", "-99999999999999999999", "-2", "1.5", "1e3", "0x10", "many", ""):
                with self.subTest(f"{option} {value}"):
                    self.assertIn(option.lstrip("-"), self.expect(kv8("run", folder, "-p", "x", option, value), USAGE).stderr)
        self.expect(kv8("run", folder, "-p", "x", "-n", 1, "--seed", 2**63 - 1), OK)
        self.expect(kv8("run", folder, "-p", "x", "-n", 1, "--seed", 2**63), USAGE)

    def test_a_prompt_is_read_as_a_stream(self):
        (self.folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
        ids = " ".join(str(byte) for byte in b"one two\n")
        for command in (f"printf 'one two\\n' | {PROGRAM} tokenize {self.folder} -f /dev/stdin",
                        f"{PROGRAM} tokenize {self.folder} -f <(printf 'one two\\n')",
                        f"printf 'one two\\n' | {PROGRAM} tokenize {self.folder} -f -"):
            with self.subTest(command):
                result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual(self.expect(result, OK).stdout.strip(), ids)
        # Files of /proc say that they are empty.
        result = self.expect(kv8("tokenize", self.folder, "-f", "/proc/version"), OK)
        self.assertEqual(bytes(map(int, result.stdout.split())).decode(), Path("/proc/version").read_text(encoding="utf-8"))
        self.assertIn("/nowhere", self.expect(kv8("tokenize", self.folder, "-f", "/nowhere"), BAD_MODEL).stderr)
        self.assertIn(str(self.folder), self.expect(kv8("tokenize", self.folder, "-f", self.folder), BAD_MODEL).stderr)

    def test_a_git_lfs_pointer_is_called_one(self):
        pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
        for file in ("tokenizer.json", "model.safetensors", "config.json"):
            folder = self.text_model("llama")
            (folder / file).unlink()
            (folder / file).write_text(pointer)
            result = self.expect(kv8("run", folder, "-p", "x"), BAD_MODEL)
            self.assertRegex(result.stderr, rf"{file}: a Git LFS pointer.*git lfs pull")
            shutil.rmtree(folder)
        (self.folder / "model.gguf").write_text(pointer)
        self.assertIn("a Git LFS pointer", self.expect(kv8("info", self.folder / "model.gguf"), BAD_MODEL).stderr)

    def test_tokenizing_needs_no_model(self):
        (self.folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
        ids = " ".join(str(byte) for byte in "Hé!".encode())
        self.assertEqual(self.expect(kv8("tokenize", self.folder, "-p", "Hé!"), OK).stdout.strip(), ids)
        self.assertEqual(self.expect(kv8("tokenize", self.folder, "--decode", *ids.split()), OK).stdout, "Hé!\n")
        self.assertIn("config.json", self.expect(kv8("info", self.folder), BAD_MODEL).stderr)
        vocabulary = self.folder / "vocabulary.gguf"
        vocabulary.write_bytes(gguf_vocabulary([*byte_characters(), "ab"], ["a b"]))
        self.assertEqual(self.expect(kv8("tokenize", vocabulary, "-p", "xab"), OK).stdout.split(), [str(ord("x")), "256"])

    def test_tokenizing_without_a_tokenizer_names_what_is_missing(self):
        self.assertIn("no tokenizer.json", self.expect(kv8("tokenize", self.folder, "-p", "x"), BAD_MODEL).stderr)
        (self.folder / "model.gguf").write_bytes(b"GGUF")
        self.assertIn("model.gguf", self.expect(kv8("tokenize", self.folder, "-p", "x"), BAD_MODEL).stderr)
        (self.folder / "tokenizer.json").symlink_to("gone")
        self.assertIn("a link to gone", self.expect(kv8("tokenize", self.folder, "-p", "x"), BAD_MODEL).stderr)

    def test_a_broken_template_is_named(self):
        for content, words in (("{% if %}", "chat_template.jinja"), ("{{ nothing() }}", "chat_template.jinja")):
            with self.subTest(content):
                folder = self.text_model("llama", chat_template__jinja=content)
                self.assertIn(words, self.expect(kv8("run", folder, "-p", "x", "-n", 1), BAD_MODEL).stderr)
            shutil.rmtree(folder)
        folder = self.text_model("llama", tokenizer_config__json={"chat_template": "{% if %}"})
        self.assertIn("tokenizer_config.json", self.expect(kv8("run", folder, "-p", "x", "-n", 1), BAD_MODEL).stderr)
        shutil.rmtree(folder)
        # What a template refuses about the messages is the user's to change.
        folder = self.text_model("llama", chat_template__jinja="{{ raise_exception('no system message, please') }}")
        self.assertIn("no system message, please", self.expect(kv8("run", folder, "-p", "x", "-n", 1), USAGE).stderr)

    def test_info_and_run_tell_the_same_costs_of_the_cache(self):
        for name in sorted(path.name for path in (FIXTURES / "models").iterdir() if path.name in FAMILIES):
            with self.subTest(name):
                folder = self.text_model(name)
                info = json.loads(self.expect(kv8("info", folder, "--json"), OK).stdout)["cache"]
                ran = json.loads(self.expect(kv8("run", folder, "-p", "x", "-n", 2, "--json"), OK).stdout)["cache"]
                for dtype in ("fp8", "bf16"):
                    for number in ("bytes_per_token", "window_bytes_per_sequence"):
                        self.assertEqual(ran[dtype][number], info[dtype][number], f"{dtype} {number}")
                # By hand: K and V of every layer without a window, and of the window's tokens in the others.
                config = json.loads((folder / "config.json").read_text())
                kinds = config.get("layer_types") or ["full_attention"] * config["num_hidden_layers"]
                heads = config["num_key_value_heads"] * (config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
                full = kinds.count("full_attention")
                self.assertEqual(info["fp8"]["bytes_per_token"], full * 2 * heads)
                self.assertEqual(info["bf16"]["window_bytes_per_sequence"],
                                 (len(kinds) - full) * 4 * heads * (config.get("sliding_window") or 0))
                told = self.expect(kv8("info", folder), OK).stdout
                summary = self.expect(kv8("run", folder, "-p", "x", "-n", 2), OK).stderr
                cost = f"{info['fp8']['bytes_per_token']:,} bytes a token"
                for text in (told, summary):
                    self.assertIn(cost, text)
                    self.assertEqual("at most in windows" in text, full < len(kinds))

    def test_the_summary_counts_the_tokens_of_the_answer(self):
        folder = self.text_model("llama")
        for count in (1, 2, 5):
            result = self.expect(kv8("run", folder, "-p", "abc", "-n", count, "--ignore-eos", "--temperature", 0), OK)
            self.assertRegex(result.stderr, rf"answer  {count} tokens? in ")
            self.assertRegex(result.stderr, r"prompt  3 tokens in ")


class DefaultModel(Case):
    """The 135M model, where it has been fetched already (`make run`, or scripts/fetch_model.py)."""

    def setUp(self):
        cache = Path(os.environ.get("KV8_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kv8")
        if not (cache / "SmolLM2-135M-Instruct.Q4_1.gguf").exists():
            self.skipTest(f"{cache} holds no smollm2-135m; scripts/fetch_model.py smollm2-135m fetches it")

    def run_json(self, *arguments, **options):
        return json.loads(self.expect(kv8("run", "smollm2-135m", "--json", "--temperature", 0, *arguments, **options), OK).stdout)

    def test_knows_the_capital_of_france_with_an_fp8_cache(self):
        answer = self.run_json("-p", "What is the capital of France? Answer with one word.", "--kv-cache-dtype", "fp8", "-n", 16)
        self.assertIn("Paris", answer["text"])
        self.assertEqual(answer["kv_cache_dtype"], "fp8")
        self.assertEqual(answer["cache"]["bf16"]["bytes_per_token"], 2 * answer["cache"]["fp8"]["bytes_per_token"])

    def test_prompt_comes_from_stdin_or_option_alike(self):
        prompt = "Name a colour."
        self.assertEqual(self.run_json("-p", prompt, "-n", 8)["tokens"], self.run_json("-n", 8, stdin=prompt)["tokens"])

    def test_streamed_text_is_the_answer(self):
        arguments = ("-p", "Write one sentence about the sea.", "-n", 24)
        streamed = self.expect(kv8("run", "smollm2-135m", "--temperature", 0, *arguments), OK)
        self.assertEqual(streamed.stdout.strip(), self.run_json(*arguments)["text"].strip())
        self.assertIn("tokens/s", streamed.stderr)

    def test_chunks_of_the_prompt_do_not_matter(self):
        prompt = "Repeat after me: one, two, three, four, five, six, seven."
        whole = self.run_json("-p", prompt, "-n", 16)
        for chunk in (1, 7):
            self.assertEqual(self.run_json("-p", prompt, "-n", 16, "--prefill-chunk", chunk)["tokens"], whole["tokens"])

    def test_reader_that_leaves_ends_the_answer_silently(self):
        process = subprocess.Popen([str(PROGRAM), "run", "smollm2-135m", "-p", "Count to a thousand.", "-n", "400", "--ignore-eos"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(process.stdout.read(1))
        process.stdout.close()
        self.assertNotIn(b"terminate", process.stderr.read())
        process.stderr.close()
        process.wait(timeout=60)


def main():
    global PROGRAM
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=PROGRAM)
    arguments, rest = parser.parse_known_args()
    PROGRAM = arguments.program.resolve()
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
