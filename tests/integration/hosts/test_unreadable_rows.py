"""An unreadable row blocks its run and is logged once; all other runs continue, in every host."""

import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import psycopg
import pytest

from holdfast import Concurrency, Engine, Pipeline, ServerlessHost, Worker, sleep, stage, workflow
from holdfast.client import RunStatus
from holdfast.hosts.maintenance.blocked_runs import BlockedRunResumer
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.queries.runs import JobsOfRun
from holdfast.ports.records.run import Run
from holdfast.serverless import JobMessage
from tests.integration.hosts.conftest import OpenEngine

KINDS: Final = {
    "kind": ("holdfast_jobs", "kind", "UPDATE holdfast_jobs SET kind = 'newer' WHERE run = {key}"),
    "state": (
        "holdfast_runs",
        "close_policy",
        "UPDATE holdfast_runs SET close_policy = 'newer' WHERE key = {key}",
    ),
    "status": ("holdfast_runs", "status", "UPDATE holdfast_runs SET status = 'newer' WHERE key = {key}"),
    "plan": ("holdfast_runs", "plan", "UPDATE holdfast_runs SET plan = 'gone' WHERE key = {key}"),
    "progress": ("holdfast_runs", "progress", "UPDATE holdfast_runs SET progress = '[' WHERE key = {key}"),
    "reference": (
        "holdfast_jobs",
        "input",
        "UPDATE holdfast_jobs SET input = '{{}}' WHERE run = {key}",
    ),
    "epoch": ("holdfast_jobs", "epoch", f"UPDATE holdfast_jobs SET epoch = {2**63 - 1} WHERE run = {{key}}"),
}
"""Damage to a run's rows, and the column then reported as unreadable."""


@stage
def one(number: int) -> int:
    return number + 1


@workflow
async def naps(number: int) -> int:
    await sleep(3)
    return number


