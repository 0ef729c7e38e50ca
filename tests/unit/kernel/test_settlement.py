"""The end of attempts: settle and release, and only by the holder of the lease."""

import attrs
import pytest

from holdfast.kernel.commands import (
    AttemptOutput,
    AttemptReport,
    Command,
    Completed,
    JobHeartbeat,
    JobRelease,
    JobSettle,
    JobsHeld,
    MapExpanded,
    RunTerminate,
)
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import parse
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from tests.unit.kernel.world import (
    SECOND,
    World,
    completing,
    each,
    failed,
    field,
    payload,
    pipeline,
    settling,
    stage,
)


@pytest.fixture
def world() -> World:
    return World(pipeline(stage("a"), stage("b"), stage("c")))


def test_a_completed_stage_opens_the_next_with_its_output(world: World) -> None:
    world.create()
    session = world.open()
    first = world.claim_one(session)
    world.wait(1)
    settled = world.complete(first, {"from": "a"})

    assert (settled.status, settled.run_status, settled.retry_at) == ("settled", RunStatus.RUNNING, None)
    second = world.claim_one(session)
    assert (second.node, second.job, second.epoch) == ("b", f"{first.run}.2", 1)
    assert world.value(second.run, second.input) == {"from": "a"}
    assert world.run().updated_at == world.now


def test_stages_are_done_one_after_the_other(world: World) -> None:
    world.create()
    nodes: list[str] = []
    session = world.open()
    while attempts := world.claim(session):
        (attempt,) = attempts
        nodes.append(attempt.node)
        world.complete(attempt)

    assert nodes == ["a", "b", "c"]
    assert world.run().status == "completed"
    assert world.result() == "c"


def test_history_says_what_came_out_in_which_attempt(world: World) -> None:
    world.create()
    session = world.open()
    world.fail(world.claim_one(session))
    attempt = world.claim_one(session)
    world.do(
        JobSettle(
            job=attempt.job,
            epoch=attempt.epoch,
            outcome=Completed(output=payload("out")),
            started_at=123,
            host="me",
        )
    )

    row = world.history()[-1]
    assert (row.type, row.node, row.item, row.epoch, row.at) == ("stage.completed", "a", None, 2, world.now)
    assert row.payload == payload("out")
    assert parse(row.data or "") == {"attempt": 2, "job": 1, "started_at": 123, "host": "me"}


def _stale(world: World) -> tuple[list[Command[object]], str]:
    """Every command of an attempt that was released and is now leased to another session."""
    world.create()
    session = world.open()
    old = world.claim_one(session)
    world.release(old)
    world.claim_one(world.open())
    held = AttemptReport(
        job=old.job, epoch=old.epoch, outputs=(AttemptOutput(kind="log", at=1, data='"hello"'),)
    )
    return [
        completing(old),
        settling(old, failed()),
        settling(old, failed(retryable=False)),
        settling(old, MapExpanded(items=())),
        JobRelease(job=old.job, epoch=old.epoch),
        JobHeartbeat(attempts=(held,)),
        attrs.evolve(completing(old), outputs=held.outputs, idempotency_key=None),
        attrs.evolve(completing(old), epoch=3),
        attrs.evolve(completing(old), epoch=0),
        attrs.evolve(completing(old), epoch=2, namespace="other"),
        JobRelease(job=old.job, epoch=2, namespace="other"),
    ], old.job


def test_a_stale_attempt_changes_nothing_and_is_fenced(world: World) -> None:
    commands, job = _stale(world)
    for command in commands:
        with world.unchanged():
            answer = world.do(command)
        assert (
            answer == JobsHeld(lost=(job,))
            if command.type == "job.heartbeat"
            else field(answer, "status") == "fenced"
        )


def test_a_fenced_answer_tells_nothing_of_the_run(world: World) -> None:
    commands, _ = _stale(world)
    answer = world.do(commands[0])

    assert (field(answer, "run_status"), field(answer, "retry_at")) == (None, None)


@pytest.mark.parametrize("state", ["queued", "sleeping"])
def test_an_attempt_that_was_given_back_can_write_nothing(world: World, state: str) -> None:
    world.create()
    attempt = world.claim_one(world.open())
    world.release(attempt, delay=SECOND if state == "sleeping" else 0)

    assert world.job(attempt).state == state
    with world.unchanged():
        assert world.complete(attempt).status == "fenced"
        assert world.release(attempt).status == "fenced"
        assert world.do(JobHeartbeat(attempts=(AttemptReport(job=attempt.job, epoch=1),))).lost == (
            attempt.job,
        )


@pytest.mark.parametrize("in_one_batch", [True, False])
def test_a_settle_that_comes_twice_is_fenced_the_second_time(world: World, *, in_one_batch: bool) -> None:
    world.create()
    command = completing(world.claim_one(world.open()), "first")
    again = attrs.evolve(command, outcome=Completed(output=payload("second")))
    first, second = world.send(command, again) if in_one_batch else [world.do(command), world.do(again)]

    assert (field(first, "status"), field(second, "status")) == ("settled", "fenced")
    assert [row.payload for row in world.history() if row.type == "stage.completed"] == [payload("first")]


