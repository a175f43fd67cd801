# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The everyday commands; `make` alone lists them. CMake does the building, so
# all of it also works by hand (see CONTRIBUTING.md).

BUILD ?= build
JOBS ?= $(shell nproc)
BUILD_TYPE ?= Release
# APT=no leaves the system's packages alone; ZPP_PYTHON names the Python of .venv.
APT ?= yes
# CUDA=auto builds the CUDA back end where a toolkit and NCCL are found; `make test`
# installs them from PyPI if need be, because it compiles everything. CUDA=yes
# installs them for all commands, CUDA=no builds without.
CUDA ?= auto
ifeq ($(filter auto yes no,$(CUDA)),)
$(error expected CUDA to be auto, yes or no, but got '$(CUDA)')
endif
# A wheel has machine code for all GPUs since Ampere, and PTX for later ones. Where
# there is no GPU, the tests compile to PTX of the oldest alone, in a fifth of the time.
CUDA_ARCHITECTURES ?= $(strip $(if $(filter wheel,$(MAKECMDGOALS)),80-real;90-real;100;120-real,\
  $(if $(filter test test-all,$(MAKECMDGOALS)),$(if $(wildcard /dev/nvidia[0-9]*),,80-virtual))))
# Several sources of a library are compiled together, which takes half as long from
# nothing. UNITY=OFF compiles each by itself, which is faster after small changes.
UNITY ?= ON
# Containers often set it. Then each process of a test compiles all that it imports again.
export PYTHONDONTWRITEBYTECODE =
WITH_CUDA := $(if $(filter yes,$(CUDA)),yes,$(if $(filter auto,$(CUDA)),$(filter test test-all wheel,$(MAKECMDGOALS))))

VENV_PYTHON := $(CURDIR)/.venv/bin/python
PYTHON := ZPP_OPT=$(abspath $(BUILD))/bin/zpp-opt \
  ZPP_XLA=$(abspath $(BUILD))/lib/libzpp_xla.so PYTHONPATH=python $(VENV_PYTHON)
TORCH_PYTHON := ZPP_OPT=$(abspath $(BUILD))/bin/zpp-opt \
  ZPP_RT=$(abspath $(BUILD))/lib/libzpp_rt.so PYTHONPATH=python $(CURDIR)/.venv-torch/bin/python
DEEPSPEED_PYTHON = $(subst .venv-torch,.venv-deepspeed,$(TORCH_PYTHON))
LLVM_BIN := /usr/lib/llvm-22/bin
SETUP := scripts/setup.sh $(if $(filter no,$(APT)),--no-apt) $(if $(WITH_CUDA),--cuda)

