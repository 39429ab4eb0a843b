# The only entry point: what people and CI run is the same.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv up openb check lint types contracts kubernetes cluster test docs bench picture \
  soak lock changelog clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

venv: .venv/ready ## make the Python environment .venv from the hashed locks

.venv/ready: requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

up: venv ## start a living platform: 24 simulated nodes, six teams; without a terminal, one day of it
	$(BIN)/shoal up --demo $(UP)

openb: venv ## fill a real 6,212-GPU cluster under our policy and every published one
	$(BIN)/shoal simulate \
	  --nodes examples/openb/nodes.csv --pods examples/openb/pods.csv \
	  --policy random,dot-product,clustering,packing,best-fit,fgd,fragmentation \
	  --seeds 42 --report build/report

lint: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: venv
	$(BIN)/mypy

contracts: venv
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry --no-ansi src

check: lint types contracts ## the fast part: formatting, lint, types, contracts, unit tests (under a minute)
	env -u SHOAL_DATA SHOAL_PROFILE=check $(PYTEST) -n 2 -m "not long and not slow and not cluster"

kubernetes: venv ## build the real Kubernetes that the cluster tests start (once, minutes)
	$(BIN)/python -m tests.cluster.harness.binary

cluster: kubernetes ## start a Kubernetes with fake nodes to play with, until Ctrl-C (see docs/cluster.md)
	$(BIN)/python -m tests.cluster.harness.play $(CLUSTER)

test: lint types contracts docs kubernetes ## everything; data tests need SHOAL_DATA
	$(PYTEST) -n 2 --dist loadgroup -m "not slow"

soak: venv ## what takes hours: a million stateful steps, thousands of examples of every property
	$(BIN)/python -m tests.soak $(SOAK)

bench: venv ## measure, and fill the README's table and picture; needs SHOAL_DATA
	$(BIN)/python -m benchmarks $(BENCHES)
	$(if $(BENCHES),,$(MAKE) picture)

picture: venv ## draw the README's picture: the openb example, ten seeds, ours and the published policies
	$(BIN)/shoal simulate \
	  --nodes examples/openb/nodes.csv --pods examples/openb/pods.csv \
	  --policy dot-product,clustering,packing,best-fit,fgd,fragmentation,random \
	  --seeds 42-51 --report build/picture
	mkdir -p docs/assets
	cp build/picture/allocation.svg docs/assets/openb.svg

docs: venv ## build the documentation into build/docs
	scripts/docs

lock: ## resolve pyproject.toml into requirements/*.txt, with hashes
	scripts/lock

changelog: venv ## show the changelog of the next release
	$(BIN)/towncrier build --draft

clean: ## remove everything that can be made again
	rm -rf .venv build dist site .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
