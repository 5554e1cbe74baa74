# Everything runs in a virtual environment of its own; you need only Python 3.11+ and make.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
# Extras for the tests; with EXTRAS=test,mpi the MPI tests run too.
EXTRAS ?= test
BIN := $(VENV)/bin
PIP := $(VENV)/bin/python -m pip --quiet --disable-pip-version-check

# One process runs a whole test file, because fixtures are shared within a file.
PYTEST := $(BIN)/python -m pytest -p no:cacheprovider -n auto --maxprocesses 4 --dist loadfile

.PHONY: help play test test-all bench check docs docs-site notebooks wheel colab lab browser clean
.NOTPARALLEL:

help:  ## list the targets
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

play: $(VENV)/.play  ## grade the reference solutions and draw them
	$(BIN)/puzzles grade solutions
	@mkdir -p pictures
	@for slug in basic grad_accum ddp wsdp fsdp pipeline gpipe pipeline_fsdp; do \
		$(BIN)/puzzles draw solutions/$$slug.py $$slug -o pictures/$$slug.svg || exit 1; \
	done
	@echo
	@echo "The pictures are in pictures/. Your turn: $(BIN)/puzzles start"

test: $(VENV)/.test  ## run the tests, with one case of each kind from the exhaustive suites
	$(PYTEST) -m "not slow"

test-all: $(VENV)/.test  ## run every test, with many more examples per property
	$(PYTEST) --hypothesis-profile=full

bench: $(VENV)/.test  ## print the speed of the runtime, as ratios within one run
	$(BIN)/python -m tests.bench.runtime
	$(BIN)/python -m tests.bench.layout

check: $(VENV)/.check  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.play  ## redraw the pictures of the README and docs/pictures.md, and list the papers
	PYTHONPATH=. $(BIN)/python docs/gallery.py
	PYTHONPATH=. $(BIN)/python docs/papers.py

docs-site: $(VENV)/.with-docs  ## build the documentation site in build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet -f docs/site/mkdocs.yml
	@echo "Open build/site/index.html, or serve it: $(BIN)/mkdocs serve -f docs/site/mkdocs.yml"

notebooks: $(VENV)/.test  ## build the notebooks, for players and (in solved/) for teachers, and the wheel for Colab
	$(BIN)/puzzles notebook notebooks --force
	$(BIN)/puzzles notebook notebooks/solved --solved --force
	$(PIP) wheel --no-deps --wheel-dir notebooks .

wheel: $(VENV)/.play  ## build the wheel in dist
	$(PIP) wheel --no-deps --wheel-dir dist .

colab: notebooks  ## run the solved notebooks from the wheel, with only Jupyter installed, as in Colab
	$(BIN)/python -m tests.support.fresh_jupyter notebooks

lab: $(VENV)/.browser  ## open copies of the notebooks in JupyterLab; existing copies are kept
	@test -e my_notebooks || $(BIN)/puzzles notebook my_notebooks
	$(BIN)/jupyter lab my_notebooks

browser: $(VENV)/.browser  ## test pictures, pages and JupyterLab in a real browser; needs chromium and chromedriver
	$(BIN)/python -m pytest -rs tests/browser/test_web_pages.py tests/browser/test_jupyterlab.py

clean:  ## remove everything that was built: environments, pictures, notebooks, wheels, the site, caches
	rm -rf $(VENV) .venv-* pictures build dist notebooks/*.ipynb notebooks/*.whl notebooks/solved \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Training Puzzles needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); $(PYTHON) -m pip install --quiet --user virtualenv && $(PYTHON) -m virtualenv --quiet $(VENV); }

$(VENV)/.play: $(VENV)/bin/python pyproject.toml
	$(PIP) install --editable .
	@touch $@

# One stamp per extra, so that a target installs what it needs, even after EXTRAS has changed.
$(VENV)/.with-%: $(VENV)/.play
	$(PIP) install --editable '.[$*]'
	@touch $@

comma := ,
extras = $(addprefix $(VENV)/.with-,$(subst $(comma), ,$(strip $(1))))

$(VENV)/.test: $(call extras,$(EXTRAS))
	@touch $@

$(VENV)/.check: $(call extras,test$(comma)check)
	@touch $@

$(VENV)/.browser: $(call extras,test$(comma)notebook$(comma)browser)
	@touch $@
