"""Driven functions: calls are recorded; functions wait, and are blocked when they must be."""

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    Blocked,
    Cancelled,
    ChannelMessage,
    EventAppend,
    Failure,
    FunctionRecord,
    FunctionWaiting,
    JobRecord,
    JobRecorded,
    JobSettled,
    RunCancel,
    RunCreate,
    RunExpire,
    RunPause,
    RunResume,
    RunSignal,
    RunTerminate,
    TimerFire,
)
from holdfast.kernel.history import events
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.job import JobKind, JobState
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Payload
from tests.unit.kernel.world import SECOND, World, payload, pipeline, stage


def function(name: str = "f") -> World:
    """A world with a durable function."""
    return World(pipeline(attrs.evolve(stage(name, attempts=1), function=True)))


def driven(world: World) -> Attempt:
    """Start a run, and claim its driving job."""
    world.create(input={"order": 1})
    return world.claim_one(world.open())


def record(world: World, attempt: Attempt, *rows: FunctionRecord, seen: int = 1) -> JobRecorded:
    return world.do(
        JobRecord(
            job=attempt.job,
            epoch=attempt.epoch,
            seen=seen,
            records=rows,
        )
    )


def step(call: str = "1", output: object = 7) -> FunctionRecord:
    return EventAppend(
        event=events.StepCompleted(call=call, step="charge", attempt=1, host="here", site="a.py:3"),
        payload=payload(output),
    )


def parked(world: World, attempt: Attempt, *, seen: int, seconds: float = 60) -> JobSettled:
    return world.settle(attempt, FunctionWaiting(seen=seen, wake_at=world.now + round(seconds * SECOND)))


def test_a_run_of_a_function_has_one_job_that_drives_it() -> None:
    world = function()
    attempt = driven(world)
    assert (attempt.kind, attempt.node, attempt.attempt) == (JobKind.WORKFLOW, "f", 1)
    assert len(world.jobs()) == 1


def test_what_is_recorded_is_in_the_history_in_order() -> None:
    world = function()
    attempt = driven(world)
    reply = record(world, attempt, step("1", 7), TimerFire(call="2", due=0))
    assert [(row.number, row.type) for row in reply.rows] == [(2, "step.completed"), (3, "timer.fired")]
    assert world.history()[1:] == list(reply.rows)
    first, second = reply.rows
    assert first.payload == payload(7)
    assert first.data == '{"attempt":1,"call":"1","host":"here","site":"a.py:3","step":"charge"}'
    assert second.data == '{"call":"2"}'
    assert world.job(attempt).state is JobState.LEASED


def test_an_answer_has_every_row_that_was_not_seen() -> None:
    world = function()
    attempt = driven(world)
    record(world, attempt, step("1"), step("2"))
    world.do(RunPause(run_id="x"))
    reply = record(world, attempt, step("3"), seen=2)
    assert [row.number for row in reply.rows] == [3, 4, 5]
    assert [row.type for row in reply.rows] == ["step.completed", "run.paused", "step.completed"]
    assert reply.run_status is RunStatus.PAUSED


def test_two_of_a_batch_see_each_other() -> None:
    world = function()
    attempt = driven(world)
    one, other = world.send(
        JobRecord(job=attempt.job, epoch=attempt.epoch, seen=1, records=(step("1"),)),
        JobRecord(job=attempt.job, epoch=attempt.epoch, seen=1, records=(step("2"),)),
    )
    assert isinstance(one, JobRecorded)
    assert isinstance(other, JobRecorded)
    assert [row.number for row in one.rows] == [2]
    assert [row.number for row in other.rows] == [2, 3]


def test_who_does_not_hold_the_job_records_nothing() -> None:
    world = function()
    attempt = driven(world)
    world.lose()
    with world.unchanged():
        assert record(world, attempt, step()).status == "fenced"
    again = world.claim_one(world.open())
    with world.unchanged():
        assert record(world, attempt, step()).status == "fenced"
    assert record(world, again, step()).status == "recorded"


def test_nothing_is_recorded_of_a_run_that_has_ended() -> None:
    world = function()
    attempt = driven(world)
    world.do(RunTerminate(run_id="x"))
    with world.unchanged():
        assert record(world, attempt, step()).status == "fenced"


def test_a_timer_is_not_recorded_before_its_time() -> None:
    world = function()
    attempt = driven(world)
    timer = TimerFire(call="1", due=world.now + 5 * SECOND)
    with world.unchanged():
        assert record(world, attempt, timer).rows == ()
    world.wait(5)
    assert [row.type for row in record(world, attempt, timer).rows] == ["timer.fired"]


