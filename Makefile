# Everything runs in a virtual environment of its own; nothing is needed first but Python 3.11 and make.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
# Of the tests: with EXTRAS=test,mpi those of MPI run as well.
EXTRAS ?= test
BIN := $(VENV)/bin
PIP := $(VENV)/bin/python -m pip --quiet --disable-pip-version-check

# One file of tests to one process, as their fixtures are shared within a file.
PYTEST := $(BIN)/python -m pytest -p no:cacheprovider -n auto --maxprocesses 4 --dist loadfile

.PHONY: help play test test-all fuzz bench check docs docs-site notebooks wheel colab lab browser clean
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

test: $(VENV)/.test  ## run the tests, of the exhaustive suites one case of each kind
	$(PYTEST) -m "not slow"

test-all: $(VENV)/.test  ## run every test, with many more examples of each property
	$(PYTEST) --hypothesis-profile=full

# Of fuzzing: seconds in all.
FUZZ ?= 60

fuzz: $(VENV)/.test  ## read changed traces, submissions, notebooks, annotations and replies of a worker for FUZZ seconds
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ)

bench: $(VENV)/.test  ## print the speed of the runtime, as ratios within one run
	$(BIN)/python -m tests.bench.runtime
	$(BIN)/python -m tests.bench.layout

check: $(VENV)/.check  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.play  ## draw the pictures of the README and of docs/pictures.md again, and list the papers
	PYTHONPATH=. $(BIN)/python docs/gallery.py
	PYTHONPATH=. $(BIN)/python docs/papers.py

docs-site: $(VENV)/.with-docs  ## build the documentation as a site, in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet -f docs/site/mkdocs.yml
	@echo "Open build/site/index.html, or serve it: $(BIN)/mkdocs serve -f docs/site/mkdocs.yml"

notebooks: $(VENV)/.test  ## make the notebooks from their sources, for players and, in solved/, for teachers; and the wheel for Colab
	$(BIN)/puzzles notebook notebooks --force
	$(BIN)/puzzles notebook notebooks/solved --solved --force
	$(PIP) wheel --no-deps --wheel-dir notebooks .

wheel: $(VENV)/.play  ## build the wheel, in dist
	$(PIP) wheel --no-deps --wheel-dir dist .

colab: notebooks  ## run the solved notebooks where nothing but Jupyter is installed, as in Colab: from the wheel
	$(BIN)/python -m tests.support.fresh_jupyter notebooks

lab: $(VENV)/.browser  ## open fresh copies of the notebooks in JupyterLab; copies that are there already are kept
	@test -e my_notebooks || $(BIN)/puzzles notebook my_notebooks
	$(BIN)/jupyter lab my_notebooks

browser: $(VENV)/.browser  ## pictures, pages and JupyterLab in a real browser: needs chromium and chromedriver
	$(BIN)/python -m pytest -rs tests/browser/test_web_pages.py tests/browser/test_jupyterlab.py

clean:  ## remove all that was made: environments, pictures, notebooks, wheels, the site, caches
	rm -rf $(VENV) .venv-* pictures build dist notebooks/*.ipynb notebooks/*.whl notebooks/solved \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Training Puzzles needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); $(PYTHON) -m pip install --quiet --user virtualenv && $(PYTHON) -m virtualenv --quiet $(VENV); }

$(VENV)/.play: $(VENV)/bin/python pyproject.toml
	$(PIP) install --editable .
	@touch $@

# One stamp for each extra, so that a target installs what it needs, also when EXTRAS has changed.
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
