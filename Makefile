# Every target makes the virtual environment it needs; only Python 3.11 (or newer) and make are assumed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
KERNELS := $(wildcard src/dptune/*/*.c src/dptune/*/*.h)
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all format lint types bench docs clean

demo: $(VENV)/.core
	@echo "What does trying about twenty configurations cost? DP-SGD, 60,000 records, batch 256, 10 epochs, noise 1.1:"
	@$(BIN)/dptune price --base dpsgd:0.0042666666666666667,1.1,2344 --runs geometric:20 --delta 1e-5
	@echo "And now a real one: tune and train on digits within epsilon 3, everything counted."
	@$(BIN)/dptune demo

test: $(VENV)/.dev lint types
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: $(VENV)/.dev lint types
	$(BIN)/python -m pytest -n 2 --dist worksteal --hypothesis-profile=explore

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/tightness.py
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/federated.py
	@if [ -z "$$DPTUNE_DATA" ]; then echo "no training benchmarks: set DPTUNE_DATA (docs/training.md)"; else \
	  $(BIN)/python benchmarks/training.py && $(BIN)/python benchmarks/executors.py && \
	  for what in compare table tune secure; do $(BIN)/python benchmarks/training_accuracy.py $$what || exit 1; done; fi
	$(BIN)/python benchmarks/audit.py

docs: $(VENV)/.dev
	$(BIN)/python docs/figures.py
	$(BIN)/python docs/drawings.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html."

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt $(KERNELS)
	$(PIP) -e . "jinja2>=3.1"
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) torch
	$(PIP) -e ".[dev,docs,torch,ray,flower,report,tables,sklearn]"
	@touch $@

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache build src/*.egg-info src/dptune/*/*.so
