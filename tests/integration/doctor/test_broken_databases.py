"""Each kind of manual damage to a database is found, and repaired where that is possible."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.worker.worker import Worker
from holdfast.ports.errors import RunFailedError
from tests.integration.doctor.conftest import LARGE, Scene

pytestmark = [
    pytest.mark.usefixtures("quick"),
    # What is read, and what is not seen, is tested on PostgreSQL with the other tests.
    pytest.mark.parametrize(
        "model",
        ["sqlite", pytest.param("postgres", marks=[pytest.mark.service, pytest.mark.slow])],
        indirect=True,
        scope="session",
    ),
]

Break = str | Callable[[Scene], object]

_FIELDS: Final = (
    "namespace, queue, definition, kind, node, state, priority, queue_position, epoch, attempts, max_attempts, "
    "lost_attempts, input"
)


def _job_for(run: str) -> str:
    """Give a run the job of another."""
    return (
        f"INSERT INTO holdfast_jobs (run, number, {_FIELDS}) "
        f"SELECT '{{{run}}}', 99, {_FIELDS} FROM holdfast_jobs WHERE run = '{{new}}'"
    )


def _sql(*statements: str) -> Callable[[Scene], None]:
    def carry_out(scene: Scene) -> None:
        for statement in statements:
            scene.sql(statement)

    return carry_out


def _counter(scene: Scene) -> None:
    """Set the map's counter of completed items to two."""
    ((progress,),) = scene.sql("SELECT progress FROM holdfast_runs WHERE key = '{half}'")
    before, after = '"map":[4,3,1,', '"map":[4,3,2,'
    assert before in progress
    _progress(scene, progress.replace(before, after))


def _forgotten(scene: Scene) -> None:
    """Make a run forget the progress of its map."""
    _progress(scene, '{"group":0,"input":1,"nodes":{"up_to":{"job":1}}}')


def _progress(scene: Scene, text: str) -> None:
    escaped = text.replace("{", "{{").replace("}", "}}")
    scene.sql(f"UPDATE holdfast_runs SET progress = '{escaped}' WHERE key = '{{half}}'")


def _lost_lease(scene: Scene) -> None:
    """Make the holder of a job dead for long, without a reaper having seen it."""
    holder = scene.session
    scene.session = scene.open_session()
    assert len(scene.claim(10)) == 4
    scene.sql(f"UPDATE holdfast_sessions SET expires_at = 1, state = 'dead' WHERE id = '{scene.session}'")
    scene.session = holder


def _no_gaps(run: str) -> str:
    return f"UPDATE holdfast_runs SET last_row = last_row - 1 WHERE key = '{{{run}}}'"


def _blocked(scene: Scene) -> None:
    scene.sql("UPDATE holdfast_runs SET status = 'blocked' WHERE key = '{new}'")
    scene.sql("UPDATE holdfast_jobs SET state = 'paused' WHERE run = '{new}'")


