"""Updates of functions to other runs: each is stored once, and its reply arrives once, whatever becomes of the runs."""

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    CarriedUpdate,
    ChannelMessage,
    Completed,
    ContinuedAsNew,
    EventAppend,
    Failure,
    FunctionRecord,
    FunctionWaiting,
    JobRecord,
    JobRecorded,
    RunCancel,
    RunRerunFrom,
    RunTerminate,
    SignalSend,
    UpdateDeliver,
    UpdateSend,
)
from holdfast.kernel.dispatch.decision_records import Recording, decided_again
from holdfast.kernel.history import events
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import parse
from holdfast.ports.mailboxes import ReplyAddress, mailbox_from
from holdfast.ports.queries.runs import PendingDeliveries
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from tests.unit.kernel.world import World, failed, payload, pipeline, stage

FUNCTION = attrs.evolve(stage("f", attempts=1), function=True)
ADD = UpdateSend(
    call="1",
    site="a.py:7",
    run_id="cart",
    update="Cart.add",
    arguments=payload({"item": "tea"}),
    checked=True,
)


def pair(recordings: list[Recording] | None = None) -> tuple[World, Attempt, Attempt]:
    """The run `x`, whose function sends, and the run `cart`, whose function gets the update. Both are claimed."""
    world = World(
        pipeline(FUNCTION),
        pipeline(stage("a"), workflow="c"),
        recorder=None if recordings is None else recordings.append,
    )
    session = world.open()
    world.create("x")
    sender = world.claim_one(session)
    world.create("cart")
    return world, sender, world.claim_one(session)


def record(world: World, attempt: Attempt, *rows: FunctionRecord, seen: int = 1) -> JobRecorded:
    return world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=seen, records=rows))


def answer(number: int = 2) -> EventAppend:
    return EventAppend(event=events.UpdateCompleted(call=f"update{number}"), payload=payload(3))


def failure(number: int = 2) -> EventAppend:
    error = events.RecordedError(type="ValueError", message="no", code="body_error")
    return EventAppend(event=events.UpdateFailed(call=f"update{number}", error=error))


def key(world: World, call: str = "1") -> str:
    return f"{world.run('x', generation=1).key}/{call}"


def replies(world: World) -> list[events.UpdateReplied]:
    rows = world.history("x")
    return [events.UpdateReplied.from_row(row) for row in rows if row.type == events.UpdateReplied.type]


def updates_of(world: World, id: str) -> dict[int, ReplyAddress]:
    return dict(mailbox_from(world.run(id).mailbox).updates)


def sent_by(world: World, id: str = "x") -> dict[str, str]:
    return dict(mailbox_from(world.run(id).mailbox).sent)


def without_time(row: HistoryRow) -> HistoryRow:
    return attrs.evolve(row, at=0)


# Sending ----------------------------------------------------------------------------------------------------------


def test_an_update_is_a_row_of_both_runs_and_wakes_the_function() -> None:
    world, sender, receiver = pair()
    world.settle(receiver, FunctionWaiting(seen=1))

    record(world, sender, ADD)

    sent, received = world.history()[-1], world.history("cart")[-1]
    assert (sent.type, sent.data) == (
        "update.sent",
        '{"call":"1","run":"cart","site":"a.py:7","update":"Cart.add"}',
    )
    assert (received.type, received.payload) == ("update.received", payload({"item": "tea"}))
    assert parse(received.data or "") == {
        "checked": True,
        "key": key(world),
        "sender": "x",
        "update": "Cart.add",
    }
    assert world.job(receiver).state is JobState.QUEUED
    assert sent_by(world) == {"1": key(world)}
    assert updates_of(world, "cart") == {2: ReplyAddress("x", key(world))}


def test_a_record_that_is_repeated_sends_once() -> None:
    world, sender, _ = pair()
    record(world, sender, ADD)
    with world.unchanged():
        assert [row.type for row in record(world, sender, ADD).rows] == ["update.sent"]
    assert world.events("cart") == ["run.created", "update.received"]


