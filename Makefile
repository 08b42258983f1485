# Two set-up commands: `make map` and `make test`. Wheels only, no compiler.
PYTHON ?= python3
VENV ?= .venv
ORACLES_VENV ?= $(VENV)-oracles
BIN = $(VENV)/bin
JOB ?= examples/llama3-8b-16gpu.yaml
PYTEST_ARGS ?=
WORKERS ?= 2

.PHONY: map test lint types check-format tests oracles clean

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

# The original frameworks (torch, megatron-core, DeepSpeed, transformers, jax) in an environment of their own,
# about 1.8 GB, and the tests that ask them.
oracles: $(VENV)/installed-dev $(ORACLES_VENV)/installed
	MESHWRIGHT_REQUIRE_ORACLES=1 MESHWRIGHT_ORACLES_PYTHON=$(abspath $(ORACLES_VENV))/bin/python \
	$(BIN)/pytest -q $(PYTEST_ARGS) tests/oracles

$(ORACLES_VENV)/installed: tests/oracles/requirements.txt
	$(PYTHON) -m venv $(ORACLES_VENV)
	$(ORACLES_VENV)/bin/pip install --quiet --disable-pip-version-check --only-binary :all: \
	--requirement tests/oracles/requirements.txt
	$(ORACLES_VENV)/bin/pip install --quiet --disable-pip-version-check --no-build-isolation \
	--only-binary :all: --no-binary deepspeed 'deepspeed==0.19.8'
	touch $@

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
	rm -rf $(VENV) $(ORACLES_VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
