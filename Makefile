# From a fresh clone: `make demo` shows what the library does, `make test` checks that it does it.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

DATA ?= data

.PHONY: demo test test-distributed lint types docs pages dist smoke import-time results bench bench-advice bench-compiled bench-gradients bench-adaptive clean

demo: $(STAMP)
	$(BIN)/proxode reproduce all --quick --out demo $(if $(wildcard $(DATA)),--data-dir $(DATA))
	$(BIN)/proxode report demo

# Two workers with one thread each: more threads would only fight over the cores.
test: lint types
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

# The tests over several processes, many times in a row: what depends on who comes first shows.
COUNT ?= 20
test-distributed: $(STAMP)
	for i in $$(seq $(COUNT)); do OMP_NUM_THREADS=1 $(BIN)/pytest -q tests/test_distributed.py || exit 1; done

lint: $(STAMP)
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

# The site, into site/: a warning is an error, and nothing is fetched.
docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/mkdocs build --strict --site-dir site

# The generated tables of the pages, from the reports in docs/results and from the package.
pages: $(STAMP)
	for tool in table verdicts gradients speed work_precision site; do $(BIN)/python tools/paste_$$tool.py || exit 1; done

# Wheel and sdist. Without isolation: a build needs setuptools alone.
dist: $(STAMP)
	rm -rf dist build
	$(BIN)/python -m build --no-isolation --outdir dist .

# Each of them installed into an empty environment, and tried there: first without extras, then with the command.
smoke: dist
	for package in dist/*.whl dist/*.tar.gz; do tools/smoke.sh "$$package" $(PYTHON) || exit 1; done

# Seconds of `import proxode` beyond those of torch.
import-time: $(STAMP)
	$(BIN)/python tools/import_time.py

# The numbers and pictures that the README shows: the paper's setting. What was stopped goes on with RESUME=--resume.
results: $(STAMP)
	$(BIN)/proxode reproduce all --full --out docs/results $(if $(wildcard $(DATA)),--data-dir $(DATA)) $(RESUME)
	mv docs/results/*.png docs/images/
	rm -f docs/results/*.pdf docs/results/*.csv
	$(MAKE) pages

# The numbers and pictures of docs/gradients.md: an hour and a half on two slow cores. DATA is the folder with ms_academic_cs.npz.
bench-gradients: $(STAMP)
	$(BIN)/python -m benchmarks.damped_modes --out docs/results
	$(BIN)/python -m benchmarks.gradients_van_der_pol --out docs/results
	$(BIN)/python -m benchmarks.train_van_der_pol --gradient implicit continuous --out docs/results
	$(BIN)/python -m benchmarks.gradients_memory --out docs/results
	$(BIN)/python -m benchmarks.gradients_coauthor --data-dir $(DATA) --out docs/results
	mv docs/results/*.png docs/images/
	$(BIN)/python tools/paste_gradients.py

# Time, evaluations and memory beside other libraries, on an idle machine; with Coauthor-CS where DATA is there. A run that
# was killed goes on with `make bench RESUME=--resume`.
bench: .venv/.bench
	$(BIN)/python -m benchmarks.speed --out docs/results $(if $(wildcard $(DATA)),--data-dir $(DATA)) $(RESUME)
	mv docs/results/*.png docs/images/
	$(BIN)/python tools/paste_speed.py

# What the pages of advice say of costs that no other benchmark measures: ten minutes on an idle core.
bench-advice: .venv/.bench
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.advice --out docs/results
	$(MAKE) pages

# When compile=True pays: ten minutes, most of them the compiler's.
bench-compiled: .venv/.bench
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.compiled --out docs/results $(if $(wildcard $(DATA)),--data-dir $(DATA))
	$(BIN)/python tools/paste_speed.py

# The numbers and pictures of docs/adaptive.md, beside CVODE, SciPy and torchdiffeq: half an hour on a core.
# A run that was killed goes on with `make bench-adaptive RESUME=--resume`.
bench-adaptive: .venv/.bench
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.work_precision --out docs/results $(RESUME)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.auto_switching --out docs/results $(RESUME)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.dense_threshold --out docs/results $(RESUME)
	mv docs/results/*.png docs/images/
	$(BIN)/python tools/paste_work_precision.py

.venv/.bench: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	touch $@

.venv/.docs: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

clean:
	rm -rf .venv build demo dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
