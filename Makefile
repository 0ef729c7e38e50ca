# Everything here sets itself up: a fresh machine needs make, and Python 3.11 or newer as `python3`
# (or `make PYTHON=python3.13 ...`).

PYTHON ?= python3
# Twice as many as the processors that CI has: tests wait, too.
WORKERS ?= 4
BIN := .venv/bin
# pip 25.1 was the first to know dependency groups.
PIP := $(BIN)/python -m pip --disable-pip-version-check

SEEDS ?= 300
FIRST ?= 1
STORE ?= memory
JOBS ?= 1
MINUTES ?= 60

# Each worker of the tests imports them all, and tests start processes that import it all again: what is compiled is
# kept, even where the environment says otherwise. To collect the tests takes 6 seconds then, and 16 without.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-slow chaos check lint types imports purity audit format bench bench-peers bench-page soak simulate mutants mutants-tests coverage clean

help:
	@echo 'make demo       run the first example'
	@echo 'make check      formatting, lint, generated code, types, import rules, purity of the kernel'
	@echo 'make test       the fast tests, on SQLite and on a PostgreSQL of their own'
	@echo 'make test-slow  the tests that take minutes: packaging, AWS, chaos, and the fast ones that have a full size'
	@echo 'make chaos      the chaos tests in their full form, most of an hour'
	@echo 'make bench      the benchmarks'
	@echo 'make bench-peers   Holdfast beside what people would pick instead, on one server'
	@echo 'make soak [MINUTES=60]   one worker at half of what it can do, for long: is everything flat?'
	@echo 'make bench-page   tables and plots of the documentation, from what the last two have measured'
	@echo 'make simulate SEEDS=1500 FIRST=1 [STORE=memory|sqlite] [JOBS=2]   seeds of faults, in virtual time'
	@echo 'make mutants [ONLY=name,name] [SEEDS=500] [JOBS=2] [WRITE=1]   bugs that are planted, and must be found'
	@echo 'make audit      what is known to be unsafe of what is installed, and of the oldest that may be'
	@echo 'make mutants-tests [ONLY=name,name] [JOBS=2]   the second list of them, which the fast tests must catch'
	@echo 'make format     rewrite the code as `make check` wants it, and generate the async client'
	@echo 'make coverage   the fast tests, with a report of what they did not run'
	@echo 'make clean      remove everything that make built'

demo: .venv/.package
	$(BIN)/python docs/examples/stdlib_report/demo.py

test: .venv/.tools .cache/postgres/.ready
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

test-slow: .venv/.tools .cache/postgres/.ready
	HOLDFAST_TESTS=full $(BIN)/pytest -n 3 -m 'slow and not chaos'
	$(BIN)/pytest -m chaos
	HOLDFAST_TESTS=full $(BIN)/pytest -n $(WORKERS) -m '(hypothesis or sized) and not slow and not chaos' --hypothesis-profile=many

chaos: .venv/.tools .cache/postgres/.ready
	HOLDFAST_CHAOS=full $(BIN)/pytest -m chaos tests/chaos

check: lint types imports purity

lint: .venv/.tools
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m tools.async_facade --check

types: .venv/.tools
	$(BIN)/python -m tools.check_types

imports: .venv/.tools
	$(BIN)/lint-imports

purity: .venv/.tools
	$(BIN)/pytest -q -m '' tests/unit/test_purity.py

# Not part of .ci/run: it needs a service that knows of advisories, and fails when one is published, not when we change.
audit: .venv/.tools
	$(PIP) install --quiet --group audit
	@mkdir -p .cache
	$(BIN)/python -m tools.floors > .cache/floors.txt
	$(BIN)/pip-audit --progress-spinner off --no-deps --disable-pip --requirement .cache/floors.txt
	$(BIN)/pip-audit --progress-spinner off --local --skip-editable

format: .venv/.tools
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format
	$(BIN)/python -m tools.async_facade

bench-peers: .venv/.tools .cache/postgres/.ready
	$(BIN)/python -m tests.benchmarks.peers --data tests/benchmarks/results/peers.json

soak: .venv/.tools .cache/postgres/.ready
	$(BIN)/python -m tests.benchmarks.soak --minutes $(MINUTES)

bench-page: .venv/.tools
	$(BIN)/python -m tests.benchmarks.page

bench: .venv/.tools .cache/postgres/.ready
	$(BIN)/python -m tests.benchmarks

simulate: .venv/.tools
	$(BIN)/python -m holdfast.testing.simulation --seeds $(SEEDS) --first $(FIRST) --store $(STORE) --jobs $(JOBS)

mutants: .venv/.tools
	$(BIN)/python -m tests.mutants --only '$(ONLY)' --seeds $(if $(findstring command,$(origin SEEDS)),$(SEEDS),500) \
		--jobs $(if $(findstring command,$(origin JOBS)),$(JOBS),2) $(if $(WRITE),--write)

mutants-tests: .venv/.tools .cache/postgres/.ready
	$(BIN)/python -m tests.mutants.by_tests --only '$(ONLY)' \
		--jobs $(if $(findstring command,$(origin JOBS)),$(JOBS),2)

coverage: .venv/.tools .cache/postgres/.ready
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine
	$(BIN)/coverage report

clean:
	rm -rf .venv .cache dist build .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer: make PYTHON=python3.13 ...")'
	$(PYTHON) -m venv --clear .venv
	$(PIP) install --quiet --upgrade 'pip>=25.1'
	@touch $@

.venv/.package: .venv/.python pyproject.toml
	$(PIP) install --quiet --editable '.[aws,asyncio,nats,postgres,sqlite,cli,testing]'
	@touch $@

.venv/.tools: .venv/.package
	$(PIP) install --quiet --group dev
	@touch $@

.cache/postgres/.ready: tools/fetch_postgres.py tools/postgres-requirements.txt | .venv/.python
	$(BIN)/python -m tools.fetch_postgres
	@touch $@
