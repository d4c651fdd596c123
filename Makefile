# The two commands of the README are `make run` and `make test`; both make the environment first.

VENV   ?= .venv
# `make EXTRAS=dev` leaves out all libraries but TensorFlow: their targets say that they aren't there.
# What was chosen once is remembered in the environment; the default is dev,all
EXTRAS ?=
TESTS  ?= tests
BIN    := $(VENV)/bin
# processes that run tests: `make test JOBS=1` for one, whose output is in the order of the tests
JOBS   ?= auto
# the bytecode of tests is kept (git ignores it), also where the shell says PYTHONDONTWRITEBYTECODE:
# every process rewrites and compiles all of them otherwise, which takes 10 seconds of each
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(JOBS) --maxprocesses 8 --dist loadfile
# the first of these that starts and is Python 3.11 or later; pyenv's are found where PATH's aren't active
PYENV  := $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions
MINE   := $(PYTHON)
override PYTHON := $(shell for p in $(if $(MINE),$(MINE) $(PYENV)/$(patsubst python%,%,$(MINE)).*/bin/python,\
	python3.11 python3.12 python3.13 python3 python $(PYENV)/3.1[1-3].*/bin/python); do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)

.DEFAULT_GOAL := help
.PHONY: help python install run test check slow lint types notebooks format constraints dist site clean

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

python:
	@echo $(PYTHON)

install: ## make the environment in .venv, by uv where there is one, else by pip
	@test -n "$(PYTHON)" || { echo "make: there is no $(or $(MINE),Python 3.11 or later) that starts; \
	install one, or say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) install.py --venv $(VENV) $(if $(EXTRAS),--extras $(EXTRAS)) $(if $(MINE),--anew)

run: install ## measure the report that this project started from; build/run gets results and notebook
	@$(BIN)/probe run prefix_stability --out build/run $(if $(QUICK),-- --quick)

test: install ## the tests that take seconds, on all cores
	$(PYTEST) -m 'not slow' $(TESTS)

check: install ## the inner loop, under a minute: lint, and the tests that catch most of what breaks
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(PYTEST) -m 'check and not slow' $(TESTS)

slow: install ## the tests that take minutes
	$(PYTEST) -m slow $(TESTS)

lint: install ## ruff, on notebooks too
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: install ## mypy
	$(BIN)/python -m mypy

notebooks: install ## execute every notebook against the committed results, into a folder thrown away
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	for notebook in notebooks/*.ipynb; do \
	test -e "$$notebook" || continue; echo "executing $$notebook"; \
	$(BIN)/python -m nbconvert --log-level ERROR \
	--ExecutePreprocessor.extra_arguments=--IPKernelApp.log_level=ERROR --to notebook --execute --output-dir "$$out" \
	"$$notebook" || exit 1; done

site: ## the site in build/site, of static files: docs, API reference, notebooks, explorer
	@$(MAKE) -s install EXTRAS=+site
	$(BIN)/python docs/site/build.py
	@echo "open build/site/index.html; its tests: $(BIN)/python -m pytest tests/house/test_site.py"

constraints: install ## resolve constraints.txt anew, for all Pythons; UPGRADE=1 takes the newest of all
	$(BIN)/python .ci/constraints.py $(if $(UPGRADE),--upgrade)

dist: ## the sdist and the wheels of both distributions in dist/, checked, with their SHA-256
	@$(MAKE) -s install EXTRAS=+release
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m build --wheel --outdir dist core
	$(BIN)/python -m twine check --strict dist/*
	cd dist && sha256sum * >SHA256SUMS

clean: ## remove the environment and all caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
