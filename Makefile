# On a machine with Python (3.10 or later) and make, each target does its own set-up in $(VENV).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# pip finds a CPU build of the pinned torch; a newer one would bring gigabytes of CUDA along.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test check bench clean

demo: $(VENV)/.lab
	$(BIN)/multimix demo

# Half of the tests beside the other, since most of them use one core; what the first says comes after the second is done.
SECOND := $(addprefix tests/lab/,evaluation evaluators nets recipes reporting sweep tables training)
test: check
	@rest=$$(mktemp); $(BIN)/python -m pytest $(SECOND:%=--ignore=%) --ignore-glob='tests/lab/test_*.py' >$$rest 2>&1 & first=$$!; \
	$(BIN)/python -m pytest $(SECOND) tests/lab/test_*.py; lab=$$?; \
	wait $$first; others=$$?; cat $$rest; rm -f $$rest; \
	test $$lab -eq 0 -a $$others -eq 0

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(PIP) --no-deps timm==1.0.30
	$(BIN)/python benchmarks/mixing.py
	$(PIP) --no-deps gco-wrapper==3.0.9
	$(BIN)/python benchmarks/masks.py
	$(BIN)/python benchmarks/comixup.py
	$(BIN)/python benchmarks/memory.py

clean:
	rm -rf $(VENV) build dist multimix-demo multimix-digits multimix-look multimix-points multimix-runs multimix-variance

$(VENV)/.lab: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -e ".[lab]"
	touch $@

$(VENV)/.dev: $(VENV)/.lab
	$(PIP) -e ".[dev]"
	touch $@
