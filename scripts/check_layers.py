#!/usr/bin/env python3
"""Holds the sources to the rules of the house: which folder may include which, and what a file looks like.

    scripts/check_layers.py               check the repository; exit status 1 and one line per offence
    scripts/check_layers.py --self-test   break each rule in a scratch folder and see it reported
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# What each folder of src/ may include, besides itself, the public headers (kv8/) and embedded texts (embedded/). Dependencies point one way:
# cli -> the questions a user asks -> engine -> models -> {ops, attention, kv_cache} -> {numerics, core}. Beside that table: what is
# common to all backends knows none of them, and they don't know each other.
BACKBONE = {"core", "numerics", "formats", "text", "kv_cache", "attention", "ops", "models", "distributed", "engine"}
ALLOWED = {
    "core": set(),
    "numerics": {"core"},
    "formats": {"core"},
    "text": {"core"},
    "distributed": {"core"},
    "kv_cache": {"core"},
    "attention": {"core", "numerics", "kv_cache"},
    "ops": {"core", "numerics", "kv_cache", "attention"},
    "models": {"core", "numerics", "formats", "kv_cache", "attention", "ops"},
    "engine": BACKBONE - {"engine"},
    "server": BACKBONE,
    "bench": BACKBONE,
    "eval": BACKBONE,
    "calibrate": BACKBONE,
    "advise": BACKBONE,
    "cli": BACKBONE | {"server", "bench", "eval", "calibrate", "advise"},
}

BACKENDS = {"cpu", "cuda"}  # sub-folders of attention and ops

# Libraries that only some files may know: a pattern of the header, a pattern of the paths, and the rule in words.
LIBRARIES = [
    (r"nlohmann/", r"src/core/", "JSON goes through core/json.h"),
    (r"tl/expected", r"src/core/", "errors go through core/error.h"),
    (r"CLI/", r"src/cli/", "CLI11 belongs to cli"),
    (r"boost/", r"src/(.*/)?http[^/]*(/|$)", "boost belongs to the http files"),
    (r"pcre2|utf8proc", r"src/text/", "regular expressions and Unicode tables belong to text"),
    (r"(?!cuda_runtime_api)(cuda|cublas|cudnn|nccl|cub/|cutlass|cute/)", r"src/(.*/)?cuda/", "CUDA stays in the cuda folders"),
    (r"cuda_runtime_api", r"src/(.*/)?cuda/|include/kv8/", "CUDA stays in the cuda folders, but for a public header's stream"),
    (r"(gtest|gmock|benchmark)/", r"(tests|benchmarks)/", "test libraries stay out of the product"),
]

MAX_LINES = 800
WARN_LINES = 500
SOURCE = {".h", ".cc", ".cu", ".cuh"}
GENERATED = re.compile(r"(^|/)(build(-[^/]*)?|__pycache__|CMakeFiles)/|\.(o|a|so|pyc|gcda|gcno|ninja)$"
                       r"|(^|/)(CMakeCache\.txt|compile_commands\.json)$")
GENERATED_MARK = re.compile(r"(do not edit|auto-?generated)", re.IGNORECASE)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def tracked_files(root):
    """The repository's files: tracked ones and new ones that git doesn't ignore."""
    listing = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"],
                             capture_output=True, text=True)
    if listing.returncode != 0:  # an unpacked archive
        return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())
    return sorted({name for name in listing.stdout.split("\0") if name and (root / name).is_file()})


def backend(path):
    """(part, backend) of a path from the root of src; the backend is None for what all of a part's backends share."""
    folders = path.split("/")[:-1]
    return folders[0] if folders else "", folders[1] if len(folders) > 1 and folders[1] in BACKENDS else None