def test_an_attempt_that_does_not_hold_the_job_sends_nothing() -> None:
    world, sender, _ = pair()
    world.lose()
    with world.unchanged():
        assert record(world, sender, ADD).status == "fenced"


def test_a_second_update_of_the_same_run_goes_with_the_next_command() -> None:
    world, sender, _ = pair()
    both = (ADD, attrs.evolve(ADD, call="2"))
    record(world, sender, *both)
    assert world.events("cart") == ["run.created", "update.received"]
    record(world, sender, *both)
    assert world.events("cart") == ["run.created", "update.received", "update.received"]
    assert [address.call for address in updates_of(world, "cart").values()] == ["1", "2"]


@pytest.mark.parametrize(
    ("target", "code", "why"),
    [
        ("nobody", "run_not_found", "there is no such run"),
        ("over", "update_refused", "the run was cancelled"),
        ("pipe", "update_refused", "'c' is a pipeline; only durable functions expose anything"),
        (
            "x",
            "update_refused",
            "the run is that of this function; call the method of the object that it exposes",
        ),
    ],
)
def test_a_refused_update_is_recorded_with_its_reason_and_changes_no_other_run(
    target: str, code: str, why: str
) -> None:
    world, sender, _ = pair()
    world.create("pipe", workflow="c")
    world.create("over")
    world.do(RunTerminate(run_id="over"))
    others = {one: world.history(one) for one in ("pipe", "over")}

    record(world, sender, attrs.evolve(ADD, run_id=target))

    event = events.UpdateSent.from_row(world.history()[-1])
    assert (event.run, event.code, event.message) == (target, code, why)
    assert {one: world.history(one) for one in others} == others
    assert sent_by(world) == {}
    assert world.events() == ["run.created", "update.sent"]


def test_an_update_without_a_name_is_an_invalid_command() -> None:
    world, sender, _ = pair()
    with world.unchanged(), pytest.raises(InvalidCommandError, match="1 to 256 characters"):
        record(world, sender, attrs.evolve(ADD, update=""))


def test_messages_and_updates_for_one_run_go_in_one_order() -> None:
    world, sender, _ = pair()
    message = SignalSend(call="2", run_id="cart", signal=ChannelMessage(channel="c", payload=payload("go")))
    record(world, sender, message, ADD)
    record(world, sender, message, ADD)
    assert world.events("cart") == ["run.created", "signal.received", "update.received"]


def test_sending_and_delivering_are_decided_again_alike() -> None:
    recordings: list[Recording] = []
    world, sender, receiver = pair(recordings)
    record(world, sender, ADD)
    assert decided_again(recordings[-1]) == recordings[-1].decision
    record(world, receiver, answer(), seen=2)
    assert decided_again(recordings[-1]) == recordings[-1].decision
    world.deliver()
    assert decided_again(recordings[-1]) == recordings[-1].decision


# The reply --------------------------------------------------------------------------------------------------------


def test_the_reply_is_a_row_of_the_sender_and_wakes_its_function() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    world.settle(sender, FunctionWaiting(seen=2))

    recorded = record(world, receiver, answer(), seen=2)

    assert recorded.follow_up.deliveries
    assert updates_of(world, "cart") == {}
    assert [one.status for one in world.deliver()] == ["delivered"]
    reply = world.history()[-1]
    assert (reply.type, reply.payload, reply.node) == ("update.replied", payload(3), "f")
    assert parse(reply.data or "") == {"call": "1", "outcome": "completed", "run": "cart"}
    assert world.job(sender).state is JobState.QUEUED
    assert sent_by(world) == {}


def test_the_error_of_an_update_is_delivered() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    record(world, receiver, failure(), seen=2)
    world.deliver()
    (reply,) = replies(world)
    assert (reply.outcome, reply.error and reply.error.message) == ("failed", "no")


