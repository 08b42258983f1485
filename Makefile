# Two set-up commands: `make map` and `make test`. Wheels only, no compiler.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
JOB ?= examples/llama3-8b-16gpu.yaml
PYTEST_ARGS ?=
WORKERS ?= 2

.PHONY: map test lint types check-format tests clean

map: $(VENV)/installed
	$(BIN)/meshwright map $(JOB)

test: lint types tests

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed-dev
	$(BIN)/mypy

tests: $(VENV)/installed-dev
	$(BIN)/pytest -q -n $(WORKERS) $(PYTEST_ARGS)

$(VENV)/created:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/installed: $(VENV)/created pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --only-binary :all: click msgspec numpy PyYAML hatchling editables
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