def test_what_is_sent_again_is_recorded_once() -> None:
    world = function()
    attempt = driven(world)
    first = record(world, attempt, step("1"), TimerFire(call="2", due=0))
    again = record(world, attempt, step("1"), TimerFire(call="2", due=0), step("3"))
    assert again.rows[:2] == first.rows
    assert [row.number for row in again.rows] == [2, 3, 4]
    failed = events.StepRetrying(
        call="4",
        step="s",
        attempt=1,
        error=events.RecordedError(type="OSError", message="busy", code="body_error"),
        retry_at=world.now,
    )
    tries = (EventAppend(event=failed), EventAppend(event=attrs.evolve(failed, attempt=2)))
    assert len(record(world, attempt, *tries, seen=4).rows) == 2


def test_to_record_nothing_only_asks() -> None:
    world = function()
    attempt = driven(world)
    with world.unchanged():
        assert record(world, attempt) == JobRecorded(status="recorded", run_status=RunStatus.RUNNING)


def test_only_functions_are_recorded() -> None:
    world = World(pipeline(stage("a")))
    attempt = driven(world)
    with pytest.raises(InvalidCommandError, match="only functions"):
        record(world, attempt, step())
    with pytest.raises(InvalidCommandError, match="can't be settled as waiting"):
        parked(world, attempt, seen=1)


def test_a_parked_function_sleeps_and_is_driven_again() -> None:
    world = function()
    attempt = driven(world)
    record(world, attempt, step())
    reply = parked(world, attempt, seen=2, seconds=60)
    assert (reply.status, reply.retry_at) == ("settled", world.now + 60 * SECOND)
    (job,) = world.jobs()
    assert (job.state, job.attempts, job.session) == (JobState.SLEEPING, 0, None)
    assert world.events() == ["run.created", "step.completed"]
    assert world.wake_due() == 0
    world.wait(60)
    assert world.wake_due() == 1
    again = world.claim_one(world.open())
    assert (again.epoch, again.attempt) == (2, 1)


def test_a_function_that_has_not_been_told_all_is_driven_again_at_once() -> None:
    world = function()
    attempt = driven(world)
    record(world, attempt, step())
    assert parked(world, attempt, seen=1).retry_at == world.now
    assert world.claim_one(world.open()).epoch == 2


def test_a_function_that_waits_for_a_message_sleeps_without_an_end() -> None:
    world = function()
    attempt = driven(world)
    world.settle(attempt, FunctionWaiting(seen=1))
    assert (world.job(attempt).state, world.job(attempt).wake_at) == (JobState.SLEEPING, None)
    world.wait(86_400)
    assert world.wake_due() == 0


def test_a_function_of_a_paused_run_is_held_where_it_parks() -> None:
    world = function()
    attempt = driven(world)
    world.do(RunPause(run_id="x"))
    parked(world, attempt, seen=2)
    (job,) = world.jobs()
    assert job.state is JobState.PAUSED
    world.do(RunResume(run_id="x"))
    assert world.jobs()[0].state is JobState.SLEEPING


@pytest.mark.parametrize("wakes_in", [None, 3_600], ids=["for ever", "with a timeout"])
def test_a_message_to_a_paused_function_is_heard_as_soon_as_the_run_is_resumed(
    wakes_in: int | None,
) -> None:
    """And not only when the timeout for which it slept is over."""
    world = function()
    attempt = driven(world)
    wake_at = None if wakes_in is None else world.now + wakes_in * SECOND
    world.settle(attempt, FunctionWaiting(seen=1, wake_at=wake_at))
    world.do(RunPause(run_id="x"))
    world.do(RunSignal(run_id="x", signal=ChannelMessage(channel="letters", payload=Payload(inline="1"))))
    world.do(RunResume(run_id="x"))
    world.wake_due()
    assert world.claim_one(world.open()).job == attempt.job


def test_a_paused_function_without_a_message_sleeps_on_until_its_time() -> None:
    world = function()
    attempt = driven(world)
    world.settle(attempt, FunctionWaiting(seen=1, wake_at=world.now + 3_600 * SECOND))
    world.do(RunPause(run_id="x"))
    world.do(RunResume(run_id="x"))
    assert world.wake_due() == 0
    world.wait(3_600)
    assert world.wake_due() == 1


def test_its_end_is_the_end_of_its_run() -> None:
    world = function()
    attempt = driven(world)
    record(world, attempt, step())
    world.complete(attempt, {"parcel": 1})
    assert world.run().status is RunStatus.COMPLETED
    assert world.result() == {"parcel": 1}
    assert world.events()[-2:] == ["stage.completed", "run.completed"]


