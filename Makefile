# TideQ's commands. `make` alone lists them.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help install tools up test check format maps schema generate bench lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Create .venv with everything the project and its tests import

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "TideQ needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

tools: ## Fetch what only some tests need (Debian: redis-server); those tests say so when it is missing
	@if command -v redis-server >/dev/null; then echo "redis-server is here"; \
	elif command -v apt-get >/dev/null; then \
	  $$([ "$$(id -u)" = 0 ] || echo sudo) sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-server'; \
	else echo "install redis-server 7 or later with your package manager"; fi

up: install ## Run everything on this machine, with its data in ./data, until Ctrl-C
	$(BIN)/tideq up --data-dir data

test: check ## Everything that must pass: check, then every test suite
	$(BIN)/python -m pytest

check: install ## Lint and type-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --warnings

format: install ## Put the code into its one format
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

maps: install ## Draw the pictures and tables in the READMEs anew
	$(BIN)/python -m tests.architecture.maps

schema: install ## Write down what the migrations add up to
	$(BIN)/python -m tests.history.schema

generate: install ## Make the blocking client out of the asynchronous one
	$(BIN)/python tideq/client/generate.py

bench: install ## Measure the queue core and the service over HTTP, and print a report (QUICK=1 for a short one)
	$(BIN)/python -m bench $(if $(QUICK),--quick)

lock: ## Resolve dependencies anew into requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --all-extras --group dev --upgrade pyproject.toml --output-file requirements.lock

clean: ## Remove everything that was built or installed here
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build dist
