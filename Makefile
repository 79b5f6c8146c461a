# make help lists the targets. Everything happens in .venv and packages/; no step by hand.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := packages/demo
EXTRA  ?= cpu
PROMPT ?= Give me three tips for writing clear documentation.

# The import names come from setuptools' package-dir mapping, which mypy does not read:
# a folder of links shows it the same tree.
TYPING := build/typing
PARTS  := engines runtime export cli

# What an install depends on: it compiles the native CPU operators where there is a compiler.
INSTALLED_BY := pyproject.toml setup.py scripts/install.py scripts/native_library.py \
                $(wildcard engines/native/source/*)

.DELETE_ON_ERROR:
.PHONY: help demo test test-fast lint docs pictures wheelhouse clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

demo: $(DEMO)/specdec.json ## from a bare clone: install, export the demo pair, generate
	$(BIN)/specdec-run $(DEMO) --prompt "$(PROMPT)" --max-new-tokens 128 --stats

test: lint ## lint, then every test
	$(BIN)/python -m pytest

test-fast: $(VENV)/.installed-dev ## the tests that need no export and no compiler, under a minute
	$(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/.installed-dev ## ruff, the import contracts, mypy
	$(BIN)/ruff check .
	mkdir -p $(TYPING)/specdec
	for part in $(PARTS); do ln -sfn $(CURDIR)/$$part $(TYPING)/specdec/$$part; done
	PYTHONPATH=$(TYPING) $(BIN)/lint-imports --no-cache
	MYPYPATH=$(TYPING) $(BIN)/mypy $(PARTS:%=-p specdec.%)
	MYPYPATH=$(TYPING) $(BIN)/mypy benchmarks scripts examples

docs: $(VENV)/.installed-dev ## the documentation as a site, build/site; dead links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: $(DEMO)/specdec.json ## docs/images from the demo package; on a machine that does nothing else
	$(BIN)/specdec-inspect $(DEMO) --measure short --save
	$(BIN)/python scripts/pictures.py $(DEMO)

wheelhouse: | $(BIN)/python ## dist/ and wheelhouse/: all that EXTRA (cpu, cuda) needs, without a network
	rm -rf dist wheelhouse
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(BIN)/python -m pip download --quiet --dest wheelhouse "$$(ls dist/*.whl)[$(EXTRA)]"

clean: ## remove the environment, the demo package and every build output
	rm -rf $(VENV) packages build dist wheelhouse *.egg-info engines/native/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(INSTALLED_BY) | $(BIN)/python
	$(BIN)/python scripts/install.py
	touch $@

$(VENV)/.installed-dev: $(INSTALLED_BY) | $(BIN)/python
	$(BIN)/python scripts/install.py --dev
	touch $@ $(VENV)/.installed

# Written anew when the code that makes packages changes.
$(DEMO)/specdec.json: $(VENV)/.installed $(wildcard export/*.py export/*/*.py)
	mkdir -p $(dir $(DEMO))
	$(BIN)/specdec-export --target demo --draft self --draft-precision int8 --out $(DEMO) --overwrite