# clang and lld, which setup installs, build zpp much faster than g++ and ld, but
# any C++17 compiler does: make CXX=g++. Asked of the shell, when the recipe
# runs, because make would not see what setup has just installed.
have = $(shell command -v $(1))
CMAKE_FLAGS = -DCMAKE_BUILD_TYPE=$(BUILD_TYPE) -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
  -DPython3_EXECUTABLE=$(VENV_PYTHON) -DZPP_UNITY_BUILD=$(UNITY) \
  -DZPP_ENABLE_CUDA=$(if $(filter yes,$(CUDA)),ON,$(if $(filter no,$(CUDA)),OFF,AUTO)) \
  $(if $(MLIR_DIR),-DMLIR_DIR=$(MLIR_DIR)) \
  $(if $(CUDA_ARCHITECTURES),'-DCMAKE_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)') \
  $(if $(call have,ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
ifeq ($(origin CXX),default)
CMAKE_FLAGS += $(if $(call have,$(LLVM_BIN)/clang++), \
  -DCMAKE_C_COMPILER=$(LLVM_BIN)/clang -DCMAKE_CXX_COMPILER=$(LLVM_BIN)/clang++ \
  $(if $(call have,$(LLVM_BIN)/ld.lld), \
    -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld -DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld=lld))
else
CMAKE_FLAGS += -DCMAKE_CXX_COMPILER=$(CXX)
endif

.DEFAULT_GOAL := help
.PHONY: help setup build test test-all test-torch test-deepspeed check check-python gpu-test demo bench lint tidy \
  format sanitize fuzz docs install wheel clean

##@ Start here
help: ## list these commands
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\n%s\n' 'Variables: JOBS=$(JOBS) BUILD=$(BUILD) BUILD_TYPE=$(BUILD_TYPE) APT=$(APT) CUDA=$(CUDA) UNITY=$(UNITY) CXX MLIR_DIR PREFIX'

demo: zpp-opt ## train a small GPT on 8 virtual devices, as written and as ZeRO++
	$(PYTHON) examples/demo.py

test: build ## run the tests; the last line counts them
	$(VENV_PYTHON) scripts/run_tests.py --build $(BUILD) --jobs $(JOBS)

test-all: build ## the same, and those that are slow or repeat others with other parameters
	$(VENV_PYTHON) scripts/run_tests.py --build $(BUILD) --jobs $(JOBS) --all

test-torch: configure ## the tests of zpp.torch and zpp.deepspeed; PyTorch (5.4 GB) goes into .venv-torch
	@$(SETUP) --torch
	cmake --build $(BUILD) --parallel $(JOBS) --target zpp-opt zpp-bundle zpp_rt
	@mkdir -p $(BUILD)/test-results
	@echo 'Those of zpp.deepspeed run beside these; what they print follows'
	$(TORCH_PYTHON) -m pytest -q --durations=3 test/torch & torch=$$!; \
	  { $(SETUP) --deepspeed && $(DEEPSPEED_PYTHON) -m pytest -q --durations=3 -m 'not slow' \
	  test/deepspeed; } > $(BUILD)/test-results/deepspeed.log 2>&1; deepspeed=$$?; \
	  wait $$torch; torch=$$?; cat $(BUILD)/test-results/deepspeed.log; \
	  exit $$((torch ? torch : deepspeed))

test-deepspeed: configure ## those of zpp.deepspeed, with the slow ones: all settings and trainers
	@$(SETUP) --deepspeed
	cmake --build $(BUILD) --parallel $(JOBS) --target zpp-opt zpp-bundle zpp_rt
	$(DEEPSPEED_PYTHON) -m pytest -q --durations=3 test/deepspeed

##@ Develop
setup: ## install what is missing: apt packages, .venv with JAX
	@$(SETUP)

build: configure ## compile everything into build/
	cmake --build $(BUILD) --parallel $(JOBS)

.PHONY: zpp-opt
zpp-opt: configure
	cmake --build $(BUILD) --parallel $(JOBS) --target zpp-opt

# Every time, because variables may have changed; it takes a second.
.PHONY: configure
configure: setup
	cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS)

check: build ## only the compiler's tests: lit and unit tests
	$(VENV_PYTHON) scripts/run_tests.py --build $(BUILD) --jobs $(JOBS) --suite compiler

check-python: build ## only the JAX tests
	$(VENV_PYTHON) scripts/run_tests.py --build $(BUILD) --jobs $(JOBS) --suite python

gpu-test: ## on a host with GPUs, CUDA and CMake, no LLVM: tests, sanitizers, benchmarks
	scripts/run_gpu_suite.sh --build $(BUILD)-gpu $(STEPS)

CXX_SOURCES = $(shell git ls-files '*.h' '*.cpp' '*.cu' '*.cuh')

TOOLS := .venv-tools/bin
lint: ## C++, CUDA, Python, comments and words, as .pre-commit-config.yaml has them
	@$(SETUP) --tools --no-python
	clang-format-22 --dry-run -Werror $(CXX_SOURCES)
	$(TOOLS)/ruff check
	$(TOOLS)/python scripts/check_types.py
	$(TOOLS)/python scripts/check_comments.py
	git ls-files -z | xargs -0 $(TOOLS)/codespell

format: ## rewrite C++ and CUDA sources in the project's format
	@$(SETUP) --tools --no-python
	clang-format-22 -i $(CXX_SOURCES)

tidy: UNITY = OFF
tidy: build ## clang-tidy over the compiler (slow)
	@$(SETUP) --tools --no-python
	run-clang-tidy-22 -quiet -j $(JOBS) -p $(BUILD) '$(CURDIR)/(lib|tools|unittests)/.*'

# MLIR's dylib is not instrumented: what it poisons or allocates, headers that
# are compiled here would report.
sanitize: export ASAN_OPTIONS := allow_user_poisoning=0
sanitize: ## the compiler's tests under address and undefined-behavior sanitizers
	@$(SETUP) --tools
	cmake --preset sanitize -DPython3_EXECUTABLE=$(VENV_PYTHON)
	cmake --build --preset sanitize --parallel $(JOBS)
	$(VENV_PYTHON) scripts/run_tests.py --build build-sanitize --jobs $(JOBS) --suite compiler

FUZZ_SECONDS ?= 600
FUZZERS = mesh links npy wire formats
fuzz: export ASAN_OPTIONS := allow_user_poisoning=0
fuzz: export UBSAN_OPTIONS := halt_on_error=1:print_stacktrace=1
fuzz: zpp-opt ## mutated programs, text and bytes, then random trainings, FUZZ_SECONDS for each
	@$(SETUP) --tools
	cmake --preset sanitize -DPython3_EXECUTABLE=$(VENV_PYTHON) -DZPP_LIBFUZZER=ON
	cmake --build --preset sanitize --parallel $(JOBS) --target zpp-fuzz $(FUZZERS:%=fuzz-%)
	build-sanitize/bin/zpp-fuzz test fuzz/corpus/ir --seconds=$(FUZZ_SECONDS) --time-limit=60 \
	  --jobs=$(JOBS) --keep=build-sanitize/findings
	for name in $(FUZZERS); do \
	  mkdir -p build-sanitize/corpus/$$name && build-sanitize/bin/fuzz-$$name \
	    -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -artifact_prefix=build-sanitize/findings- \
	    build-sanitize/corpus/$$name fuzz/corpus/$$name || exit 1; done
	PYTHONPATH=python $(VENV_PYTHON) fuzz/fuzz_manifest.py --seconds=$(FUZZ_SECONDS)
	$(PYTHON) test/python/programs.py --seconds=$(FUZZ_SECONDS)
	@if [ -x .venv-torch/bin/python ]; then \
	  cmake --build $(BUILD) --parallel $(JOBS) --target zpp-bundle zpp_rt && \
	  $(TORCH_PYTHON) test/torch/programs.py --seconds=$(FUZZ_SECONDS); \
	else echo "no programs of PyTorch, which make test-torch installs"; fi

bench: zpp-opt ## run the experiments that need no GPU, one table each
	$(PYTHON) bench/compile_time.py

docs: zpp-opt ## the documentation as a site, into build/docs/site
	@$(SETUP) --docs
	.venv-docs/bin/python scripts/make_docs.py --build $(BUILD) --site

##@ Install
install: build ## install to PREFIX (default: what CMake says)
	cmake --install $(BUILD) $(if $(PREFIX),--prefix $(PREFIX))

# `pip wheel .` compiles everything anew; this takes what `make build` made, with
# machine code for more GPUs (CUDA_ARCHITECTURES). The name of the wheel says which
# glibc its programs need, so pip refuses it where that is older.
wheel: build ## a wheel of the Python package with all it needs, into build/wheel
	cmake --build $(BUILD) --parallel $(JOBS) --target zpp-wheel
	rm -rf $(BUILD)/wheel
	cmake --install $(BUILD) --component wheel --strip --prefix $(BUILD)/wheel/files > /dev/null
	_PYTHON_HOST_PLATFORM=$$($(VENV_PYTHON) scripts/wheel_platform.py $(BUILD)/wheel/files) && \
	  export _PYTHON_HOST_PLATFORM && \
	  $(VENV_PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps \
	  --no-build-isolation --wheel-dir $(BUILD)/wheel \
	  -C cmake.source-dir=cmake/prebuilt \
	  -C cmake.define.ZPP_BUILD_DIR=$(abspath $(BUILD)) .
	@ls $(BUILD)/wheel/*.whl

clean: ## remove build/; .venv and packages stay
	rm -rf $(BUILD)
