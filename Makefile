# `make run` and `make test` set up everything they need in .venv, once, and again when the requirements change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
REQUIREMENTS := pyproject.toml constraints.txt $(wildcard setup.py) $(wildcard src/tacit/*/*.c)

.DEFAULT_GOAL := help
.PHONY: help run test lint bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.ready ## Set up and train the default job: the CNN on MNIST over 10 clients
	$(BIN)/tacit run $(ARGS)

test: lint ## Set up, then lint, types, tests and doctests
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

lint: $(VENV)/.ready-test ## Set up, then ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready-test ## Run the benchmarks; results go to benchmarks/results
	$(BIN)/python benchmarks/simulation/compare.py $(ARGS)

clean: ## Remove the environment and build outputs
	rm -rf $(VENV) build src/*.egg-info .mypy_cache .ruff_cache .pytest_cache

# torch goes first and alone, so that no other package's range chooses another build of it.
$(VENV)/.ready: $(REQUIREMENTS)
	@echo "Setting up $(VENV) (about a minute and a half; only when the requirements change)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) torch
	@$(PIP) --editable .
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	@$(PIP) --editable '.[test]'
	@touch $@
