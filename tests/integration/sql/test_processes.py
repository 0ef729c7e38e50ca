"""Several processes on one database."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.schema.migrator import newest_version
from holdfast.ports.changes import Insert
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.queries.store import CountAll, SchemaVersion
from holdfast.testing.conformance.builders import NAMESPACE, a_run

OpenStore = Callable[..., SqlPersistence]

SETUP = """
import alembic.command
from holdfast.adapters.sql.persistence import SqlPersistence

def main(url):
    store = SqlPersistence(url)
    store.setup()
    store.close()
"""

# Each process counts up the same run's `last_row`, and adds runs of its own.
HAMMER = """
from attrs import evolve
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.ports.changes import Insert, Update
from holdfast.ports.tables import RUNS
from holdfast.testing.conformance.builders import a_key, a_row, a_run

def main(url, first, times):
    store = SqlPersistence(url)
    def work(number):
        def count(tx):
            (run,) = tx.lock(RUNS, [a_key(1)])
            tx.apply([
                Update(evolve(run, last_row=run.last_row + 1)),
                Insert(a_row(run.key, run.last_row + 1)),
                Insert(a_run(number)),
            ])
        store.transact(count)
    for number in range(first, first + times):
        work(number)
    store.close()
"""

# What is imported is imported once: to start four interpreters takes longer than all that they do.
TOGETHER = """
import json, os, sys, traceback
children = []
for given in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        try:
            main(*given)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)
    children.append(child)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def run(program: str, *arguments: str) -> None:
    """Run a program in a process of its own, and print its errors."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def run_together(program: str, *arguments: Sequence[object]) -> None:
    """Call the program's `main` with each list of arguments, concurrently, each in its own process."""
    run(program + TOGETHER, json.dumps(arguments))


@pytest.mark.slow
def test_processes_that_set_up_the_same_database_do_not_disturb_each_other(
    url: str, open_store: OpenStore
) -> None:
    run_together(SETUP, *[[url]] * 4)

    assert open_store(url).read(SchemaVersion()) == newest_version()


@pytest.mark.slow
def test_processes_that_write_the_same_row_lose_nothing(store: SqlPersistence, url: str) -> None:
    store.transact(lambda tx: tx.apply([Insert(a_run(1))]))

    run_together(HAMMER, *([url, 1_000 * process, 40] for process in (1, 2, 3, 4)))

    run = store.read(FindRun(a_run(1).name))
    assert run is not None
    assert run.last_row == 160
    assert store.read(CountAll(NAMESPACE)).runs == {"running": 161}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(sys, "platform") or sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_uses_connections_of_its_own(store: SqlPersistence, url: str) -> None:
    store.transact(lambda tx: tx.apply([Insert(a_run(1))]))
    program = f"""
import os, warnings
warnings.simplefilter("ignore")
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.ports.changes import Insert
from holdfast.testing.conformance.builders import a_run
store = SqlPersistence({url!r})
store.transact(lambda tx: tx.apply([Insert(a_run(2))]))
child = os.fork()
if child == 0:
    try:
        store.transact(lambda tx: tx.apply([Insert(a_run(3))]))
        os._exit(0)
    finally:
        os._exit(1)
assert os.waitpid(child, 0)[1] == 0
store.transact(lambda tx: tx.apply([Insert(a_run(4))]))
store.close()
"""
    run(program)

    assert store.read(CountAll(NAMESPACE)).runs == {"running": 4}
