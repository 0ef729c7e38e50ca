"""The storage that an ended run takes: rows and bytes, and nothing in the tables of open work."""

import contextlib
import sqlite3
from collections.abc import Mapping
from typing import Final

import psycopg
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.steps import step
from tests.integration.counts.conftest import OpenEngine
from tests.integration.counts.statement_counter import Statements

RUNS: Final = 50
STEPS: Final = 20
SIGNALS: Final = 3
NUMBERS: Final = Channel("numbers", int)


@step
async def add(number: int) -> int:
    return number + 1


@workflow
async def chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add(number)
    return number


@workflow
async def collect(signals: int) -> int:
    return sum([await NUMBERS.receive() for _ in range(signals)])


@stage
async def grow(number: int) -> int:
    return number + 1


GROWN: Final = Pipeline("grown", input=int).pipe(grow)


def left(url: str, namespace: str) -> tuple[Mapping[str, int], float]:
    """Return the number of rows by table and of bytes in all tables, for each run.

    PostgreSQL reports the bytes of rows; SQLite does not.
    """
    of_run = "IN (SELECT key FROM holdfast_runs WHERE namespace = 'NAMESPACE')".replace(
        "NAMESPACE", namespace
    )
    named = f"= '{namespace}'"
    tables = {"runs": f"key {of_run}", "idempotency_replies": f"namespace {named}"} | dict.fromkeys(
        (
            "jobs",
            "history",
            "map_items",
            "attempt_output",
            "annotations",
            "attributes",
            "artifacts",
            "outbox",
        ),
        f"run {of_run}",
    )
    is_postgres = url.startswith("postgres")
    size = "coalesce(sum(pg_column_size(t.*)), 0)" if is_postgres else "0"
    found = {
        table: _one(url, f"SELECT count(*), {size} FROM holdfast_{table} AS t WHERE {which}")
        for table, which in tables.items()
    }
    rows = {table: number for table, (number, _) in found.items() if number}
    return rows, sum(bytes_ for _, bytes_ in found.values()) / RUNS


def _one(url: str, query: str) -> tuple[int, int]:
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            row = file.execute(query).fetchone()
    else:
        with psycopg.connect(url) as connection:
            row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def ended(engine: Engine) -> None:
    host = ServerlessHost(engine)
    while host.process_available_jobs(max_jobs=RUNS, concurrency=RUNS).completed:
        pass
    assert {status.value for status, number in engine.sync.count().items() if number} == {"completed"}


def test_a_run_of_one_step_leaves_one_row_and_its_four_events(
    url: str, namespace: str, open_engine: OpenEngine
) -> None:
    engine = open_engine(chain)
    engine.sync.start_all([chain(1) for _ in range(RUNS)])
    ended(engine)

    rows, size = left(url, namespace)

    assert rows == {"runs": RUNS, "history": 4 * RUNS}
    assert size < 1_000


@pytest.mark.slow
def test_each_step_more_leaves_one_row_more_of_few_bytes(
    url: str, namespace: str, open_engine: OpenEngine
) -> None:
    engine = open_engine(chain)
    engine.sync.start_all([chain(1 + STEPS) for _ in range(RUNS)])
    ended(engine)

    rows, size = left(url, namespace)

    assert rows == {"runs": RUNS, "history": (4 + STEPS) * RUNS}
    assert size < 1_000 + STEPS * 240


def test_each_signal_leaves_one_row_of_few_bytes(url: str, namespace: str, open_engine: OpenEngine) -> None:
    """Parking and waking a function leaves none."""
    engine = open_engine(collect)
    runs = engine.sync.start_all([collect(SIGNALS) for _ in range(RUNS)])
    host = ServerlessHost(engine)
    for _ in range(SIGNALS):
        host.process_available_jobs(max_jobs=RUNS, concurrency=RUNS)
        for run in runs:
            run.signal(NUMBERS(1))
    ended(engine)

    rows, size = left(url, namespace)

    assert rows == {"runs": RUNS, "history": (3 + SIGNALS) * RUNS}
    assert size < 800 + SIGNALS * 130


def test_a_run_of_one_stage_leaves_one_row_and_its_three_events(
    url: str, namespace: str, open_engine: OpenEngine
) -> None:
    engine = open_engine(GROWN)
    engine.sync.start_all([GROWN(1) for _ in range(RUNS)])
    ended(engine)

    rows, size = left(url, namespace)

    assert rows == {"runs": RUNS, "history": 3 * RUNS}
    assert size < 750


@pytest.mark.slow
def test_a_step_writes_two_rows_beside_what_its_run_does(
    open_engine: OpenEngine, statements: Statements
) -> None:
    """Its own row, and that of the run, which counts it."""
    engine = open_engine(chain)
    with statements.of() as within:
        engine.sync.start_all([chain(STEPS) for _ in range(RUNS)])
        ended(engine)

    assert within.written / RUNS < 2 * STEPS + 9