def test_a_failure_after_a_completion_does_not_undo_it(world: World) -> None:
    world.create()
    attempt = world.claim_one(world.open())
    world.complete(attempt)

    with world.unchanged():
        assert world.fail(attempt, retryable=False).status == "fenced"


def test_a_settle_of_a_terminated_run_is_fenced_within_the_batch_too(world: World) -> None:
    world.create()
    _, answer = world.send(RunTerminate(run_id="x"), completing(world.claim_one(world.open())))

    assert field(answer, "status") == "fenced"


def test_a_holder_whose_session_died_may_settle_until_it_is_reaped(world: World) -> None:
    """Expiry alone takes nothing away."""
    world.create()
    session = world.open(lease=SECOND)
    attempt = world.claim_one(session)
    world.wait(3600)

    assert world.complete(attempt).status == "settled"


def test_an_attempt_can_not_say_what_its_job_does_not_do() -> None:
    """Otherwise it could restart the map, or end it with one value."""
    world = World(pipeline(each("m")))
    world.create()
    session = world.open()
    expand = world.claim_one(session)
    with world.unchanged(), pytest.raises(InvalidCommandError, match="expand_map"):
        world.complete(expand)
    world.expand(expand, [1, 2])
    item = world.claim(session)[0]
    with world.unchanged(), pytest.raises(InvalidCommandError, match="stage"):
        world.expand(item, [1, 2, 3])
    refused, done = world.send(settling(item, MapExpanded(items=())), completing(item))

    assert isinstance(refused, InvalidCommandError)
    assert field(done, "status") == "settled"


# Releasing ------------------------------------------------------------------------------------------------------


def test_a_released_attempt_does_not_count(world: World) -> None:
    world.create()
    session = world.open()
    for epoch in range(1, 8):
        attempt = world.claim_one(session)
        assert (attempt.epoch, attempt.attempt) == (epoch, 1)
        assert world.release(attempt).status == "released"

    job = world.jobs()[0]
    assert (job.state, job.epoch, job.attempts, job.session, job.leased_at) == (
        JobState.QUEUED,
        7,
        0,
        None,
        None,
    )


def test_a_release_writes_neither_the_run_nor_its_history(world: World) -> None:
    world.create()
    attempt = world.claim_one(world.open())
    before = (world.run(), world.history())
    world.release(attempt)

    assert (world.run(), world.history()) == before


def test_a_release_with_a_delay_puts_the_job_to_sleep(world: World) -> None:
    world.create()
    session = world.open()
    attempt = world.claim_one(session)
    world.release(attempt, delay=3 * SECOND)

    job = world.job(attempt)
    assert (job.state, job.wake_at, job.attempts) == (JobState.SLEEPING, world.now + 3 * SECOND, 0)
    assert world.claim(session) == ()
    world.wait(3)
    assert world.wake_due() == 1
    assert world.claim_one(session).attempt == 1


def test_a_delay_that_lies_in_the_past_is_none(world: World) -> None:
    world.create()
    attempt = world.claim_one(world.open())
    world.release(attempt, delay=-SECOND)

    assert (world.job(attempt).state, world.job(attempt).wake_at) == (JobState.QUEUED, None)


# Heartbeats -----------------------------------------------------------------------------------------------------


def test_a_heartbeat_stores_what_attempts_say_and_names_those_that_are_lost(world: World) -> None:
    for name in ("x", "y"):
        world.create(name)
    session = world.open()
    kept, lost = world.claim(session)
    world.complete(lost)
    said = (AttemptOutput(kind="log", at=5, data='"one"'), AttemptOutput(kind="progress", at=6, data="0.5"))
    before = world.tables()
    answer = world.do(
        JobHeartbeat(
            attempts=tuple(AttemptReport(job=one.job, epoch=one.epoch, outputs=said) for one in (kept, lost))
        )
    )
    after = world.tables()

    assert answer.lost == (lost.job,)
    assert [
        (note.run, note.job, note.epoch, note.at, note.kind, note.data) for note in after.notes.values()
    ] == [
        (kept.run, 1, 1, 5, "log", '"one"'),
        (kept.run, 1, 1, 6, "progress", "0.5"),
    ]
    after.notes.clear()
    assert after == before


def test_a_heartbeat_with_nothing_to_say_writes_nothing(world: World) -> None:
    world.create()
    attempt = world.claim_one(world.open())
    with world.unchanged():
        assert world.do(JobHeartbeat(attempts=(AttemptReport(job=attempt.job, epoch=1),))).lost == ()
        assert world.do(JobHeartbeat(attempts=())).lost == ()


@pytest.mark.parametrize("how", ["completed", "failed"])
def test_a_settle_stores_what_the_attempt_said_last(world: World, how: str) -> None:
    world.create()
    attempt = world.claim_one(world.open())
    outcome = failed() if how == "failed" else Completed(output=payload(1))
    world.do(
        attrs.evolve(settling(attempt, outcome), outputs=(AttemptOutput(kind="log", at=9, data='"bye"'),))
    )

    (note,) = world.tables().notes.values()
    assert (note.run, note.job, note.epoch, note.at, note.data) == (attempt.run, 1, 1, 9, '"bye"')