def test_an_update_of_a_program_opens_no_delivery() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    own = EventAppend(event=events.UpdateCompleted(call="update7"), payload=payload(3))
    assert not record(world, receiver, own, seen=2).follow_up.deliveries
    assert world.store.read(PendingDeliveries()) == ()


def test_a_reply_is_delivered_once() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    record(world, receiver, answer(), seen=2)
    (job,) = world.store.read(PendingDeliveries())
    command = UpdateDeliver(job=job.key.text, run_id="x", output=payload(3))
    assert world.do(command).status == "delivered"
    with world.unchanged():
        assert world.do(command).status == "closed"
    assert len(replies(world)) == 1


def test_a_delivery_to_another_run_or_without_the_result_is_an_invalid_command() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    record(world, receiver, answer(), seen=2)
    (job,) = world.store.read(PendingDeliveries())
    command = UpdateDeliver(job=job.key.text, run_id="cart", output=payload(3))
    with world.unchanged(), pytest.raises(InvalidCommandError, match="no reply to run 'cart'"):
        world.do(command)
    with world.unchanged(), pytest.raises(InvalidCommandError, match="its output is missing"):
        world.do(attrs.evolve(command, run_id="x", output=None))


def test_a_result_that_can_not_be_read_is_a_lost_reply() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    record(world, receiver, answer(), seen=2)
    (job,) = world.store.read(PendingDeliveries())
    missing = Failure(code="blob_missing", message="the blob is missing")
    world.do(UpdateDeliver(job=job.key.text, run_id="x", failure=missing))
    (reply,) = replies(world)
    assert (reply.outcome, world.history()[-1].payload) == ("lost", None)
    assert "its result can't be read: the blob is missing" in (reply.message or "")


# The end of the run that gets it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["completed", "failed", "terminated"])
def test_each_update_without_an_answer_is_lost_when_its_run_ends(end: str) -> None:
    world, sender, receiver = pair()
    second = attrs.evolve(ADD, call="2")
    record(world, sender, ADD, second)
    record(world, sender, ADD, second)
    record(world, receiver, answer(2), seen=3)
    if end == "terminated":
        world.do(RunTerminate(run_id="cart"))
    else:
        world.settle(
            receiver, Completed(output=payload(1)) if end == "completed" else failed(retryable=False)
        )

    world.deliver()

    assert [(one.call, one.outcome) for one in replies(world)] == [("1", "completed"), ("2", "lost")]
    assert world.run("cart").mailbox is None
    assert sent_by(world) == {}


def continued(world: World, receiver: Attempt, *updates: CarriedUpdate, seen: int) -> None:
    goes_on = ContinuedAsNew(workflow="w", version="1", input=payload(2), seen=seen, updates=updates)
    world.settle(receiver, goes_on)


def test_an_update_that_the_next_generation_carries_out_is_replied_by_it() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD, attrs.evolve(ADD, call="2"))
    record(world, sender, ADD, attrs.evolve(ADD, call="2"))
    continued(world, receiver, seen=2)  # it has started update2, and has not seen update3

    world.deliver()
    assert [(one.call, one.outcome) for one in replies(world)] == [("1", "lost")]
    following = world.claim_one(world.open())
    assert updates_of(world, "cart") == {2: ReplyAddress("x", key(world, "2"))}
    record(world, following, answer(2), seen=2)
    world.deliver()
    assert [(one.call, one.outcome) for one in replies(world)] == [("1", "lost"), ("2", "completed")]


@pytest.mark.parametrize("is_answered", [False, True])
def test_an_active_run_that_is_run_again_replies_once(*, is_answered: bool) -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    if is_answered:
        record(world, receiver, answer(), seen=2)
    world.do(RunRerunFrom(run_id="cart", row=1))
    again = world.claim_one(world.open())
    assert updates_of(world, "cart") == {2: ReplyAddress("x", key(world))}

    record(world, again, answer(), seen=2)
    world.deliver()

    assert [one.outcome for one in replies(world)] == ["completed"]


