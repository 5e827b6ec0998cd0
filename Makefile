# make demo: train Snake, evaluate it, film it.   make test: everything that must hold.   make help: the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help setup demo test test-workloads test-core test-slow test-gpu test-torch faults release-check lint format bench clean

help:
	@echo "make demo       train Snake on this machine until it visibly plays, evaluate it, write demo.gif"
	@echo "make setup      make .venv and install Lockstep into it"
	@echo "make docs       the documentation as a site of its own, in site/"
	@echo "make test       all tests (minutes)      make test-slow   the long campaigns"
	@echo "make test-gpu   what needs an NVIDIA GPU make test-torch TORCH=2.11.0   the tests of ranks with another torch"
	@echo "make faults     plant every fault, count, write the table in docs/guarantees.md (hours)"
	@echo "make release-check  what must hold before a version is published, a line for each check"
	@echo "make lint       ruff and mypy            make bench       snake beside its peer; benchmarks/README.md has the rest"

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# torch first and pinned: a plain 'torch' asked for by another package could pull another build.
	$(INSTALL) torch
	$(INSTALL) -e .
	@touch $@

$(DEV_STAMP): $(STAMP)
	$(INSTALL) -e ".[dev,docs,sb3,onnx,video,plots,pettingzoo,control,parquet,optuna]"
	@touch $@

setup: $(STAMP)

demo: $(STAMP)
	$(BIN)/python benchmarks/demo.py

test: $(DEV_STAMP)
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy
	@# Most tests keep one core busy, so two halves run at once. make test PYTEST="-k words" for some of them.
	$(MAKE) --no-print-directory -j2 --output-sync=line test-workloads test-core

HALF := tests/workloads tests/distributed tests/golden

test-workloads:
	$(BIN)/python -m pytest $(HALF) $(PYTEST)

test-core:
	$(BIN)/python -m pytest $(HALF:%=--ignore=%) $(PYTEST)

test-slow: $(DEV_STAMP)
	$(BIN)/python -m pytest -m slow

test-gpu: $(DEV_STAMP)
	$(BIN)/python -m pytest -m gpu

# Another torch in an environment of its own: the tests that start ranks, restart them and resume, then every workload.
TORCH ?= 2.11.0
OTHER := .venv-torch-$(TORCH)
OTHER_INSTALL := $(OTHER)/bin/pip install --quiet --disable-pip-version-check -c $(OTHER)/constraints.txt
RANKS := tests/launch tests/distributed tests/compute/test_torch_private.py tests/faults

$(OTHER)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(OTHER)
	sed 's/^torch==.*/torch==$(TORCH)/' constraints.txt > $(OTHER)/constraints.txt
	$(OTHER_INSTALL) torch
	$(OTHER_INSTALL) -e ".[control,pettingzoo,parquet]" pytest pytest-timeout hypothesis
	@touch $@

test-torch: $(OTHER)/.installed
	$(OTHER)/bin/python -m pytest $(RANKS) $(PYTEST) > $(OTHER)/tests.log || { cat $(OTHER)/tests.log; exit 1; }
	$(OTHER)/bin/python benchmarks/torch_versions.py --write --tests "$$(tail -n 1 $(OTHER)/tests.log)"

faults: $(DEV_STAMP)
	$(BIN)/python benchmarks/fault_campaign.py --write

# RELEASE=--borrow takes the packages of .venv instead of installing them anew: quicker, and works offline.
release-check: $(STAMP)
	$(INSTALL) -e ".[release]"
	$(BIN)/python release/check.py $(RELEASE)

lint: $(DEV_STAMP)
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: $(DEV_STAMP)
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

bench: $(DEV_STAMP)
	$(BIN)/lockstep bench snake --ranks 1,2 --against sb3
	$(BIN)/python benchmarks/snake_env.py

DOCS_STAMP := $(VENV)/.installed-docs

$(DOCS_STAMP): $(STAMP)
	$(INSTALL) -e ".[docs]"
	@touch $@

.PHONY: docs
docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html; for its search: $(BIN)/python -m http.server --directory site --bind 127.0.0.1"

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
