# make run, make test, make lint: each sets up what it needs first, in .venv.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

.PHONY: run test test-unit lint clean

run: $(READY)
	$(VENV)/bin/chaos run replica-lost

test: $(READY)
	$(VENV)/bin/python -m pytest

# Seconds, no torch job: what to run while editing.
test-unit: $(READY)
	$(VENV)/bin/python -m pytest tests/unit tests/contract

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[training,dev]'
	touch $(READY)

# What dead runs left on this machine, then what was built here.
clean:
	-$(VENV)/bin/chaos clean
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
