# Everything runs in a virtual environment of its own. You need only Python 3.11+ and make.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
# For the tests; EXTRAS=test,mpi runs those of MPI too.
EXTRAS ?= test
BIN := $(VENV)/bin
PIP := $(VENV)/bin/python -m pip --quiet --disable-pip-version-check

# One process runs a whole file of tests, because the tests of a file share fixtures; the files are ordered by us.
PYTEST := $(BIN)/python -m pytest -p no:cacheprovider -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# Bytecode is kept also where the environment forbids it, as container images often do: hundreds of processes start in the
# tests, and each would compile the project again.
test gate test-all: export PYTHONDONTWRITEBYTECODE :=

.PHONY: help play serve test gate test-all nightly mutate hunt fuzz bench check screens docs docs-site site site-archive notebooks wheel packages address release colab lab \
	browser site-test site-gate clean
.NOTPARALLEL:

help:  ## list the targets
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

play: $(VENV)/.play  ## set everything up, show a solved puzzle, and say what to type next
	@mkdir -p pictures
	@$(BIN)/puzzles draw solutions/gpipe.py gpipe --text -o pictures/gpipe.svg
	@printf '%s\n' '' 'This is a solved puzzle, a pipeline on four ranks; the file is its picture.' 'Your turn:' \
		'  $(BIN)/puzzles next                     write the first puzzle to my_solutions.py' \
		'  $(BIN)/puzzles watch my_solutions.py    grade it on every save; h gives a hint, n adds the next puzzle' \
		'  $(BIN)/puzzles path                     show the way from here to a cluster'

serve: site/.training-puzzles-site  ## open the game in your browser, from this machine; needs node and npm
	$(BIN)/python -m puzzles.page --serve

# The tests in a browser have targets of their own.
test: $(VENV)/.test  ## run the tests; of each exhaustive suite only a few cases
	$(PYTEST) --ignore=tests/browser -m "not slow" --ran=$(VENV)/.ran

# Another commit has another tenth of the slow tests.
GATE := --ran=$(VENV)/.ran --gate=$(or $(SEED),$(shell git rev-parse HEAD 2>/dev/null),0)

# The site's tests have a target of their own, since each file's tests build on what the browser keeps.
gate: $(VENV)/.test  ## run what `make test` skipped, and a tenth of the slow tests; SEED=name chooses another
	$(PYTEST) --hypothesis-profile=half --durations=20 --ignore=tests/browser $(GATE)

test-all: $(VENV)/.test  ## run every test, with many more examples
	$(PYTEST) --hypothesis-profile=full --durations=40

nightly:  ## run all that .ci/run leaves out, and end with a row for each step; takes about two and a half hours
	bash .ci/nightly

# Of the mutations: those whose file or words have this text, such as MUTATIONS=grading/judge.
MUTATIONS ?=

mutate: $(VENV)/.test  ## try the mutations of tests/mutate, and print which quick tests catch each; takes 20 minutes on 2 cores
	$(BIN)/python -m tests.mutate $(if $(MUTATIONS),"$(MUTATIONS)")

# Of the hunt: the puzzles, such as HUNT="fsdp zb_h1"; by default all.
HUNT ?=

hunt: $(VENV)/.test  ## try mutants of all references and textbook orders; print what beats a record or passes with other figures
	$(BIN)/python -m tests.mutate --records $(HUNT)

# Of fuzzing: seconds in all; SEED=1 tries the same inputs again.
FUZZ ?= 60

fuzz: $(VENV)/.test  ## read changed traces, submissions, notebooks, annotations and replies of a worker for FUZZ seconds
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ) $(if $(SEED),--seed $(SEED))

bench: $(VENV)/.test  ## print the speed of the runtime, layouts and engine, as ratios within one run; EXTRAS=test,mpi for MPI
	$(BIN)/python -m tests.bench.runtime
	$(BIN)/python -m tests.bench.layout

check: $(VENV)/.check  ## check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

screens: $(VENV)/.test  ## write what commands print, and what pictures and reports say, to tests/screens, to be read in the diff
	$(BIN)/python -m tests.screens

docs: $(VENV)/.test  ## redraw the pictures of README.md and docs/pictures.md, map puzzles and papers, measure docs/truth.md, docs/mindspore.md and, with jax, docs/xla.md
	PYTHONPATH=. $(BIN)/python docs/generate/gallery.py
	PYTHONPATH=. $(BIN)/python docs/generate/screens.py
	PYTHONPATH=. $(BIN)/python docs/generate/listings.py
	PYTHONPATH=. $(BIN)/python docs/generate/field.py
	PYTHONPATH=. $(BIN)/python docs/generate/expresses.py
	PYTHONPATH=. $(BIN)/python docs/generate/truth.py
	PYTHONPATH=. $(BIN)/python docs/generate/xla.py
	PYTHONPATH=. $(BIN)/python docs/generate/mindspore_page.py

