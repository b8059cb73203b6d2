# Every target makes the virtual environment it needs; only Python 3.11 (or newer) and make are assumed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all format lint types bench docs clean

demo: $(VENV)/.core
	@$(BIN)/dptune demo

test: $(VENV)/.dev lint types
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: $(VENV)/.dev lint types
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/tightness.py
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/federated.py

docs: $(VENV)/.dev
	$(BIN)/python docs/figures.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) torch
	$(PIP) -e ".[dev,torch,ray,flower,report]"
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build src/*.egg-info src/dptune/training/*.so