def test_an_update_in_a_kept_row_is_replied_by_the_rerun() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    step = EventAppend(
        event=events.StepCompleted(call="1", step="s", attempt=1, host="h"), payload=payload(1)
    )
    record(world, receiver, step, seen=2)
    world.do(RunRerunFrom(run_id="cart", row=4))
    again = world.claim_one(world.open())
    assert updates_of(world, "cart") == {2: ReplyAddress("x", key(world))}
    record(world, again, answer(), seen=4)
    world.deliver()
    assert [one.outcome for one in replies(world)] == ["completed"]


# The end of the run that sends it ---------------------------------------------------------------------------------


def test_the_reply_to_a_run_that_has_ended_is_dropped() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    world.complete(sender)
    assert world.run("x").mailbox is None
    record(world, receiver, answer(), seen=2)
    assert [one.status for one in world.deliver()] == ["closed"]
    assert world.events()[-1] == "run.completed"
    assert world.store.read(PendingDeliveries()) == ()


def test_the_reply_to_a_run_that_has_continued_as_new_is_dropped() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    continued(world, sender, seen=2)
    record(world, receiver, answer(), seen=2)
    assert [one.status for one in world.deliver()] == ["closed"]
    assert world.events() == ["run.created"]


def test_a_cancelling_run_gets_the_reply() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    world.do(RunCancel(run_id="x"))
    record(world, receiver, answer(), seen=2)
    world.deliver()
    assert world.run("x").status is RunStatus.CANCELLING
    assert len(replies(world)) == 1


def test_an_active_sender_that_is_run_again_after_the_update_gets_its_reply() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    world.do(RunRerunFrom(run_id="x", row=3))
    assert sent_by(world) == {"1": key(world)}
    record(world, receiver, answer(), seen=2)
    world.deliver()
    assert [(one.call, one.outcome) for one in replies(world)] == [("1", "completed")]
    assert world.events("cart") == ["run.created", "update.received", "update.completed"]


def test_a_reply_that_came_after_the_point_of_a_rerun_is_delivered_again() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    record(world, receiver, answer(), seen=2)
    world.deliver()
    world.do(RunRerunFrom(run_id="x", row=3))
    (reply,) = replies(world)
    assert (reply.outcome, reply.again) == ("completed", 3)
    assert world.history()[-1].payload == payload(3)
    assert sent_by(world) == {}


def test_a_reply_in_a_kept_row_stays_the_reply() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    record(world, receiver, answer(), seen=2)
    world.deliver()
    world.do(RunRerunFrom(run_id="x", row=4))
    assert replies(world) == []
    assert sent_by(world) == {}


def test_an_ended_sender_that_is_run_again_has_lost_the_replies_that_it_had_not_got() -> None:
    world, sender, receiver = pair()
    record(world, sender, ADD)
    world.settle(sender, failed(retryable=False))
    record(world, receiver, answer(), seen=2)
    world.deliver()
    world.do(RunRerunFrom(run_id="x", row=3))
    (reply,) = replies(world)
    assert (reply.call, reply.outcome) == ("1", "lost")
    assert "was run again" in (reply.message or "")
    world.do(RunRerunFrom(run_id="x", row=3))
    assert [(one.outcome, one.again) for one in replies(world)] == [("lost", 4)]


def test_a_rerun_from_before_the_update_sends_it_again_with_another_key() -> None:
    world, sender, _ = pair()
    record(world, sender, ADD)
    world.do(RunRerunFrom(run_id="x", row=1))
    again = world.claim_one(world.open())
    record(world, again, ADD)
    keys = [address.key for address in updates_of(world, "cart").values()]
    assert keys == [key(world), f"{world.run('x').key}/1"]
    assert len(set(keys)) == len(keys)