def check_backends(name, header):
    """Yields what is wrong with an #include of `header`, from the root of src like `name`, as far as backends go."""
    (part, own), (target_part, target) = backend(name), backend(header)
    if target is None:
        return
    if own is not None and own != target:
        yield f'"{header}": the {own} backend knows nothing of the {target} backend'
    elif own is None and part == target_part:
        yield f'"{header}": what is common to the backends of {part} knows none of them'


def check_include(name, quote, header):
    """Yields what is wrong with one #include of the file `name`."""
    parts = name.split("/")
    if ".." in header.split("/"):
        yield f'"{header}": includes are written from the root of src'
    elif parts[0] == "include":
        if quote == '"' or ("/" in header and not header.startswith("kv8/")):
            yield f"{header}: public headers include the standard library and <kv8/...> only"
    elif parts[0] == "src" and len(parts) > 2 and quote == '"':
        folder, target = parts[1], header.split("/")[0]
        if folder not in ALLOWED:
            yield f"src/{folder} isn't in the table of scripts/check_layers.py"
        elif "/" not in header:
            yield f'"{header}": includes are written from the root of src ("{folder}/{header}")'
        elif target not in ALLOWED[folder] | {folder, "kv8", "embedded"}:
            may = ", ".join(sorted(ALLOWED[folder])) or "nothing else"
            yield f'"{header}": {folder} may include {may}'
        else:
            yield from check_backends("/".join(parts[1:]), header)
    if parts[0] in ("src", "include") and quote == "<":
        for pattern, paths, rule in LIBRARIES:
            if re.match(pattern, header) and not re.match(paths, name):
                yield f"<{header}>: {rule}"


def check(root, names):
    """Returns (offences, warnings), each a list of 'file:line: what'."""
    offences, warnings = [], []
    for name in names:
        if GENERATED.search(name):
            offences.append(f"{name}:1: a generated file in the repository")
            continue
        path = Path(name)
        if path.suffix not in SOURCE | {".py"}:
            continue
        lines = (root / name).read_text(encoding="utf-8", errors="replace").splitlines()
        if len(lines) > MAX_LINES:
            offences.append(f"{name}:{len(lines)}: {len(lines)} lines, at most {MAX_LINES}")
        elif len(lines) > WARN_LINES:
            warnings.append(f"{name}:{len(lines)}: {len(lines)} lines; up to {WARN_LINES} is the rule")
        if path.suffix not in SOURCE:
            continue
        for number, line in enumerate(lines[:5], 1):
            if GENERATED_MARK.search(line):
                offences.append(f"{name}:{number}: a generated file in the repository")
        # Highway compiles an -inl.h once per instruction set, so that has a guard which toggles.
        guarded = "HWY_TARGET_TOGGLE" in "".join(lines) if name.endswith("-inl.h") else "#pragma once" in lines
        if path.suffix in {".h", ".cuh"} and not guarded:
            offences.append(f"{name}:1: no #pragma once")
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if match:
                offences += [f"{name}:{number}: {what}" for what in check_include(name, *match.groups())]
    return offences, warnings


