#!/usr/bin/env python3
"""kv8 and llama.cpp side by side on one CPU: same GGUF, same threads, runs in turn.

    python3 -m venv venv && venv/bin/pip install llama-cpp-python     # builds llama.cpp for this machine
    venv/bin/python benchmarks/compare_llama_cpp.py --model ~/.cache/kv8/SmolLM2-135M-Instruct.Q4_1.gguf \\
        --json benchmarks/results/cpu-llama-cpp.json

Measured: decode at 128 and at 8,000 tokens of context (kv8 with its FP8 and its BF16 cache, llama.cpp with its F16
cache), prefill of 2,000 tokens, and from these kv8's decode time per cached token. Medians over the rounds.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

DECODE = 32  # tokens drawn at each context


def kv8(arguments, prompt_file, cache, tokens):
    command = [arguments.kv8, "run", arguments.model, "--raw", "--ignore-eos", "--json", "-f", prompt_file, "-n", str(tokens),
               "--threads", str(arguments.threads), "--kv-cache-dtype", cache]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    drawn = len(result["tokens"]) - 1
    return {"prompt": result["prompt_tokens"], "prefill": result["prefill_seconds"],
            "step": result["decode_seconds"] / drawn if drawn > 0 else None}


class LlamaCpp:
    def __init__(self, arguments):
        import llama_cpp
        self.llama = llama_cpp.Llama(arguments.model, n_ctx=8192, n_batch=512, n_threads=arguments.threads,
                                     n_threads_batch=arguments.threads, verbose=False, logits_all=False,
                                     flash_attn=arguments.llama_flash_attention)
        self.version = llama_cpp.__version__

    def run(self, ids, tokens):
        self.llama.reset()
        start = time.perf_counter()
        self.llama.eval(ids)
        prefill = time.perf_counter() - start
        start = time.perf_counter()
        for _ in range(tokens):
            self.llama.eval([self.llama.sample(temp=0.0)])
        step = (time.perf_counter() - start) / tokens if tokens else None
        return {"prompt": len(ids), "prefill": prefill, "step": step}


def prompt_of(llama, count):
    """Text of exactly `count` tokens, varied enough to be no special case, and its ids."""
    words = [f"{a}{b}" for a in ("river", "stone", "market", "engine", "summer", "letter") for b in (" ", "s ", "ing ")]
    text, seed = "", 1
    while True:
        ids = llama.tokenize(text.encode(), add_bos=False)
        if len(ids) >= count:
            break
        for _ in range(max(1, (count - len(ids)) // 2)):
            seed = seed * 1103515245 + 12345 & 0x7FFFFFFF
            text += words[seed % len(words)]
    ids = ids[:count]
    return llama.detokenize(ids).decode(), ids


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--kv8", default="build/kv8")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--llama-flash-attention", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    llama = LlamaCpp(arguments)
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, context, decode in (("decode at 128", 128, DECODE), ("decode at 8,000", 8000, DECODE), ("prefill of 2,000", 2000, 0)):
            text, ids = prompt_of(llama.llama, context)
            path = os.path.join(folder, "prompt.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            runs = {"kv8 fp8": [], "kv8 bf16": [], "llama.cpp f16": []}
            for _ in range(arguments.rounds):
                runs["kv8 fp8"].append(kv8(arguments, path, "fp8", decode + 1))
                runs["llama.cpp f16"].append(llama.run(ids, decode))
                runs["kv8 bf16"].append(kv8(arguments, path, "bf16", decode + 1))
            key = "step" if decode else "prefill"
            row = {engine: statistics.median(run[key] for run in found) for engine, found in runs.items()}
            ratios = [theirs[key] / ours[key] for ours, theirs in zip(runs["kv8 fp8"], runs["llama.cpp f16"])]
            row["prompt tokens"] = runs["kv8 fp8"][0]["prompt"]
            row["speedup"] = statistics.median(ratios)
            row["speedups"] = ratios
            rows[name] = row
            print(f"{name:<18} kv8 fp8 {1e3 * row['kv8 fp8']:9.2f} ms   kv8 bf16 {1e3 * row['kv8 bf16']:9.2f} ms   "
                  f"llama.cpp f16 {1e3 * row['llama.cpp f16']:9.2f} ms   llama.cpp / kv8 fp8 {row['speedup']:.2f} "
                  f"({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
    per_token = {cache: (rows["decode at 8,000"][f"kv8 {cache}"] - rows["decode at 128"][f"kv8 {cache}"]) / (8000 - 128)
                 for cache in ("fp8", "bf16")}
    print(f"kv8, decode time per cached token: fp8 {1e9 * per_token['fp8']:.0f} ns, bf16 {1e9 * per_token['bf16']:.0f} ns, "
          f"ratio {per_token['fp8'] / per_token['bf16']:.2f}")
    if arguments.json:
        cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if "model name" in line), "?")
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
        record = {"date": datetime.date.today().isoformat(), "machine": {"cpu": cpu, "threads": arguments.threads, "system": platform.platform()},
                  "command": " ".join(["benchmarks/compare_llama_cpp.py"] + [a for a in sys.argv[1:] if "/" not in a]),
                  "commit": commit, "llama_cpp_python": llama.version, "rounds": arguments.rounds, "seconds": rows,
                  "decode_seconds_per_cached_token": per_token, "fp8_over_bf16": per_token["fp8"] / per_token["bf16"]}
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
