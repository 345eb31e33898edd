# TideQ's commands. `make` alone lists them.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help install tools up test quick check format maps schema generate bench peers profile chaos chaos-planted upgrade-planted blind-spots sbom audit lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Create .venv with everything the project and its tests import, and build the dashboard
	@$(BIN)/python -m tideq.api.dashboard.build

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "TideQ needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

tools: install ## Fetch what only some tests need, into .tools; those tests say so when it cannot be had
	@$(BIN)/python -m tests.tools

up: install ## Run everything on this machine, with its data in ./data, until Ctrl-C
	$(BIN)/tideq up --data-dir data

# Tests mostly wait for processes they started: two at a time, files as they are, so that a file's fixtures start once.
# Thousands of them race real processes against real clocks: a few that fail are tried once more, by themselves and named.
# Such a name is a defect to mend, in the test or in the code, not noise to live with.
# Checking computes and tools are fetched: side by side, on two cores.
test: ## Everything that must pass: check, then every test suite
	@$(MAKE) --no-print-directory --jobs=2 check tools
	@$(BIN)/python -m tests.everything

quick: install ## A first look in under a minute: pure functions, scripts and the queue's contract on one store, a tour
	@$(BIN)/python -m pytest --numprocesses 2 -k "not redis7 and not cluster and not fakeredis" tests/unit tests/lua tests/tour tests/contract

check: install ## Lint and type-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --warnings

format: install ## Put the code into its one format
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

maps: install ## Draw the pictures and tables in the READMEs and docs/architecture.md anew, and the chart's list of settings
	$(BIN)/python -m tests.architecture.maps
	$(BIN)/python -m tests.architecture.journeys
	$(BIN)/python -m tests.helm.generated

schema: install ## Write down what the migrations add up to
	$(BIN)/python -m tests.history.schema

generate: install ## Make the blocking client out of the asynchronous one
	$(BIN)/python tideq/client/generate.py

bench: install ## Measure the queue core and the service over HTTP, and print a report (QUICK=1 for a short one)
	$(BIN)/python -m bench $(if $(QUICK),--quick)

peers: install ## Measure TideQ beside other queues, each in an environment of its own under .peers (QUICK=1: 7 minutes, SHORT=1: 20)
	$(BIN)/python -m bench.peers --write-docs $(if $(QUICK),--quick) $(if $(SHORT),--short)

profile: install ## Where TideQ's own time goes, by library, into docs/performance.md
	$(BIN)/python -m bench.peers.profile --write-docs

chaos: install ## Half an hour under fire: kills, full disks, lost stores (CHAOS_SECONDS, CHAOS_SEED, CHAOS_WITHOUT, CHAOS_LEVEL=smoke|long|soak)
	$(BIN)/python -m tests.chaos

chaos-planted: install ## Put mistakes into copies of the tree, and see that the chaos harness finds each, and nothing in the tree itself (half an hour)
	$(BIN)/python -m tests.chaos.planted

upgrade-planted: install ## Put incompatible changes into copies of the tree, and see that the rolling upgrade finds each (10 minutes)
	$(BIN)/python -m tests.upgrade.planted

blind-spots: install ## Put each mistake that no test found once into a copy of the tree, and see that its test fails now (10 minutes)
	$(BIN)/python -m tests.blind_spots

sbom: install ## Write what the image is made of as CycloneDX, to build/sbom.cdx.json
	$(BIN)/python deploy/sbom.py build/sbom.cdx.json

audit: install ## Look up known vulnerabilities of everything that is locked (asks a public database)
	deploy/audit.sh requirements.image.lock requirements.lock

lock: ## Resolve dependencies anew into requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --all-extras --group dev --upgrade pyproject.toml --output-file requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --extra grpc --constraint requirements.lock pyproject.toml --output-file requirements.image.lock

clean: ## Remove everything that was built or installed here
	rm -rf .venv api/dashboard/static api/dashboard/web/node_modules .tools .pytest_cache .ruff_cache .hypothesis .peers build dist