REPAIRED: list[tuple[str, set[tuple[str, str]], Break]] = [
    ("a job is gone", {("S7", "new")}, "DELETE FROM holdfast_jobs WHERE run = '{new}'"),
    (
        "a job is gone, and nobody counts it",
        {("S7", "new")},
        _sql(
            "DELETE FROM holdfast_jobs WHERE run = '{new}'",
            "UPDATE holdfast_runs SET open_jobs = 0 WHERE key = '{new}'",
        ),
    ),
    (
        "an item's job is gone",
        {("S7", "half")},
        "DELETE FROM holdfast_jobs WHERE run = '{half}' AND item = 2",
    ),
    ("jobs are counted wrong", {("S7", "new")}, "UPDATE holdfast_runs SET open_jobs = 7 WHERE key = '{new}'"),
    (
        "a job is there twice",
        {("S7", "new")},
        _sql(_job_for("new"), "UPDATE holdfast_runs SET open_jobs = 2, last_job = 99 WHERE key = '{new}'"),
    ),
    (
        "an ended run has a job",
        {("S5", "failed"), ("S7", "failed"), ("S8", "failed")},
        _sql(_job_for("failed")),
    ),
    (
        "an ended run counts a job",
        {("S5", "failed"), ("S7", "failed")},
        "UPDATE holdfast_runs SET open_jobs = 1 WHERE key = '{failed}'",
    ),
    (
        "a sleeper has no alarm",
        {("S7", "new")},
        "UPDATE holdfast_jobs SET state = 'sleeping' WHERE run = '{new}'",
    ),
    ("a job is held", {("S7", "new")}, "UPDATE holdfast_jobs SET state = 'paused' WHERE run = '{new}'"),
    (
        "a job is leased to nobody",
        {("S7", "new")},
        "UPDATE holdfast_jobs SET state = 'leased', session = 'x', epoch = 1, attempts = 1 WHERE run = '{new}'",
    ),
    ("a counter is wrong", {("S7", "half")}, _counter),
    (
        "a sleeper was forgotten",
        {("T3", "retrying")},
        "UPDATE holdfast_jobs SET wake_at = 1 WHERE run = '{retrying}'",
    ),
    (
        "a start was forgotten",
        {("T3", "later")},
        _sql(
            "UPDATE holdfast_runs SET start_at = 1 WHERE key = '{later}'",
            """UPDATE holdfast_history SET data = '{{"definition":"later@1"}}' WHERE run = '{later}' AND number = 1""",
        ),
    ),
    (
        "a deadline was forgotten",
        {("T3", "new")},
        "UPDATE holdfast_runs SET deadline = 1 WHERE key = '{new}'",
    ),
    ("an end was not told", {("L1", "child")}, "UPDATE holdfast_runs SET ended_at = 1 WHERE key = '{child}'"),
    ("an end that is owed is gone", {("S7", "parent")}, "DELETE FROM holdfast_jobs WHERE run = '{child}'"),
    ("a suspended stage is gone", {("S7", "outside")}, "DELETE FROM holdfast_jobs WHERE run = '{outside}'"),
    (
        "leases of the dead",
        {("L1", "half"), ("L1", "new"), ("L1", "large")},
        _lost_lease,
    ),
]

REPORTED: list[tuple[str, set[tuple[str, str]], Break]] = [
    (
        "a row of a history is gone",
        {("O1", "retrying"), ("S8", "retrying")},
        "DELETE FROM holdfast_history WHERE run = '{retrying}' AND number = 2",
    ),
    (
        "the last row of a history is gone, and nobody counts it",
        {("S8", "retrying"), ("O4", "audit")},
        _sql("DELETE FROM holdfast_history WHERE run = '{retrying}' AND number = 2", _no_gaps("retrying")),
    ),
    ("a history is longer than it is", {("O1", "failed"), ("O4", "audit")}, _no_gaps("failed")),
    (
        "an epoch went back",
        {("S1", "retrying"), ("S8", "retrying")},
        "UPDATE holdfast_jobs SET epoch = 0 WHERE run = '{retrying}'",
    ),
    (
        "a run that had ended is active",
        {("S5", "done"), ("S6", "done"), ("S7", "done")},
        "UPDATE holdfast_runs SET status = 'running' WHERE key = '{done_2}'",
    ),
    (
        "a run that had failed is active",
        {("S5", "failed"), ("S6", "failed"), ("S7", "failed")},
        "UPDATE holdfast_runs SET status = 'running' WHERE key = '{failed}'",
    ),
    (
        "what an item gave is gone",
        {("O1", "half"), ("S7", "half")},
        "DELETE FROM holdfast_history WHERE run = '{half}' AND item = 0",
    ),
    (
        "an older generation is active",
        {("S5", "done"), ("S6", "done"), ("S7", "done")},
        "UPDATE holdfast_runs SET status = 'running' WHERE key = '{done_1}'",
    ),
    ("a result is another", {("S6", "done")}, "UPDATE holdfast_runs SET result = '1' WHERE key = '{done_2}'"),
    (
        "something happened after the end",
        {("S6", "failed"), ("C1", "failed")},
        _sql(
            "UPDATE holdfast_history SET number = 9 WHERE run = '{failed}' AND number = 2",
            "UPDATE holdfast_history SET number = 2 WHERE run = '{failed}' AND number = 3",
            "UPDATE holdfast_history SET number = 3 WHERE run = '{failed}' AND number = 9",
        ),
    ),
    (
        "a rerun keeps what was not given",
        {("S4", "done"), ("S6", "done")},
        'UPDATE holdfast_runs SET inherited = \'{{"double":["of","{done_1}",1]}}\' WHERE key = \'{done_2}\'',
    ),
    ("a run is at another place", {("S4", "half"), ("S7", "half")}, _forgotten),
    (
        "a stage may be tried more often",
        {("S8", "new")},
        "UPDATE holdfast_jobs SET max_attempts = 99 WHERE run = '{new}'",
    ),
    (
        "more are let in than may be",
        {("S10", "k")},
        "UPDATE holdfast_runs SET concurrency_key = 'k', concurrency_limit = 1 WHERE key IN ('{new}', '{half}')",
    ),
    (
        "a stage has more bodies than may be",
        {("S10", "w/s"), ("S8", "new"), ("S8", "large")},
        "UPDATE holdfast_jobs SET concurrency_key = 'w/s', concurrency_limit = 1 WHERE run IN ('{new}', '{large}')",
    ),
    (
        "a run waits for an operator",
        {("blocked", "new")},
        _blocked,
    ),
    ("a plan is gone", {("S7", "half")}, "DELETE FROM holdfast_plans WHERE workflow = 'wide'"),
]


