# `make test` and `make demo` do all the set-up themselves; `make install` does it alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install test check demo docs clean

install: $(STAMP)

# pip with the constraints file: every version is pinned there, torch to its CPU build.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

test: install
	$(BIN)/python -m pytest -n 2

# Lint, types and the documentation's build.
check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

demo: install
	$(BIN)/diptych demo

docs: install
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis build
