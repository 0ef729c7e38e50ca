"""The programs with messages do what their page describes, are as long as it says, and survive their workers."""

import os
import re
import runpy
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Final, TypeAlias

import pytest
import sqlalchemy
from docs.examples.messages import (
    agents,
    async_completion,
    broadcast,
    context_propagation,
    custom_converter,
    events,
    lazy_cart,
    outbox,
    resource_pool,
    sliding_window,
    streaming,
    update_with_start,
    virtual_objects,
)

from holdfast import Engine, SyncEngine, Worker
from holdfast.kernel.invariants import check
from holdfast.plugins import BodyCall, CommandBatch, FunctionCall, Interceptor
from holdfast.testing.snapshots import snapshot_of
from holdfast.workflows import WorkflowDefinition
from tests.integration.examples.pages import DOCS, blocks, table
from tests.integration.examples.test_flow_control import count_lines
from tests.poll_intervals import look_often
from tests.postgres import fresh_database

Use: TypeAlias = Callable[[SyncEngine], object]

PAGE: Final = DOCS / "explanation" / "message-programs.md"
PROGRAMS: Final = DOCS / "examples" / "messages"
MODULES: Final[dict[str, ModuleType]] = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        agents,
        async_completion,
        broadcast,
        context_propagation,
        custom_converter,
        events,
        lazy_cart,
        outbox,
        resource_pool,
        sliding_window,
        streaming,
        update_with_start,
        virtual_objects,
    )
}
RESULTS: Final[dict[str, object]] = {
    "agents": ["who what why", "4 reviews for writer: thank you"],
    "async_completion": ["letter.pdf is filed", "not scanned: the paper is torn"],
    "broadcast": ["ann buys at 95", "bob buys at 85", "eve buys at 75"],
    "context_propagation": ["sent for ann", "Hello, bob, from ann", "Hello, eve, from ann"],
    "custom_converter": {"largest": Fraction(3, 8), "left": Fraction(1, 8)},
    "events": {
        "deliver-nz/order.paid/1": "parcel 1 is on its way",
        "deliver-nz/order.paid/2": "parcel 2 is on its way",
    },
    "lazy_cart": ["300 with tea", "there is no unicorn", "800 with cup", "ordered: tea, cup"],
    "outbox": ["order 1 is on its way", "order 3 is on its way"],
    "resource_pool": [f"page {number}" for number in range(5)],
    "sliding_window": "40425 in 3 generations",
    "streaming": ["Durable ", "runs ", "survive ", "crashes."],
    "update_with_start": ["reservation of A1", "ticket for the reservation of A1", "seat Z9 does not exist"],
    "virtual_objects": ["ann has 10, bob has 45", "only 10 cents are left", "ann: 10", "bob: 45"],
}
PRINTED: Final = {"custom_converter": "{'largest': '3/8', 'left': '1/8'}"}
"""What a program prints, if it is not its result."""
WORKFLOWS: Final[list[WorkflowDefinition[object]]] = [
    one for module in MODULES.values() for one in module.WORKFLOWS
]
OWNERS: Final = {one.name: name for name, module in MODULES.items() for one in module.WORKFLOWS}
"""The program of each workflow."""


def open_engine(url: str, namespace: str, *interceptors: Interceptor) -> Engine:
    """Return an engine with all programs."""
    return Engine.open(
        url,
        workflows=WORKFLOWS,
        triggers=events.TRIGGERS,
        interceptors=[*interceptors, *context_propagation.INTERCEPTORS],
        namespace=namespace,
    )


@contextmanager
def uses(url: str) -> Generator[dict[str, Use]]:
    """Yield what an application does with each program, by the name of the program."""
    database = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    found: dict[str, Use] = {name: module.use for name, module in MODULES.items()}
    found["outbox"] = lambda engine: outbox.use(engine, database)
    yield found
    database.dispose()


# The page -------------------------------------------------------------------------------------------------------


def test_the_table_has_each_program_with_its_lines() -> None:
    given = [(re.findall(r"`(\w+)\.py`", row[1])[0], int(row[2])) for row in table(PAGE, "Thirteen programs")]

    assert given == [(name, count_lines((PROGRAMS / f"{name}.py").read_text())) for name, _ in given]
    assert sorted(name for name, _ in given) == sorted(RESULTS) == sorted(MODULES)
    assert sorted(RESULTS) == sorted({path.stem for path in PROGRAMS.glob("*.py")} - {"__init__"})


def test_the_page_shows_programs_word_for_word() -> None:
    programs = {(PROGRAMS / f"{name}.py").read_text() for name in RESULTS}
    shown = [one.code for one in blocks(PAGE)]

    assert shown
    assert set(shown) <= programs