docs-site: $(VENV)/.with-docs  ## build the documentation site in build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet -f docs/site/mkdocs.yml
	@echo "Open build/site/index.html, or serve it: $(BIN)/mkdocs serve -f docs/site/mkdocs.yml"

site: $(VENV)/.play  ## build the game for the browser in site; needs node and npm
	$(BIN)/python -m puzzles.page

site-archive: $(VENV)/.play  ## build the site and pack it in build/training-puzzles-site.zip, with numpy; needs node and npm
	$(BIN)/python -m puzzles.page --archive build/training-puzzles-site.zip

site/.training-puzzles-site: $(VENV)/.play $(shell find lib drawing puzzles solutions -type f -not -name '*.pyc')
	$(BIN)/python -m puzzles.page

notebooks: $(VENV)/.test  ## build the notebooks, solved ones for teachers too, and the wheel for Colab
	$(BIN)/puzzles notebook notebooks --force
	$(BIN)/puzzles notebook notebooks/solved --solved --force
	$(PIP) wheel --no-deps --wheel-dir notebooks .

wheel: $(VENV)/.play  ## build the wheel in dist
	$(PIP) wheel --no-deps --wheel-dir dist .

packages: $(VENV)/.with-release  ## build wheel and source distribution in dist, and check them
	rm -rf dist
	$(BIN)/python -m hatchling build --directory dist
	$(BIN)/python -m twine check --strict dist/*

address: $(VENV)/.test  ## ORG=name sets the public address on GitHub in all files; without ORG, removes it
	PYTHONPATH=. $(BIN)/python docs/generate/address.py $(ORG)
	@$(MAKE) --no-print-directory notebooks

release: $(VENV)/.with-release $(VENV)/.test  ## VERSION=1.2.3 checks, builds, tests, commits and tags a version
	$(BIN)/python puzzles/package/release.py $(VERSION)

colab: notebooks  ## run the solved notebooks from the wheel, with only Jupyter installed, as in Colab
	$(BIN)/python -m tests.support.fresh_jupyter notebooks

lab: $(VENV)/.browser  ## open the notebooks in my_notebooks with JupyterLab; existing ones are kept
	@test -e my_notebooks || $(BIN)/puzzles notebook my_notebooks
	$(BIN)/jupyter lab my_notebooks

browser: $(VENV)/.browser  ## test pictures, pages and JupyterLab in a browser; needs chromium and chromedriver
	$(BIN)/python -m pytest -rs tests/browser/test_web_pages.py tests/browser/test_jupyterlab.py

SITE_TESTS := $(addprefix tests/browser/test_,site.py site_attacks.py site_keeping.py site_versions.py site_axe.py site_numpy.py jupyterlite.py)

site-test: $(VENV)/.browser site  ## test the site in a browser; needs chromium and chromedriver, node and npm
	$(BIN)/python -m pytest -rs $(SITE_TESTS)

# The core path from its first puzzle to its last, and all notebooks, take as long as fifty other tests.
site-gate: $(VENV)/.browser site  ## test the site's main page, and a third of its other tests; SEED=name chooses another
	$(BIN)/python -m pytest -rs --durations=10 $(GATE) -k "not every_notebook and not the_core_path_is_played" $(SITE_TESTS)

clean:  ## remove everything that was built: environments, pictures, notebooks, wheels, caches
	rm -rf $(VENV) .venv-* pictures build dist site notebooks/*.ipynb notebooks/*.whl notebooks/solved \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Training Puzzles needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); $(PYTHON) -m pip install --quiet --user virtualenv && $(PYTHON) -m virtualenv --quiet $(VENV); }

$(VENV)/.play: $(VENV)/bin/python pyproject.toml
	$(PIP) install --editable .
	@touch $@

# One stamp per extra, so that a target installs what it needs even after EXTRAS changes. Each installs the game as well,
# because a second call of pip takes ten seconds.
$(VENV)/.with-%: $(VENV)/bin/python pyproject.toml
	$(PIP) install --editable '.[$*]'
	@touch $(VENV)/.play $@

comma := ,
extras = $(addprefix $(VENV)/.with-,$(subst $(comma), ,$(strip $(1))))

$(VENV)/.test: $(call extras,$(EXTRAS))
	@touch $@

$(VENV)/.check: $(call extras,test$(comma)check)
	@touch $@

$(VENV)/.browser: $(call extras,test$(comma)notebook$(comma)browser)
	@touch $@