def test_a_function_that_raises_is_not_tried_again() -> None:
    world = function()
    world.fail(driven(world))
    assert world.run().status is RunStatus.FAILED


def test_a_blocked_run_is_held_until_it_is_resumed() -> None:
    world = function()
    attempt = driven(world)
    failure = Failure(code="nondeterminism", message="it asks for something else")
    reply = world.settle(attempt, Blocked(failure=failure))
    assert reply.run_status is RunStatus.BLOCKED
    assert world.run().status is RunStatus.BLOCKED
    assert world.jobs()[0].state is JobState.PAUSED
    assert world.events()[-1] == "run.blocked"
    assert '"code":"nondeterminism"' in str(world.history()[-1].data)
    assert world.claim(world.open()) == ()
    assert world.do(RunResume(run_id="x")).changed
    assert world.run().status is RunStatus.RUNNING
    assert world.claim_one(world.open()).attempt == 1


def test_a_run_that_is_blocked_while_it_cleans_up_goes_on_with_that_when_it_is_resumed() -> None:
    world = function()
    attempt = driven(world)
    world.do(RunCancel(run_id="x"))
    reply = world.settle(attempt, Blocked(failure=Failure(code="compensation_failed", message="no")))
    assert reply.run_status is RunStatus.BLOCKED
    assert world.do(RunResume(run_id="x")).status is RunStatus.CANCELLING


def test_a_function_that_its_workers_do_not_survive_is_blocked_and_not_failed() -> None:
    world = function()
    world.create()
    for _ in range(10):
        world.claim_one(world.open())
        world.lose()
    assert world.run().status is RunStatus.BLOCKED
    assert '"code":"worker_lost"' in str(world.history()[-1].data)


def test_whoever_comes_further_is_forgiven_what_was_lost() -> None:
    world = function()
    world.create()
    seen = 1
    for number in range(30):
        attempt = world.claim_one(world.open())
        assert attempt.attempt <= 2
        seen = record(world, attempt, step(str(number)), seen=seen).rows[-1].number
        world.lose()
    assert world.run().status is RunStatus.RUNNING


def driven_with_a_deadline(world: World) -> Attempt:
    world.do(RunCreate(workflow="w", id="x", input=payload(0), deadline=30 * SECOND))
    return world.claim_one(world.open())


def test_a_function_past_its_deadline_is_told_and_fails_when_it_has_cleaned_up() -> None:
    """It fails by its deadline, and is told once, however long the cleanup takes."""
    world = function()
    parked(world, driven_with_a_deadline(world), seen=1, seconds=3_600)
    world.wait(29)
    assert world.do(RunExpire()).expired == 0
    world.wait(1)

    assert world.do(RunExpire()).expired == 1
    assert (world.run().status, world.events()[-1]) == (RunStatus.CANCELLING, "run.cancelling")
    world.wait(60)
    assert world.do(RunExpire()).expired == 0
    attempt = world.claim_one(world.open())
    record(world, attempt, step("taken back"), seen=2)
    world.settle(attempt, Cancelled())
    assert (world.run().status, world.events()[-1]) == (RunStatus.FAILED, "run.failed")
    assert '"deadline_exceeded"' in (world.run().error or "")


def test_a_function_that_was_cancelled_has_no_deadline_any_more() -> None:
    world = function()
    attempt = driven_with_a_deadline(world)
    world.do(RunCancel(run_id="x", reason="enough"))
    world.wait(40)

    assert world.do(RunExpire()).expired == 0
    world.settle(attempt, Cancelled())
    assert (world.run().status, world.events()[-1]) == (RunStatus.CANCELLED, "run.cancelled")


def test_a_function_past_its_deadline_that_was_held_is_let_go_to_clean_up() -> None:
    world = function()
    parked(world, driven_with_a_deadline(world), seen=1, seconds=3_600)
    world.do(RunPause(run_id="x"))
    world.wait(30)

    assert world.do(RunExpire()).expired == 1
    assert world.claim_one(world.open()).kind is JobKind.WORKFLOW


def test_a_function_that_has_not_begun_fails_at_its_deadline_at_once() -> None:
    world = function()
    world.do(RunCreate(workflow="w", id="x", input=payload(0), deadline=SECOND, start_at=world.now + SECOND))
    world.do(RunPause(run_id="x"))
    world.wait(2)

    assert world.do(RunExpire()).expired == 1
    assert world.run().status is RunStatus.FAILED
