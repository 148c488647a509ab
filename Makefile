# `make frontier` and `make test` do everything, installs included.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: frontier reproduce test test-fast lint docs bench

frontier: $(READY)  ## the default study; options by ARGS="--task tense"
	$(BIN)/python studies/l0_frontier.py $(ARGS)

reproduce: $(READY)  ## every study on the embedded default, then docs/reproduction.md
	$(BIN)/python tools/reproduce.py $(ARGS)

PARALLEL := --numprocesses logical --maxprocesses 4

test: test-fast  ## fast tests first, then those that start servers, then those that start Ray
	$(BIN)/python -m pytest -m slow $(PARALLEL) --dist worksteal
	$(BIN)/python -m pytest -m ray

test-fast: $(READY)  ## the fast tests and the examples in docstrings
	$(BIN)/python -m pytest -m "not slow and not ray" $(PARALLEL) --dist loadfile
	$(BIN)/python -m pytest --doctest-modules bermo_ray

lint: $(READY)  ## what pre-commit runs too
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY)  ## the site, in build/site; a broken link is an error
	$(BIN)/mkdocs build --strict --quiet

bench: $(READY)
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $(READY)
