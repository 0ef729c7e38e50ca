# Everything here sets itself up: a fresh machine needs make, and Python 3.11 or newer as `python3`
# (or `make PYTHON=python3.13 ...`).

PYTHON ?= python3
# Twice the number of processors in CI, because many tests wait.
WORKERS ?= $(shell nproc)
PORT ?= 8080
BIN := .venv/bin
# pip 25.1 was the first to know dependency groups.
PIP := $(BIN)/python -m pip --disable-pip-version-check

SEEDS ?= 300
FIRST ?= 1
STORE ?= memory
# runs, schedules, gathering, limits, messages, topics, or several of them
WORKLOAD ?= runs schedules gathering limits messages topics
JOBS ?= 1
MINUTES ?= 60
RUNS ?= 100000
QUEUED ?= 10000
CASES ?= 10000

# Keep compiled modules, even if the environment disables that: every test worker imports all of the tests, and tests
# start processes that import Holdfast again. Collecting the tests takes 6 seconds with compiled modules, 16 without.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo serve test test-slow test-full chaos check lint types imports purity audit format bench bench-server bench-peers bench-page fuzz-server soak simulate mutants mutants-tests coverage screenshots chromium clean

help:
	@echo 'make demo           run the demo pipeline, which kills its own worker'
	@echo 'make serve          serve a shop over HTTP, with a worker and runs in every state [PORT=8080]'
	@echo 'make check          check formatting, lint, generated code, types, import rules and purity of the kernel'
	@echo 'make test           run the fast tests, on SQLite and on a PostgreSQL that only the tests use'
	@echo 'make test-slow      run the slower tests: simulations, packaging, processes, AWS, browser, chaos'
	@echo 'make test-full      run the slow tests and the sized ones at full size, with many examples (an hour)'
	@echo 'make chaos          run the chaos tests at full size (most of an hour)'
	@echo 'make simulate       run the simulator: seeded faults in virtual time'
	@echo '                    [SEEDS=1500] [FIRST=1] [STORE=memory|sqlite] [JOBS=2] [WORKLOAD=runs|schedules|gathering|limits|messages|topics|updates|last_steps]'
	@echo 'make mutants        plant known bugs and check that the simulator finds them'
	@echo '                    [ONLY=name,name] [SEEDS=500] [JOBS=2] [WRITE=1]'
	@echo 'make mutants-tests  plant known bugs and check that the fast tests find them [ONLY=name,name] [JOBS=2]'
	@echo 'make coverage       run the fast tests and report the code that they did not run'
	@echo 'make bench          run the benchmarks'
	@echo 'make bench-server   benchmark the HTTP server [RUNS=1000000] [QUEUED=100000]'
	@echo 'make bench-peers    benchmark Holdfast beside other engines, on one server'
	@echo 'make fuzz-server    send generated requests to a server that runs [CASES=10000] [FIRST=1]'
	@echo 'make soak           run one worker at half of its maximum rate [MINUTES=60]'
	@echo 'make bench-page     rewrite the tables and plots of the documentation from bench-peers and soak'
	@echo 'make screenshots    save an image of each page of the dashboard in .cache/screenshots'
	@echo 'make audit          report known vulnerabilities of the installed packages and of the oldest allowed ones'
	@echo 'make format         rewrite the code to satisfy make check, and generate the async client and the sync client of a server'
	@echo 'make clean          remove everything that make created'

demo: .venv/.demo
	$(BIN)/python docs/examples/stdlib_report/demo.py

serve: .venv/.serve
	@$(BIN)/python -m docs.examples.live_demo --port $(PORT)

test: .venv/.tools .cache/postgres/.ready
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

test-slow: .venv/.tools .cache/postgres/.ready
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m '(slow or other_store) and not chaos'
	$(BIN)/pytest -n 2 --dist worksteal -m chaos

test-full: .venv/.tools .cache/postgres/.ready
	HOLDFAST_TESTS=full $(BIN)/pytest -n $(WORKERS) --dist worksteal -m '(slow or other_store) and not hypothesis and not chaos'
	HOLDFAST_TESTS=full $(BIN)/pytest -n $(WORKERS) --dist worksteal -m '(hypothesis or (sized and not slow and not other_store)) and not chaos' --hypothesis-profile=many