# One file per rule that breaks it, with words that its report must hold; and files that break none.
BAD = {
    "src/core/a.cc": ('#include "numerics/e4m3.h"\n', "core may include nothing else"),
    "src/text/a.cc": ('#include "formats/gguf.h"\n', "text may include core"),
    "src/ops/a.cc": ('#include "models/llama.h"\n', "ops may include"),
    "src/engine/a.cc": ('#include "cli/command.h"\n', "engine may include"),
    "src/eval/a.cc": ('#include "bench/timer.h"\n', "eval may include"),
    "src/core/b.cc": ('#include "error.h"\n', "from the root of src"),
    "src/core/c.cc": ('#include "../core/error.h"\n', "from the root of src"),
    "src/gadgets/a.cc": ('#include "core/error.h"\n', "isn't in the table"),
    "src/server/router.cc": ("#include <boost/asio.hpp>\n", "boost belongs to the http files"),
    "src/models/a.cc": ("  #  include <cuda_runtime.h>\n", "CUDA stays in the cuda folders"),
    "src/models/b.cc": ("#include <cuda_runtime_api.h>\n", "CUDA stays in the cuda folders"),
    "include/kv8/c.h": ("#pragma once\n#include <cuda_fp8.h>\n", "CUDA stays in the cuda folders"),
    "src/text/b.cc": ("#include <nlohmann/json.hpp>\n", "core/json.h"),
    "src/core/d.cc": ("#include <gtest/gtest.h>\n", "test libraries"),
    "include/kv8/a.h": ('#pragma once\n#include "core/error.h"\n', "public headers"),
    "include/kv8/b.h": ("#pragma once\n#include <fmt/format.h>\n", "public headers"),
    "src/core/e.h": ("int f();\n", "#pragma once"),
    "src/core/x-inl.h": ("int f();\n", "#pragma once"),
    "src/core/f.cc": ("\n" * 801, "801 lines"),
    "src/core/g.cc": ("// Auto-generated by a script.\n", "generated file"),
    "build-x/core.o": ("", "generated file"),
    "tests/core/a.h": ("int f();\n", "#pragma once"),
    "src/attention/problem.h": ('#pragma once\n#include "attention/cpu/layer_cache.h"\n', "knows none of them"),
    "src/ops/cuda/a.h": ('#pragma once\n#include "attention/cpu/layer_cache.h"\n', "nothing of the cpu backend"),
}
GOOD = {
    "src/ops/simd-inl.h": "#if defined(KV8_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)\n#endif\n",
    "src/attention/api.cc": '#include "kv8/attention.h"\n',
    "src/cli/fetch.cc": '#include "embedded/kScript.h"\n',
    "src/core/ok.cc": '#include "core/error.h"\n#include <vector>\n',
    "src/ops/cpu/ok.cc": '#include "attention/cpu/layer_cache.h"\n#include "ops/cpu/linear.h"\n#include "ops/ops.h"\n',
    "src/eval/ok.cc": '#include "attention/cpu/layer_cache.h"\n',
    "src/attention/ok.cc": '#include "kv_cache/cache_plan.h"\n#include "attention/attention.h"\n',
    "src/ops/cuda/gemm.cu": '#include <cuda_runtime.h>\n#include "ops/ops.h"\n',
    "src/server/http/server.cc": "#include <boost/beast.hpp>\n",
    "src/server/http_server.cc": "#include <boost/beast.hpp>\n",
    "src/cli/ok.cc": '#include <CLI/CLI.hpp>\n#include "engine/engine.h"\n#include "eval/numerics.h"\n',
    "include/kv8/stream.h": "#pragma once\n#include <cuda_runtime_api.h>\n",
    "include/kv8/ok.h": "#pragma once\n#include <cstdint>\n#include <kv8/fp8.h>\n",
    "tests/core/ok.cc": '#include <gtest/gtest.h>\n#include "models/llama.h"\n',
}


def self_test():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in [*((n, t) for n, (t, _) in BAD.items()), *GOOD.items()]:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        for name, (_, words) in BAD.items():
            offences, _ = check(root, [name])
            if len(offences) != 1 or words not in offences[0] or not offences[0].startswith(name):
                failures.append(f"{name}: expected one report of '{words}', got {offences}")
        for name in GOOD:
            offences, _ = check(root, [name])
            if offences:
                failures.append(f"{name}: expected no report, got {offences}")
    for failure in failures:
        print(f"self-test: {failure}")
    print(f"self-test: {len(BAD)} rules broken and {len(GOOD)} files kept, {len(failures)} failures")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help="check the checks")
    if parser.parse_args().self_test:
        return self_test()
    root = Path(__file__).resolve().parent.parent
    names = tracked_files(root)
    offences, warnings = check(root, names)
    for line in warnings:
        print(f"warning: {line}")
    for line in offences:
        print(line)
    print(f"layers: {len(names)} files, {len(offences)} offences")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
