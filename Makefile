# Everything a clone needs. `make serve` answers requests; `make test` runs what CI runs first; `make help` lists the rest.
# All that is installed lands in .venv; packages come from wherever pip is configured to look.

VENV   := .venv
BIN    := $(VENV)/bin
MODEL  ?= smollm2
NATIVE := build/native
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)

# Tests of different files run side by side, two at a time: most of them wait more than they compute.
# Short files, those of tests/unit, come last. Bytecode is kept whatever the environment says: the program is started
# hundreds of times.
PYTEST       := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
SIDE_BY_SIDE := --numprocesses=2 --dist=loadfile --no-loadscope-reorder

SERVE_FLAGS := $(if $(HOST),--host $(HOST)) $(if $(PORT),--port $(PORT))
NATIVE_SOURCES := CMakeLists.txt $(shell find csrc -type f 2>/dev/null)
CPP_SOURCES := $(shell find csrc -name '*.cpp' -o -name '*.h' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help serve setup native test test-default test-slow programs lint format clean

help:
	@echo "make serve [MODEL=smollm2] [HOST=127.0.0.1] [PORT=8000]   install, fetch the model if missing, serve"
	@echo "make setup       install into $(VENV) only; leaves $(BIN)/freehold"
	@echo "make test        lint and every default test"
	@echo "make test-slow   the tests that take minutes"
	@echo "make lint        ruff, mypy, import contracts, clang-format"
	@echo "make format      rewrite the sources in the project's format"
	@echo "make native      build the native extension in place"
	@echo "make clean       remove $(VENV) and everything built"

serve: setup
	@test -e "$(MODEL)" || $(BIN)/freehold pull "$(MODEL)"
	@exec $(BIN)/freehold serve "$(MODEL)" $(SERVE_FLAGS)

setup: $(VENV)/.installed $(VENV)/.native

native: $(VENV)/.native

test: setup $(VENV)/.test-extras programs
	@$(MAKE) --no-print-directory --jobs=2 lint test-default

test-default: setup $(VENV)/.test-extras
	$(PYTEST) $(SIDE_BY_SIDE)

test-slow: setup $(VENV)/.test-extras programs
	$(PYTEST) $(SIDE_BY_SIDE) -m 'slow and not alone' --timeout=1800
	$(PYTEST) -m 'slow and alone' --timeout=1800

# What some tests drive, where it can be had.
programs:
	@.ci/install chromium chromium
	@.ci/unpack prometheus prometheus

lint: setup $(VENV)/.test-extras
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(if $(CPP_SOURCES),$(BIN)/clang-format --dry-run --Werror $(CPP_SOURCES))

format: $(VENV)/.test-extras
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format
	$(if $(CPP_SOURCES),$(BIN)/clang-format -i $(CPP_SOURCES))

clean:
	rm -rf $(VENV) build dist src/freehold/_native*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The first interpreter that is new enough, can make virtual environments and has its C headers. PYTHON=… overrides.
IS_GOOD := import os, sys, sysconfig, venv, ensurepip; \
  sys.exit(sys.version_info < (3, 11) or not os.path.exists(sysconfig.get_path("include") + "/Python.h"))
$(BIN)/python:
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14 python; do \
	  if $$python -c '$(IS_GOOD)' 2>/dev/null; then \
	    echo "Using $$($$python -c 'import platform, sys; print(sys.executable, platform.python_version())')"; \
	    exec $$python -m venv --clear $(VENV); \
	  fi; \
	done; \
	echo "Freehold needs Python 3.11 or newer with its venv module and C headers, and found none." >&2; \
	echo "Install one (Debian, Ubuntu: apt install python3-venv python3-dev) or name it: make PYTHON=/path/to/python3 …" >&2; \
	exit 1

# Editable without the native part, which is built below: a `git pull` then costs only the objects that changed.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[build]' -C editable.mode=inplace -C wheel.cmake=false
	@touch $@

$(VENV)/.test-extras: pyproject.toml | $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[build,test,lint]' -C editable.mode=inplace -C wheel.cmake=false
	@touch $@

$(VENV)/.native: $(NATIVE_SOURCES) $(VENV)/.installed
	@command -v $${CXX:-c++} >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || { \
	  echo "Freehold needs a C++20 compiler, and found none (Debian, Ubuntu: apt install g++)." >&2; exit 1; }
	@# A CMake cache made elsewhere, or by another interpreter, is of no use.
	@test -d $(NATIVE) && ! grep -qs 'HOME_DIRECTORY:INTERNAL=$(CURDIR)$$' $(NATIVE)/CMakeCache.txt && rm -rf $(NATIVE) || true
	@echo "Compiling the native kernels (about a minute)…"; mkdir -p $(NATIVE); \
	{ $(BIN)/cmake -S . -B $(NATIVE) -G Ninja -DCMAKE_BUILD_TYPE=Release \
	    -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python \
	    -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir) && \
	  $(BIN)/cmake --build $(NATIVE) -j $(JOBS) && \
	  $(BIN)/cmake --install $(NATIVE) --prefix src; \
	} >$(NATIVE)/build.log 2>&1 || { cat $(NATIVE)/build.log >&2; exit 1; }
	@touch $@