# Each program ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name == "sliding_window" else []) for name in RESULTS],
)
def test_a_program_has_its_result(
    name: str, tmp_path: Path, new_sqlite: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_often(monkeypatch)
    url = new_sqlite(tmp_path / "holdfast.db")
    engine = open_engine(url, "default")

    with engine.sync as runs, uses(url) as use, Worker(engine, only_queues=context_propagation.QUEUES):
        assert use[name](runs) == RESULTS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", RESULTS)
def test_a_program_does_what_the_page_describes_when_it_is_saved_and_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    look_often(monkeypatch)

    runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")

    assert capsys.readouterr().out == f"{PRINTED.get(name, RESULTS[name])}\n"


# All programs, and kills ----------------------------------------------------------------------------------------

SOON: Final = timedelta(minutes=4).total_seconds()
PROCESSES: Final = 3
WITHOUT_STEPS: Final = {"virtual_objects"}
MOMENTS: Final = {
    *(f"{name}: function called" for name in RESULTS),
    *(f"{name}: step begun" for name in RESULTS if name not in WITHOUT_STEPS),
    *(f"{name}: step returned" for name in RESULTS if name not in WITHOUT_STEPS),
    *(f"job.record: {moment}" for moment in ("not stored", "stored")),
    *(f"job.settle: {moment}" for moment in ("not stored", "stored")),
}
"""The moments at which a worker is killed, once each: in the work of each program, and around what stores it."""
WORKER: Final = """
import sys
from pathlib import Path
from holdfast import Worker
from tests.integration.examples.test_message_programs import KillsItself, context_propagation, open_engine

url, namespace, folder = sys.argv[1:]
engine = open_engine(url, namespace, KillsItself(Path(folder)))
Worker(engine, lease=1, poll_interval=0.1, only_queues=context_propagation.QUEUES).run()
"""


class KillsItself:
    """An interceptor that kills its process at each moment that no process was killed at before.

    Args:
        folder: Has a file for each moment at which a process was killed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    @contextmanager
    def function(self, call: FunctionCall) -> Generator[None]:
        self._reach(f"{OWNERS[call.workflow]}: function called")
        yield

    @contextmanager
    def body(self, call: BodyCall) -> Generator[None]:
        self._reach(f"{OWNERS[call.workflow]}: step begun")
        yield
        self._reach(f"{OWNERS[call.workflow]}: step returned")

    @contextmanager
    def dispatch(self, batch: CommandBatch) -> Generator[None]:
        kinds = {command.type for command in batch.commands} & {"job.record", "job.settle"}
        for kind in kinds:
            self._reach(f"{kind}: not stored")
        yield
        for kind in kinds:
            self._reach(f"{kind}: stored")

    def _reach(self, moment: str) -> None:
        with self._lock:
            try:
                (self._folder / moment).touch(exist_ok=False)
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def shared_database(postgres_url: str) -> Iterator[str]:
    """The database of `database_url` on PostgreSQL."""
    with fresh_database(postgres_url) as url:
        yield url


def start_worker(url: str, namespace: str, folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, url, namespace, str(folder)],
        cwd=Path(__file__).parents[3],
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.slow
def test_all_programs_have_their_results_though_workers_are_killed_at_each_moment(
    database_url: str, tmp_path: Path
) -> None:
    namespace = f"messages-{secrets.token_hex(4)}"
    folder = tmp_path / "killed"
    folder.mkdir()
    engine = open_engine(database_url, namespace)
    exits: list[int] = []
    until = time.monotonic() + SOON
    with ThreadPoolExecutor(len(RESULTS)) as pool, engine.sync as runs, uses(database_url) as use:
        results = {name: pool.submit(one, runs) for name, one in use.items()}
        workers = [start_worker(database_url, namespace, folder) for _ in range(PROCESSES)]
        try:
            while not all(one.done() for one in results.values()):
                assert time.monotonic() < until, [name for name, one in results.items() if not one.done()]
                time.sleep(0.05)
                for index, worker in enumerate(workers):
                    if (code := worker.poll()) is not None:
                        exits.append(code)
                        workers[index] = start_worker(database_url, namespace, folder)
            assert {name: one.result() for name, one in results.items()} == RESULTS
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        violations = check(snapshot_of(engine.core.stores.persistence, [namespace]))

    assert violations == []
    assert {path.name for path in folder.iterdir()} == MOMENTS
    assert set(exits) == {-signal.SIGKILL}
    assert len(exits) >= len(MOMENTS) - PROCESSES  # the last ones may not have been replaced
