"""A function that has returned after a step that is not stored yet: both are stored together, or the step alone."""

import attrs

from holdfast.kernel.commands import (
    Attempt,
    ChannelMessage,
    CompletedAfterStep,
    JobSettle,
    JobSettled,
    RunPause,
    RunSignal,
)
from holdfast.kernel.history import events
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from tests.unit.kernel.dispatch.test_storage_refusals import POISON, Picky
from tests.unit.kernel.test_functions import driven, function, record, step
from tests.unit.kernel.world import World, payload, pipeline, stage

DONE = events.StepCompleted(call="1", step="charge", attempt=1, host="here", site="a.py:3")


def ended(*, seen: int = 1, result: object = 7, output: object = 8) -> CompletedAfterStep:
    return CompletedAfterStep(output=payload(output), seen=seen, step=DONE, result=payload(result))


def settle(world: World, attempt: Attempt, outcome: CompletedAfterStep, *received: int) -> JobSettled:
    return world.do(JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=outcome, received=received))


def test_step_and_end_are_the_rows_of_a_record_and_a_settle() -> None:
    world, other = function(), function()
    attempt = driven(world)
    settled = world.settle(attempt, ended())
    apart = driven(other)
    record(other, apart, step())
    other.complete(apart, 8)

    assert (settled.status, settled.run_status, settled.retry_at) == ("settled", RunStatus.COMPLETED, None)
    assert world.history() == other.history()
    assert world.run() == other.run()
    assert not world.jobs()


def test_a_message_in_between_is_stored_first_and_the_function_is_driven_again() -> None:
    """With the message as the row that the function has taken for the step, a replay could end otherwise."""
    world = function()
    attempt = driven(world)
    world.do(RunSignal(run_id="x", signal=ChannelMessage(channel="go", payload=payload(1))))
    settled = world.settle(attempt, ended())

    assert (settled.run_status, settled.retry_at) == (RunStatus.RUNNING, world.now)
    assert world.events() == ["run.created", "signal.received", "step.completed"]
    again = world.claim_one(world.open())
    assert again.job == attempt.job
    assert again.lost_attempts == 0
    world.complete(again, 9)
    assert world.run().status is RunStatus.COMPLETED


def test_what_it_has_received_since_the_step_is_unread_if_the_step_is_stored_alone() -> None:
    world = function()
    attempt = driven(world)
    world.do(RunSignal(run_id="x", signal=ChannelMessage(channel="go", payload=payload(1))))
    world.do(RunSignal(run_id="x", signal=ChannelMessage(channel="go", payload=payload(2))))
    settle(world, attempt, ended(seen=2), 2)
    assert set(mailbox_from(world.run().mailbox).unread) == {2, 3}


def test_a_run_that_was_paused_meanwhile_keeps_the_step_and_stays_paused() -> None:
    world = function()
    attempt = driven(world)
    world.do(RunPause(run_id="x"))
    assert world.settle(attempt, ended()).run_status is RunStatus.PAUSED
    assert world.events()[-1] == "step.completed"
    (job,) = world.jobs()
    assert job.state is JobState.PAUSED


def test_a_repeated_settle_is_fenced() -> None:
    world = function()
    attempt = driven(world)
    world.settle(attempt, ended())
    before = world.history()
    assert world.settle(attempt, ended()).status == "fenced"
    assert world.history() == before


def picky() -> World:
    return World(pipeline(attrs.evolve(stage("f", attempts=1), function=True)), wrap=Picky)


def test_an_output_that_the_store_refuses_does_not_cost_the_step() -> None:
    """The step is stored, and the function returns again: then its output alone is refused."""
    world = picky()
    attempt = driven(world)
    assert world.settle(attempt, ended(output=POISON)).retry_at == world.now
    assert world.events() == ["run.created", "step.completed"]
    assert world.history()[-1].payload == payload(7)
    world.complete(world.claim_one(world.open()), POISON)
    assert world.events()[-1] == "result.refused"


def test_a_result_that_the_store_refuses_fails_the_step() -> None:
    world = picky()
    attempt = driven(world)
    assert world.settle(attempt, ended(result=POISON)).retry_at == world.now
    event = events.event_of(world.history()[-1])
    assert isinstance(event, events.StepFailed)
    assert event.error.code == "step_result"
    assert "not in here" in event.error.message
