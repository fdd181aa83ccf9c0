# Every target sets up what it needs in .venv; the set-up runs again only when pyproject.toml or csrc/ change.
#
#   make demo | test | lint | bench | clean
#
# Variables: PYTHON (3.11 or newer), DALI (cuda120 | cuda130), GPUAUG_CUDA_ARCHS (compute capabilities to compile for),
# TRAIN (images for make bench).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.PHONY: demo test lint bench clean setup installed

PYTHON ?= $(or $(shell command -v python3.11),python3)
DALI ?= cuda120
# One architecture compiles in seconds: this machine's GPU, or 9.0 where there is none.
GPUAUG_CUDA_ARCHS ?= $(or $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u | paste -sd ';'),90)
export GPUAUG_CUDA_ARCHS

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
NATIVE_SOURCES := $(shell find csrc -name CMakeFiles -prune -o \( -name CMakeLists.txt -o -name '*.h' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.cu' \) -print)

demo: setup
	$(BIN)/gpuaug demo

test: setup
	GPUAUG_REQUIRE_NATIVE=1 $(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	if command -v clang-format >/dev/null; then clang-format --dry-run --Werror $(filter %.h %.cuh %.cpp %.cu,$(NATIVE_SOURCES)); \
	else echo "clang-format is not installed: csrc/ not checked"; fi

# What this machine can run, one after the other; TRAIN=/data/train measures on your own JPEGs, which
# benchmarks/training.py needs. Documents and charts are left in build/bench; one that fails does not stop the others.
BENCH := $(BIN)/python -m benchmarks
bench: setup
	mkdir -p build/bench
	failed=; run() { echo "== $$1"; "$${@:2}" --json build/bench/$$1.json || failed="$$failed $$1"; }; \
	run loader $(BIN)/gpuaug bench loader $(if $(TRAIN),--data.train $(TRAIN)) --data.batch_size 256 \
	  --data.dtype bfloat16 --chart build/bench/loader.png; \
	run augment $(BIN)/gpuaug bench augment --chart build/bench/augment.png; \
	run detection $(BENCH).detection; \
	run scan $(BENCH).scan; \
	run callbacks $(BENCH).callbacks; \
	run formats $(BENCH).formats $(if $(TRAIN),--folder $(TRAIN)); \
	if $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then \
	  run loaders $(BENCH).loader $(if $(TRAIN),--train $(TRAIN)); \
	  run recipes $(BENCH).recipes $(if $(TRAIN),--train $(TRAIN)); \
	  run doctor $(BENCH).doctor $(if $(TRAIN),--train $(TRAIN)); \
	  run normalize $(BENCH).normalize; \
	  $(if $(TRAIN),run training $(BENCH).training --train "$(TRAIN)",echo "training needs images: make bench TRAIN=/data/train"); \
	else echo "loaders, recipes, doctor, normalize and training need a GPU: not run"; fi; \
	test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

# torch's headers come first; from then on the libraries compile while pip installs the rest. GPUAUG_NATIVE=0: no libraries.
setup:
	@$(MAKE) --no-print-directory --jobs=2 installed

installed: $(VENV)/.packages $(if $(filter 0,$(GPUAUG_NATIVE)),,$(VENV)/.native)
	@:

$(VENV)/.torch: pyproject.toml
	@echo "setting up $(VENV): a few minutes the first time"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip "scikit-build-core>=0.11" "cmake>=3.26" "ninja>=1.11"
	$(PIP) --no-deps "torch>=2.11"
	touch $@

$(VENV)/.packages: $(VENV)/.torch
	GPUAUG_NATIVE=0 $(PIP) --no-build-isolation -C editable.mode=redirect --editable ".[$(DALI),dev]"
	touch $@

# Leaves the libraries in lightning_gpuaug/_native. A job a core, and neither more (pip works beside it) nor fewer (MAKEFLAGS: this
# make has two).
$(VENV)/.native: $(VENV)/.torch $(NATIVE_SOURCES)
	PATH="$(abspath $(BIN)):$$PATH" cmake -S csrc -B build/native -G Ninja --log-level=NOTICE \
	  -DPython_EXECUTABLE="$(abspath $(BIN)/python)"
	MAKEFLAGS= $(BIN)/cmake --build build/native --parallel $$(nproc)
	touch $@

clean:
	rm -rf $(VENV) build dist lightning_gpuaug/_native gpuaug_demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
