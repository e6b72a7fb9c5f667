# From a fresh clone: `make demo` shows what the library does, `make test` checks that it does it.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test lint types results clean

demo: $(STAMP)
	$(BIN)/proxode demo

# Two workers with one thread each: more threads would only fight over the cores.
test: lint types
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

lint: $(STAMP)
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

# The numbers and the picture that the README shows.
results: $(STAMP)
	$(BIN)/proxode demo --out docs/results
	$(BIN)/proxode inner --out docs/results
	mv docs/results/*.png docs/images/
	$(BIN)/python tools/paste_table.py

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

clean:
	rm -rf .venv build demo .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
