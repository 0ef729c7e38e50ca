"""External work that an ended run left behind in a damaged store is found and cancelled."""

import pytest

from holdfast.kernel.commands import Cancelled, JobSettle
from holdfast.kernel.commands import StageSuspended as HandedOn
from holdfast.ports.records.job import JobKind
from tests.integration.doctor.conftest import HOUR, LEFT, Scene, payload

QUEUE = "apart"

BROKEN = {
    "the job is gone": "DELETE FROM holdfast_jobs WHERE run = '{left}'",
    "the job is held": "UPDATE holdfast_jobs SET state = 'paused' WHERE run = '{left}'",
    "the job has no alarm": "UPDATE holdfast_jobs SET state = 'sleeping' WHERE run = '{left}'",
    "the job is leased to nobody": "UPDATE holdfast_jobs SET state = 'leased', session = 'x', leased_at = 1, "
    "epoch = 3, attempts = 10 WHERE run = '{left}'",
    "the work is still asked about": "UPDATE holdfast_jobs SET kind = 'poll', state = 'sleeping', wake_at = 1, "
    "max_attempts = 3 WHERE run = '{left}'",
}


@pytest.fixture
def left(scene: Scene) -> Scene:
    """A scene with a run that was cancelled while its external work was pending."""
    run = scene.engine.start(LEFT(1), id="left", queue=QUEUE)
    (body,) = scene.claim(queue=QUEUE)
    handed_on = HandedOn(state=payload(1), check_after=HOUR, key="work")
    scene.kernel.dispatch(JobSettle(job=body.job, epoch=body.epoch, outcome=handed_on))
    run.cancel()
    assert scene.found() == set()
    return scene


def _pay(scene: Scene) -> None:
    (attempt,) = scene.claim(queue=QUEUE)
    assert (attempt.kind, attempt.node) == (JobKind.CANCEL, "hand_on")
    scene.kernel.dispatch(JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=Cancelled()))
    assert scene.found() == set()


@pytest.mark.slow
@pytest.mark.parametrize("how", BROKEN.values(), ids=list(BROKEN))
def test_work_that_nobody_would_cancel_is_seen_and_cancelled(left: Scene, how: str) -> None:
    left.sql(how)
    found = left.found()
    assert ("C2", "left") in found
    assert {run for _, run in found} == {"left"}

    assert left.found(repair=True) == {(f"{code}*", run) for code, run in found}
    assert left.found() == set()
    _pay(left)


@pytest.mark.slow
def test_what_would_cancel_again_is_taken_away(left: Scene) -> None:
    (row,) = left.sql("SELECT number FROM holdfast_jobs WHERE run = '{left}'")
    columns = (
        "namespace, queue, definition, kind, node, state, priority, queue_position, epoch, attempts, max_attempts, "
        "lost_attempts, input"
    )
    left.sql(
        f"INSERT INTO holdfast_jobs (run, number, {columns}) SELECT run, 99, {columns} FROM holdfast_jobs "
        f"WHERE run = '{{left}}' AND number = {row[0]}"
    )
    assert left.found() == {("C2", "left")}

    assert left.found(repair=True) == {("C2*", "left")}
    _pay(left)


@pytest.mark.slow
def test_what_was_cancelled_is_not_cancelled_again(left: Scene) -> None:
    _pay(left)

    assert left.found(repair=True) == set()
    assert left.claim(queue=QUEUE) == ()