pipe = Pipeline("pipe", input=int).pipe(one)


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=[pytest.mark.service, pytest.mark.other_store])]
)
def url(request: pytest.FixtureRequest, tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """The URL of a database: in memory no row can be damaged from outside."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("shared_database")
        return found
    return new_sqlite(tmp_path / "holdfast.db")


@pytest.fixture
def damage(url: str) -> Callable[[Run, str], None]:
    """Runs a statement on a run's rows, past Holdfast."""

    def carry_out(run: Run, sql: str) -> None:
        said = sql.format(key=f"'{run.key}'")
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
                connection.execute(said)
        else:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(said.encode())

    return carry_out


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; fail after 20 seconds."""
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def blocked_lines(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    lines = (record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR)
    return [line for line in lines if f"run {name} " in line]


@pytest.fixture
def no_resuming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep runs blocked: to block a run replaces some damaged columns, and then a worker may resume it at once."""

    def resume_none(_: BlockedRunResumer) -> tuple[str, ...]:
        return ()

    monkeypatch.setattr(BlockedRunResumer, "round", resume_none)


@pytest.mark.slow
@pytest.mark.usefixtures("no_resuming")
@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_blocks_the_run_and_goes_on_with_the_others(
    kind: str, open_engine: OpenEngine, damage: Callable[[Run, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    table, column, sql = KINDS[kind]
    with open_engine(pipe, naps).sync as engine:
        bad = engine.start(pipe(1), id="bad")
        damage(bad.row(), sql)
        good = [*(engine.start(pipe(number)) for number in range(5)), engine.start(naps(7))]
        with Worker(engine):
            assert [run.result(timeout=120) for run in good] == [1, 2, 3, 4, 5, 7]
            wait_until(lambda: bad.info().status is RunStatus.BLOCKED)

        (line,) = blocked_lines(caplog, "bad")
        assert line.startswith("run bad (pipe@1) is blocked: ")
        assert f"{table} has a row of the run with the key" in line
        assert f"whose column {column!r} can't be read" in line
        (why, *_) = bad.why()
        assert f"{column!r}" in why.text
        assert engine.doctor().found.keys() <= {"unreadable", "blocked", "S7"}
        assert {run.id for run in engine.runs()} >= {"bad"}
        assert engine.count()[RunStatus.BLOCKED] == 1
        assert bad.terminate(reason="damaged").changed
        assert bad.info().status is RunStatus.CANCELLED
        assert bad.remove()


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind != "epoch"]
)  # by which messages are told apart
def test_a_batch_of_messages_is_dealt_with_but_for_that_of_the_run(
    kind: str, open_engine: OpenEngine, damage: Callable[[Run, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    opened = open_engine(pipe, naps)
    with opened.sync as engine:
        runs = [engine.start(pipe(number), id=f"r-{number}") for number in range(4)]
        messages = [message_of(opened, run.row()) for run in runs]
        damage(runs[1].row(), KINDS[kind][2])

        host = ServerlessHost(opened, time_limit=10.0)
        became = host.handle_jobs(messages)
        again = host.handle_job(messages[1])

        statuses = [getattr(one, "status", type(one).__name__) for one in became]
        assert [statuses[0], *statuses[2:]] == ["completed"] * 3
        assert statuses[1] in {"ignored", "fenced"}
        assert again.status == "ignored"
        # It is leased where this was found out when it was to be settled.
        assert again.reason in {"paused", "leased"}
        assert [run.info().status for run in runs].count(RunStatus.COMPLETED) == 3
        assert runs[1].info().status is RunStatus.BLOCKED
        assert len(blocked_lines(caplog, "r-1")) == 1


def message_of(engine: Engine, run: Run) -> JobMessage:
    (job,) = engine.core.stores.persistence.read(JobsOfRun(run.key))
    return JobMessage(job_id=job.key.text, epoch=job.epoch)


@pytest.mark.slow
@pytest.mark.usefixtures("no_resuming")
@pytest.mark.parametrize("kind", ["kind", "plan", "progress"])
def test_maintenance_wakes_the_others(
    kind: str, open_engine: OpenEngine, damage: Callable[[Run, str], None]
) -> None:
    opened = open_engine(pipe, naps)
    with opened.sync as engine:
        runs = [engine.start(naps(number)) for number in range(3)]
        host = ServerlessHost(opened, time_limit=10.0)
        host.process_available_jobs(max_jobs=10)
        damage(runs[1].row(), KINDS[kind][2])

        def go_on() -> bool:
            host.run_maintenance_tick()
            host.process_available_jobs(max_jobs=10)
            done = [runs[number].info().status is RunStatus.COMPLETED for number in (0, 2)]
            return all(done) and runs[1].info().status is RunStatus.BLOCKED

        wait_until(go_on)
        if kind == "kind":
            with pytest.raises(UnreadableRowError, match="run terminate"):
                runs[1].resume()


def test_a_run_goes_on_by_itself_once_its_rows_can_be_read(
    open_engine: OpenEngine, damage: Callable[[Run, str], None]
) -> None:
    opened = open_engine(pipe, naps)
    with opened.sync as engine:
        run = engine.start(pipe(1))
        damage(run.row(), KINDS["kind"][2])
        with Worker(engine):
            wait_until(lambda: run.info().status is RunStatus.BLOCKED)
        assert BlockedRunResumer(opened.core).round() == ()
        damage(run.row(), "UPDATE holdfast_jobs SET kind = 'stage' WHERE run = {key}")

        with Worker(engine):
            assert run.result(timeout=120) == 2
        assert [event.type for event in run.history()].count("run.blocked") == 1


def test_a_run_that_is_blocked_by_its_own_value_says_so(
    open_engine: OpenEngine, damage: Callable[[Run, str], None]
) -> None:
    """An error without a column is reported with what failed and how."""
    opened = open_engine(pipe, naps)
    with opened.sync as engine:
        run = engine.start(pipe(1))
        damage(run.row(), "UPDATE holdfast_jobs SET node = 'gone' WHERE run = {key}")
        good = engine.start(pipe(2))
        with Worker(engine):
            assert good.result(timeout=120) == 3

        assert "'gone' is not in the run's plan" in run.why()[0].text


@pytest.mark.slow
@pytest.mark.parametrize("by", ["operator", "maintenance"])
@pytest.mark.parametrize("awaits", ["start", "slot"])
def test_a_run_that_was_blocked_before_it_began_begins_once_its_rows_can_be_read(
    awaits: str, by: str, open_engine: OpenEngine, damage: Callable[[Run, str], None]
) -> None:
    opened = open_engine(pipe, naps)
    with opened.sync as engine:
        first = engine.start(pipe(0), concurrency=Concurrency("k"))
        if awaits == "start":
            run = engine.start(pipe(1), start_at=datetime.now(UTC) + timedelta(seconds=0.5))
        else:
            run = engine.start(pipe(1), concurrency=Concurrency("k"))
        assert run.info().status is RunStatus.PENDING
        plan = run.row().plan
        damage(run.row(), "UPDATE holdfast_runs SET plan = 'gone' WHERE key = {key}")
        with Worker(engine):
            assert first.result(timeout=120) == 1
            wait_until(lambda: run.info().status is RunStatus.BLOCKED)
        assert "'gone'" in run.why()[0].text
        damage(run.row(), f"UPDATE holdfast_runs SET plan = '{plan}' WHERE key = {{key}}")
        assert engine.doctor().found == {"blocked": 1}
        assert [reason.code for reason in run.why()] == ["blocked"]

        if by == "operator":
            assert run.resume().status is RunStatus.PENDING
        with Worker(engine):
            assert run.result(timeout=120) == 2


@pytest.mark.parametrize("end", ["cancel", "terminate"])
def test_a_run_that_was_blocked_before_it_began_can_be_ended(
    end: str, open_engine: OpenEngine, damage: Callable[[Run, str], None]
) -> None:
    opened = open_engine(pipe, naps)
    with opened.sync as engine:
        run = engine.start(pipe(1), start_at=datetime.now(UTC) + timedelta(hours=1))
        damage(run.row(), KINDS["progress"][2])
        opened.core.kernel.block_unreadable(run.row().key, None)
        assert run.info().status is RunStatus.BLOCKED
        damage(run.row(), "UPDATE holdfast_runs SET progress = '{{}}' WHERE key = {key}")

        assert getattr(run, end)().changed
        assert run.info().status is RunStatus.CANCELLED
