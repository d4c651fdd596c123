# The two commands of the README are `make run` and `make test`; both make the environment first.

VENV   ?= .venv
# `make EXTRAS=dev` leaves out all libraries but TensorFlow: their targets say that they aren't there
EXTRAS ?= dev,all
TESTS  ?= tests
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# the first of these that is there and is Python 3.11 or later
PYTHON ?= $(shell for p in python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

.DEFAULT_GOAL := help
.PHONY: help install run test slow lint types notebooks format constraints clean

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

install: $(STAMP) ## make the environment in .venv

# uv where there is one (it is faster), else pip; both take the versions of constraints.txt.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: there is no Python 3.11 or later; install one, or say \
	make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(BIN)/python -c '' 2>/dev/null || { echo "making $(VENV) with $(PYTHON)"; \
	$(PYTHON) -m venv --clear $(VENV) || uv venv --seed --clear --python "$(PYTHON)" $(VENV); }
	@if uv --version >/dev/null 2>&1 && \
	UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" \
	uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[$(EXTRAS)]'; then :; else \
	$(BIN)/python -m ensurepip --upgrade >/dev/null 2>&1; \
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[$(EXTRAS)]'; fi
	@touch $(STAMP)

run: $(STAMP) ## measure, write parquet, execute the notebook, print a summary
	@$(BIN)/probe run prefix_stability

test: $(STAMP) ## the tests that take seconds
	$(BIN)/python -m pytest -m 'not slow' $(TESTS)

slow: $(STAMP) ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

lint: $(STAMP) ## ruff, on notebooks too
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP) ## mypy
	$(BIN)/python -m mypy

notebooks: $(STAMP) ## execute every notebook against the committed results, into a folder thrown away
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	for notebook in notebooks/*.ipynb; do \
	test -e "$$notebook" || continue; echo "executing $$notebook"; \
	$(BIN)/python -m nbconvert --log-level ERROR \
	--ExecutePreprocessor.extra_arguments=--IPKernelApp.log_level=ERROR --to notebook --execute --output-dir "$$out" \
	"$$notebook" || exit 1; done

constraints: $(STAMP) ## pin what is installed in .venv now
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	$(BIN)/python -m pip freeze --all --exclude-editable --exclude pip | \
	sed 's/+[a-z0-9.]*$$//' | tr "A-Z_" "a-z-" | LC_ALL=C sort > constraints.txt

clean: ## remove the environment and all caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
