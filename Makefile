# Every target sets itself up in .venv from nothing but Python 3.11+ and the package index.
#
#   make demo     the whole way from a descriptor to a verified product, no GPU needed
#   make test     all tests (those that need a GPU skip with the reason)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV   := .venv
READY  := $(VENV)/.ready
PY     := $(VENV)/bin/python
JOBS   ?= 2

# The oldest NVRTC that blasdx supports; PyTorch 2.13 and 2.14 pin exactly this one.
NVRTC_OLDEST := 13.0.88
NVRTC_DIR    := .nvrtc/$(NVRTC_OLDEST)

.PHONY: help setup demo test test-nvrtc-oldest lint format docs build clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

setup: $(READY) ## .venv with everything below in it

demo: $(READY) ## from a descriptor to a verified product, no GPU needed
	$(PY) tools/demo.py

test: $(READY) ## all tests
	$(PY) -m pytest -n $(JOBS) $(PYTEST_ARGS)

test-nvrtc-oldest: $(READY) $(NVRTC_DIR)/.ready ## the compile tests with the oldest supported NVRTC
	$(PY) -m pytest -n $(JOBS) tests/compile --nvrtc $(NVRTC_DIR) $(PYTEST_ARGS)

lint: $(READY) ## formatting, lint, types, import contracts
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

format: $(READY) ## let ruff write what it can
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

docs: $(READY) ## the documentation in docs/_build
	$(PY) -m pip install --quiet --group docs
	$(PY) -m sphinx -W -b html docs docs/_build

build: $(READY) ## wheel and sdist in dist/
	$(PY) -m hatchling build

clean: ## everything that the targets above made
	rm -rf $(VENV) .nvrtc dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml
	@set -e; for python in $${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do \
	  if command -v $$python >/dev/null && $$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    [ -x $(PY) ] || $$python -m venv $(VENV); break; \
	  fi; \
	done
	@[ -x $(PY) ] || { echo "blasdx needs Python 3.11 or newer with its venv module; name one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	$(PY) -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(PY) -m pip install --quiet --editable '.[cupy,sass,cli]' --group test --group lint
	@touch $@

$(NVRTC_DIR)/.ready: | $(READY)
	$(PY) -m pip install --quiet --no-deps --upgrade --target $(NVRTC_DIR) nvidia-cuda-nvrtc==$(NVRTC_OLDEST)
	@touch $@
