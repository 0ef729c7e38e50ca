"""Messages of functions to other runs: one commit, once; undeliverable ones are recorded."""

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    CancelSend,
    ChannelClose,
    ChannelMessage,
    ChildRunStarted,
    ChildStart,
    Completed,
    FunctionRecord,
    FunctionWaiting,
    JobRecord,
    JobRecorded,
    RunTerminate,
    SignalSend,
)
from holdfast.kernel.dispatch.decision_records import Recording, decided_again
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from tests.unit.kernel.world import World, payload, pipeline, stage

SENT = ChannelMessage(channel="c", payload=payload("go"))
TOLD = SignalSend(call="2", site="a.py:7", run_id="x/1", signal=SENT)
CANCEL = CancelSend(call="3", run_id="x/1", reason="enough")


def family(kind: str = "function", recordings: list[Recording] | None = None) -> tuple[World, Attempt]:
    """A function that has started a child run whose job is not claimed yet."""
    driven = attrs.evolve(stage("f", attempts=1), function=True)
    world = World(
        pipeline(driven),
        pipeline(driven if kind == "function" else stage("a"), workflow="c"),
        recorder=None if recordings is None else recordings.append,
    )
    world.create()
    attempt = world.claim_one(world.open())
    child = ChildRunStarted(run_id="x/1", workflow="c", version="1", input=payload(1))
    record(world, attempt, ChildStart(call="1", child=child))
    return world, attempt


def record(world: World, attempt: Attempt, *rows: FunctionRecord, seen: int = 1) -> JobRecorded:
    return world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=seen, records=rows))


def test_a_message_is_a_row_of_both_runs_and_wakes_the_child() -> None:
    world, attempt = family()
    child = world.claim_one(world.open())
    world.settle(child, FunctionWaiting(seen=1))
    assert world.job(child).state is JobState.SLEEPING
    record(world, attempt, TOLD, seen=2)
    row = world.history()[-1]
    assert (row.type, row.data) == (
        "signal.sent",
        '{"call":"2","channel":"c","run":"x/1","site":"a.py:7"}',
    )
    heard = world.history("x/1")[-1]
    assert (heard.type, heard.payload) == ("signal.received", payload("go"))
    assert world.job(child).state is JobState.QUEUED


def test_what_is_sent_again_is_told_once() -> None:
    world, attempt = family()
    first = record(world, attempt, TOLD, CANCEL, seen=2)
    assert [row.type for row in first.rows] == ["signal.sent"]
    again = record(world, attempt, TOLD, CANCEL, seen=2)
    assert [row.type for row in again.rows] == ["signal.sent", "cancel.sent"]
    with world.unchanged():
        record(world, attempt, TOLD, CANCEL, seen=2)
    assert world.events("x/1") == ["run.created", "signal.received", "run.cancelling"]


def test_who_does_not_hold_the_job_tells_nothing() -> None:
    world, attempt = family()
    world.lose()
    with world.unchanged():
        assert record(world, attempt, TOLD, seen=2).status == "fenced"


@pytest.mark.parametrize(
    ("kind", "status"), [("function", RunStatus.CANCELLING), ("pipeline", RunStatus.CANCELLED)]
)
def test_a_child_is_cancelled_as_it_would_be_from_outside(kind: str, status: RunStatus) -> None:
    world, attempt = family(kind)
    record(world, attempt, CANCEL, seen=2)
    assert world.run("x/1").status is status
    assert '"enough"' in (world.run("x/1").error or "")
    if kind == "pipeline":
        world.deliver()
        assert world.events()[-1] == "child.failed"


@pytest.mark.parametrize(
    ("kind", "why"), [("function", "the run was cancelled"), ("pipeline", "'c' is a pipeline")]
)
def test_what_can_not_be_told_is_noted(kind: str, why: str) -> None:
    world, attempt = family(kind)
    if kind == "function":
        world.do(RunTerminate(run_id="x/1"))
    before = world.history("x/1")
    record(world, attempt, TOLD, CANCEL, seen=3)
    assert why in (world.history()[-1].data or "")
    assert world.history("x/1") == before


def test_of_a_run_that_is_gone_it_is_noted() -> None:
    world, attempt = family()
    gone = attrs.evolve(TOLD, run_id="nobody")
    record(world, attempt, gone, seen=2)
    assert "there is no such run" in (world.history()[-1].data or "")
    record(world, attempt, attrs.evolve(CANCEL, run_id="nobody"), seen=2)
    assert world.events()[-1] == "cancel.sent"
    world.settle(attempt, Completed(output=payload(1)))


def test_it_is_decided_again_alike() -> None:
    recordings: list[Recording] = []
    world, attempt = family(recordings=recordings)
    record(world, attempt, TOLD, seen=2)
    assert decided_again(recordings[-1]) == recordings[-1].decision


def test_a_run_may_send_itself_a_message() -> None:
    world, attempt = family()
    record(world, attempt, SignalSend(call="2", run_id="x", signal=SENT), seen=2)
    assert world.events() == ["run.created", "child.started", "signal.received", "signal.sent"]
    assert '"sender":"x"' in (world.history()[2].data or "")


def test_a_channel_is_not_closed_before_a_message_that_the_run_sends_itself() -> None:
    world, attempt = family()
    own = SignalSend(call="2", run_id="x", signal=SENT)
    record(world, attempt, own, ChannelClose(call="3", channel="c"), seen=2)
    assert "channel.closed" not in world.events()
    other, attempt = family()
    record(other, attempt, ChannelClose(call="3", channel="c"), own, seen=2)
    assert other.events()[2:] == ["channel.closed", "signal.sent"]
    assert '"closed":true' in (other.history()[-1].data or "")


def test_a_run_that_cancels_itself_goes_on() -> None:
    world, attempt = family()
    record(world, attempt, CancelSend(call="2", run_id="x"), seen=2)
    assert world.events()[2:] == ["cancel.sent"]
    assert world.run().status is RunStatus.RUNNING


def test_a_message_for_a_run_that_the_same_command_starts_goes_with_the_next_one() -> None:
    world, attempt = family()
    child = ChildRunStarted(run_id="x/2", workflow="c", version="1", input=payload(1))
    sent = SignalSend(call="3", run_id="x/2", signal=SENT)
    rows = (ChildStart(call="2", child=child), sent)
    record(world, attempt, *rows, seen=2)
    assert world.events()[2:] == ["child.started"]
    record(world, attempt, *rows, seen=2)
    assert world.events()[3:] == ["signal.sent"]
    assert world.events("x/2") == ["run.created", "signal.received"]