def _break(scene: Scene, how: Break) -> None:
    scene.sql(how) if isinstance(how, str) else how(scene)


def _ids(table: list[tuple[str, set[tuple[str, str]], Break]]) -> dict[str, Any]:
    return {"argvalues": [(found, how) for _, found, how in table], "ids": [what for what, _, _ in table]}


RESULTS: Final = {"new": 42, "half": 12, "parent": 1, "outside": 1, "retrying": 1, "large": len(LARGE)}
"""The results of the scene's unfinished runs."""


def _works(scene: Scene, fails: str) -> None:
    """Run a worker after waking all sleeping jobs. Every run ends right, except one with a deadline."""
    scene.sql("UPDATE holdfast_jobs SET wake_at = 1 WHERE state = 'sleeping' AND wake_at IS NOT NULL")
    scene.sql(f"UPDATE holdfast_sessions SET expires_at = 1, state = 'dead' WHERE id = '{scene.session}'")
    with Worker(scene.engine, lease=5):
        for name, result in RESULTS.items():
            run: SyncRunHandle[Any] = SyncRunHandle(scene.opened.client, name, object)
            if name == fails:
                with pytest.raises(RunFailedError, match="deadline"):
                    run.result(timeout=timedelta(seconds=20))
            else:
                assert run.result(timeout=timedelta(seconds=20)) == result
    assert scene.found(blobs=True) == set()


def test_a_sound_database_is_sound(scene: Scene) -> None:
    diagnosis = scene.engine.doctor(blobs=True)

    assert (diagnosis.findings, diagnosis.is_sound, diagnosis.runs, diagnosis.blobs) == ((), True, 11, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("expected", "how"), **_ids(REPAIRED))
def test_what_can_be_repaired_is_seen_and_repaired(
    scene: Scene, expected: set[tuple[str, str]], how: Break, request: pytest.FixtureRequest
) -> None:
    """Nothing is repaired before it is asked for; afterwards the runs end right."""
    _break(scene, how)
    assert scene.found() == expected
    assert all("--repair" in one.advice for one in scene.engine.doctor().findings)

    assert scene.found(repair=True) == {(f"{code}*", run) for code, run in expected}
    assert scene.found() == set()
    _works(scene, fails="new" if "deadline" in request.node.name else "")


@pytest.mark.parametrize(("expected", "how"), **_ids(REPORTED))
def test_what_can_not_be_repaired_is_told_with_what_to_do(
    scene: Scene, expected: set[tuple[str, str]], how: Break
) -> None:
    """A repair leaves it as it is."""
    _break(scene, how)
    assert scene.found() == expected
    assert not any("--repair" in one.advice for one in scene.engine.doctor().findings)

    diagnosis = scene.engine.doctor(repair=True)
    assert {(one.code, one.run_id or one.key) for one in diagnosis.findings} == expected
    assert not any(one.repaired for one in diagnosis.findings)
    assert all(one.advice for one in diagnosis.findings)
    assert scene.found() == expected
