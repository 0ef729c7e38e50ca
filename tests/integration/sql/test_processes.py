"""Several processes on one database."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.schema import newest_version
from holdfast.ports.changes import CreateRun
from holdfast.ports.persistence import CountAll, FindRun, SchemaVersion
from holdfast.testing.conformance.builders import NAMESPACE, a_run

OpenStore = Callable[..., SqlPersistence]

SETUP = """
import sys
from holdfast.adapters.sql.persistence import SqlPersistence
store = SqlPersistence(sys.argv[1])
store.setup()
store.close()
"""

# Each process counts up the same run's `last_row`, and adds runs of its own.
HAMMER = """
import sys
from attrs import evolve
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.ports.changes import AppendHistory, CreateRun, UpdateRun
from holdfast.testing.conformance.builders import a_key, a_row, a_run
store = SqlPersistence(sys.argv[1])
first, times = int(sys.argv[2]), int(sys.argv[3])
def work(number):
    def count(tx):
        (run,) = tx.runs([a_key(1)])
        tx.apply([
            UpdateRun(evolve(run, last_row=run.last_row + 1)),
            AppendHistory(a_row(run.key, run.last_row + 1)),
            CreateRun(a_run(number)),
        ])
    store.transact(count)
for number in range(first, first + times):
    work(number)
store.close()
"""


def run_together(program: str, *arguments: list[str]) -> None:
    """Run the program once for each list of arguments, all at the same time."""
    processes = [
        subprocess.Popen([sys.executable, "-c", program, *given], stderr=subprocess.PIPE, text=True)
        for given in arguments
    ]
    errors = [process.communicate(timeout=120)[1] for process in processes]

    assert [0] * len(processes) == [process.returncode for process in processes], errors


def test_processes_that_set_up_the_same_database_do_not_disturb_each_other(
    url: str, open_store: OpenStore
) -> None:
    run_together(SETUP, *[[url]] * 4)

    assert open_store(url).read(SchemaVersion()) == newest_version()


def test_processes_that_write_the_same_row_lose_nothing(store: SqlPersistence, url: str) -> None:
    store.transact(lambda tx: tx.apply([CreateRun(a_run(1))]))

    run_together(HAMMER, *([url, str(1_000 * process), "40"] for process in (1, 2, 3, 4)))

    run = store.read(FindRun(a_run(1).name))
    assert run is not None
    assert run.last_row == 160
    assert store.read(CountAll(NAMESPACE)).runs == {"running": 161}


@pytest.mark.skipif(not hasattr(sys, "platform") or sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_uses_connections_of_its_own(store: SqlPersistence, url: str) -> None:
    store.transact(lambda tx: tx.apply([CreateRun(a_run(1))]))
    program = f"""
import os, warnings
warnings.simplefilter("ignore")
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.ports.changes import CreateRun
from holdfast.testing.conformance.builders import a_run
store = SqlPersistence({url!r})
store.transact(lambda tx: tx.apply([CreateRun(a_run(2))]))
child = os.fork()
if child == 0:
    try:
        store.transact(lambda tx: tx.apply([CreateRun(a_run(3))]))
        os._exit(0)
    finally:
        os._exit(1)
assert os.waitpid(child, 0)[1] == 0
store.transact(lambda tx: tx.apply([CreateRun(a_run(4))]))
store.close()
"""
    run_together(program, [])

    assert store.read(CountAll(NAMESPACE)).runs == {"running": 4}