chaos: .venv/.tools .cache/postgres/.ready
	HOLDFAST_CHAOS=full $(BIN)/pytest -m chaos tests/chaos

check: lint types imports purity

lint: .venv/.tools
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m tools.async_facade --check
	$(BIN)/python -m tools.sync_client --check

types: .venv/.tools
	$(BIN)/python -m tools.check_types

imports: .venv/.tools
	$(BIN)/lint-imports

purity: .venv/.tools
	$(BIN)/pytest -q -m '' tests/unit/test_purity.py

# Not part of .ci/run: it needs a service with advisories, and fails when one is published, not when the code changes.
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
	$(BIN)/python -m tools.sync_client

bench-peers: .venv/.tools .cache/postgres/.ready
	$(BIN)/python -m tests.benchmarks.peers --data tests/benchmarks/results/peers.json

soak: .venv/.tools .cache/postgres/.ready
	$(BIN)/python -m tests.benchmarks.soak --minutes $(MINUTES)

bench-page: .venv/.tools
	$(BIN)/python -m tests.benchmarks.page

bench: .venv/.tools .cache/postgres/.ready
	$(BIN)/python -m tests.benchmarks

bench-server: .venv/.tools .cache/postgres/.ready
	$(BIN)/python -m tests.benchmarks.server --runs $(RUNS) --jobs $(QUEUED)

fuzz-server: .venv/.tools
	$(BIN)/python -m tests.fuzz_server --cases $(CASES) --seed $(FIRST)

simulate: .venv/.tools
	set -e; for workload in $(WORKLOAD); do $(BIN)/python -m holdfast.testing.simulation --workload $$workload \
		--seeds $(SEEDS) --first $(FIRST) --store $(STORE) --jobs $(JOBS); done

mutants: .venv/.tools
	$(BIN)/python -m tests.mutants --only '$(ONLY)' --seeds $(if $(findstring command,$(origin SEEDS)),$(SEEDS),500) \
		--jobs $(if $(findstring command,$(origin JOBS)),$(JOBS),2) $(if $(WRITE),--write)

mutants-tests: .venv/.tools .cache/postgres/.ready
	$(BIN)/python -m tests.mutants.by_tests --only '$(ONLY)' \
		--jobs $(if $(findstring command,$(origin JOBS)),$(JOBS),2)

screenshots: .venv/.tools
	$(BIN)/python -m tests.browser.screenshots

# Quiet, and no failure: without a browser, the tests that need one are skipped, and say so.
chromium:
	@for one in "$$HOLDFAST_TEST_CHROMIUM" chromium chromium-browser google-chrome; do \
		command -v "$$one" >/dev/null && exit 0; \
	done; \
	test "$$(id -u)" = 0 && command -v apt-get >/dev/null && { apt-get install -qq -y chromium \
		|| { apt-get update -qq && apt-get install -qq -y chromium; }; } >/dev/null 2>&1 && exit 0; \
	echo 'there is no Chromium: tests in a browser will be skipped'

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

# All that the demo, and the demo of the server, need. `.venv/.package` includes it.
.venv/.demo: .venv/.python pyproject.toml
	$(PIP) install --quiet --editable '.[sqlite]'
	@touch $@

.venv/.serve: .venv/.python pyproject.toml
	$(PIP) install --quiet --editable '.[cli,server,sqlite]'
	@touch .venv/.demo $@

.venv/.package: .venv/.python pyproject.toml
	$(PIP) install --quiet --editable '.[aws,asyncio,nats,postgres,schedules,sqlite,cli,server,testing]'
	@touch .venv/.demo .venv/.serve $@

.venv/.tools: .venv/.package
	$(PIP) install --quiet --group dev
	@touch $@

.cache/postgres/.ready: tools/fetch_postgres.py tools/postgres-requirements.txt | .venv/.python
	$(BIN)/python -m tools.fetch_postgres
	@touch $@
