# Every target is a few lines that you could type yourself; `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

MODEL ?= smollm2-135m
PROMPT ?= Explain in two sentences why the sky is blue.
FUZZ_SECONDS ?= 30
export PROMPT

.PHONY: help setup build run test test-asan test-tsan fuzz lint format bench clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup:  ## install the Debian packages that building and testing need, if any are missing
	@scripts/setup test

build:  ## build the program: build/kv8
	@scripts/setup build
	cmake --preset default -DKV8_TESTS=OFF -DKV8_BENCHMARKS=OFF
	cmake --build --preset default

run: build  ## build, fetch the default model, stream an answer with the KV cache in FP8 (MODEL=, PROMPT=)
	build/kv8 run $(MODEL) -p "$$PROMPT" --kv-cache-dtype fp8

test:  ## what must hold before a commit: unit tests under sanitizers; all tests, style included
	@scripts/setup test
	cmake --preset asan
	cmake --build --preset asan
	ctest --preset asan
	cmake --preset default -DKV8_TESTS=ON
	cmake --build --preset default
	ctest --preset default

test-asan:  ## unit tests under the address and undefined-behaviour sanitizers
	@scripts/setup test
	cmake --preset asan
	cmake --build --preset asan
	ctest --preset asan

test-tsan:  ## unit tests under the thread sanitizer
	@scripts/setup test
	cmake --preset tsan
	cmake --build --preset tsan
	ctest --preset tsan

fuzz:  ## run each fuzzer for FUZZ_SECONDS (30)
	@scripts/setup fuzz
	cmake --preset fuzz
	cmake --build --preset fuzz
	scripts/fuzz build-fuzz/fuzz $(FUZZ_SECONDS)

lint:  ## includes, formatting and clang-tidy over all files (many minutes)
	@scripts/setup test
	scripts/lint --all

format:  ## rewrite the sources in the style of .clang-format
	git ls-files -co --exclude-standard '*.cc' '*.h' '*.cu' '*.cuh' | xargs clang-format-14 -i

bench:  ## build and run the micro-benchmarks
	@scripts/setup build
	cmake --preset default -DKV8_BENCHMARKS=ON
	cmake --build --preset default
	for program in build/benchmarks/*_bench; do $$program || exit 1; done

clean:  ## remove all build folders
	rm -rf build build-*/
