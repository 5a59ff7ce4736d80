# The whole of Everwarm's build for a person: see README.md. Every target sets up
# what it needs first (tools/setup.sh) and may be repeated without the network.

JOBS ?= $(shell nproc)
MODEL ?= models/SmolLM2-135M-Instruct.Q4_1.gguf
PORT ?= 8080
export CCACHE_BASEDIR = $(CURDIR)

.PHONY: all setup ggml-tsan demo serve test unit asan tsan torture fuzz check bench clean
.DEFAULT_GOAL := all

all: build/release/build.ninja
	@cmake --build build/release -j $(JOBS) --target everwarm

setup:
	@tools/setup.sh packages llama models

ggml-tsan: | setup
	@tools/setup.sh ggml_tsan
build/tsan/build.ninja: | ggml-tsan

build/%/build.ninja: CMakePresets.json | setup
	@cmake --preset $* >/dev/null

demo: all
	@python3 tools/demo.py --server build/release/everwarm --model $(MODEL)

serve: all
	@build/release/everwarm serve $(MODEL) --port $(PORT)

# Everything that CI runs.
test: setup build/release/build.ninja
	@tools/setup.sh gemma python
	@cmake --build build/release -j $(JOBS)
	@ctest --test-dir build/release --output-on-failure

# A minute: no model, no server process, no histories.
unit: setup build/release/build.ninja
	@cmake --build build/release -j $(JOBS)
	@ctest --test-dir build/release --output-on-failure -L unit -j $(JOBS)

asan tsan: %: setup build/%/build.ninja
	@cmake --build build/$* -j $(JOBS)
	@ctest --test-dir build/$* --output-on-failure -L 'unit|histories'

# For as long as one likes: make torture SECONDS=3600 KILLS=1000
SECONDS ?= 300
KILLS ?= 100
torture: setup build/release/build.ninja
	@tools/setup.sh python
	@cmake --build build/release -j $(JOBS) --target everwarm torture
	@.deps/python/bin/python tools/torture.py --seconds $(SECONDS) --kills $(KILLS) $(TORTURE)

# Each fuzz target for FUZZ_SECONDS; finds are kept in build/fuzz/found/.
FUZZ_SECONDS ?= 60
fuzz: setup
	@tools/setup.sh fuzz
	@cmake --preset fuzz >/dev/null
	@cmake --build --preset fuzz -j $(JOBS)
	@tools/fuzz.sh build/fuzz $(FUZZ_SECONDS)

# Format, layers, sanitizers: before a change is proposed.
check:
	@tools/check.sh

bench: all
	@tools/setup.sh peers python bench
	@cmake --build build/release -j $(JOBS) --target step_bench kv_quality_bench store_bench stalled_disk
	@.deps/python/bin/python bench/run.py

clean:
	rm -rf build
