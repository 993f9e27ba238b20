# On a machine with Python (3.10 or later) and make, each target does its own set-up in $(VENV).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# pip finds a CPU build of the pinned torch; a newer one would bring gigabytes of CUDA along.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

MAKEFLAGS += --jobs=2

.PHONY: test-versions demo test test-all check compile docs docs-tables study package bench bench-all soak clean

demo: $(VENV)/.lab
	$(BIN)/multimix demo

# `test` is for every change, `test-all` has the slow tests as well. The kernels are compiled beside the checks, before any test:
# otherwise every worker would compile them for itself.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
test: check compile
	$(PYTEST) -m "not slow"

test-all: check compile
	$(PYTEST)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

compile: $(VENV)/.dev
	$(BIN)/python -c "import multimix; multimix.warmup()"

# The site, in site/: open site/index.html, no server needed. The variable silences an advertisement of the theme.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# Wheel and sdist, and what a user does with them: installed without this folder, they must run.
CLEAN ?= build/clean
package: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv --clear $(CLEAN)
	$(CLEAN)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt torch==2.13.0 "$$(echo dist/*.whl)[lab]"
	cd $(CLEAN) && bin/multimix demo --quick && bin/multimix list methods

# The pages of docs/study.md again, from the rows of its runs that are kept in the repository.
study: $(VENV)/.lab
	rm -rf build/study && mkdir -p build/study
	tar -xJf docs/study/runs.tar.xz -C build/study
	$(BIN)/multimix report build/study --out build/study-report

docs-tables: $(VENV)/.lab
	$(BIN)/python tools/generate.py

# One line for every demand, met or missed; the tables behind them: bench-all.
bench: $(VENV)/.dev
	$(PIP) --no-deps timm==1.0.30 gco-wrapper==3.0.9
	$(BIN)/python benchmarks/goals.py

bench-all: bench
	$(BIN)/python benchmarks/mixing.py
	$(BIN)/python benchmarks/masks.py
	$(BIN)/python benchmarks/comixup.py
	$(BIN)/python benchmarks/memory.py

# Proof at scale, hours on one core, each part by itself with e.g. SOAK="--kills 20 --calls 0 --steps 0 --runs 0 --flips 0".
soak: compile
	$(BIN)/python tools/soak.py $(SOAK)

# The core tests with other versions of torch, in an environment each; gigabytes of CUDA libraries come along.
VERSIONS ?= 2.6.0 2.15.0
test-versions:
	for version in $(VERSIONS); do \
	    $(PYTHON) -m venv --clear $(VENV)-versions && $(VENV)-versions/bin/python -m pip install --quiet torch==$$version && \
	    $(VENV)-versions/bin/python -m pip install --quiet -e ".[lab]" pytest hypothesis && \
	    $(VENV)-versions/bin/python -m pytest $(CORE_TESTS) -m "not slow" || exit 1; \
	done
CORE_TESTS = tests/core tests/geometry tests/methods/test_laws.py tests/methods/test_conformance.py \
    $(filter-out %/test_cards.py %/test_package.py %/test_readme.py %/test_site.py %/test_soak.py, $(wildcard tests/test_*.py))

clean:
	rm -rf $(VENV) build dist site multimix-demo multimix-look multimix-report multimix-runs multimix-variance

$(VENV)/.lab: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -e ".[lab]"
	touch $@

$(VENV)/.docs: $(VENV)/.lab
	$(PIP) -e ".[docs]"
	touch $@

$(VENV)/.dev: $(VENV)/.lab
	$(PIP) -e ".[dev]"
	touch $@
