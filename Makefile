# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Processes that share the tests: one more than cores, because daemons wait for timers; at most eight.
WORKERS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 7 ? cores + 1 : 8)))
SHARED := -n $(WORKERS) --dist worksteal --durations 10
LAB := tests/simulation tests/unit/lab tests/unit/tools/bench
# Compiled modules are kept. Otherwise each worker and each daemon of the tests compiles all of them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test test-lab test-all test-gpu check format proto settings bench docs clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)

demo: install  ## five daemons on the built-in images, then the table
	$(BIN)/fednode mesh demo

test: install  ## the node's tests
	$(BIN)/python -m pytest $(SHARED) $(addprefix --ignore=,$(LAB))

test-lab: install  ## the laboratory's tests: the simulator, experiments, notebooks, benches
	$(BIN)/python -m pytest $(SHARED) $(LAB)

test-all: install  ## everything but what needs a GPU
	$(BIN)/python -m pytest -m "not gpu" --hypothesis-profile=thorough

test-gpu: install  ## what needs a GPU: every policy, every kind of model, and daemons
	$(BIN)/python -m pytest -m gpu -rs

check: install  ## lint, format, types, generated code, the site
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/python -m tools.protogen --check
	$(BIN)/python -m tools.settings --check
	$(MAKE) --no-print-directory docs

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: install  ## regenerate node/fednode/wire/gen from proto/
	$(BIN)/python -m tools.protogen

settings: install  ## write node.yaml, schemas, docs/settings.md and docs/commands.md from the code
	$(BIN)/python -m tools.settings

bench: install  ## speed and memory of this machine
	for name in tuning wire mesh scale merges start; do $(BIN)/python -m tools.bench.$$name; done

docs: install  ## the site, in build/docs
	$(BIN)/python -m sphinx -q -W -b html docs build/docs

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov
