"""Unread messages: passed on to the next generation, or listed as unread; none is lost."""

from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    Blocked,
    Cancelled,
    ChannelClose,
    ChannelMessage,
    EventAppend,
    Failure,
    FunctionRecord,
    FunctionWaiting,
    JobRecord,
    JobRecorded,
    JobSettle,
    JobSettled,
    Outcome,
    RunCancel,
    RunCreate,
    RunCreated,
    RunExpire,
    RunRerunFrom,
    RunSignal,
    RunTerminate,
    SignalSend,
)
from holdfast.kernel.commands.outcomes import Completed, Failed
from holdfast.kernel.history import events
from holdfast.ports.errors import ChannelClosedError, SignalRefusedError
from holdfast.ports.json import parse
from holdfast.ports.mailboxes import Mailbox, mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import RunStatus
from tests.unit.kernel.test_functions import driven, function
from tests.unit.kernel.world import SECOND, World, payload, pipeline, stage


def send(world: World, number: int, *, channel: str = "c", start: bool = True, **options: Any) -> RunCreated:
    """Send a message, and start the run if it does not exist."""
    signals = (ChannelMessage(channel=channel, payload=payload(number)),)
    if start:
        options = {"if_active": "return", "if_ended": "rerun", **options}
    return world.do(
        RunCreate(workflow="w", id="x", input=payload({"from": number}), signals=signals, **options)
    )


def signal(world: World, number: int, channel: str = "c") -> int:
    sent = ChannelMessage(channel=channel, payload=payload(number))
    return world.do(RunSignal(run_id="x", signal=sent)).number


def end(world: World, attempt: Attempt, *received: int, outcome: Outcome | None = None) -> JobSettled:
    """End the function, with the messages in these rows received."""
    outcome = outcome or Completed(output=payload("done"))
    return world.do(JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=outcome, received=received))


def record(
    world: World, attempt: Attempt, *rows: FunctionRecord, seen: int, received: tuple[int, ...]
) -> JobRecorded:
    return world.do(
        JobRecord(job=attempt.job, epoch=attempt.epoch, seen=seen, records=rows, received=received)
    )


def messages(world: World, generation: int | None = None) -> list[object]:
    rows = world.history(generation=generation)
    return [parse(row.payload.inline or "") for row in rows if row.type == "signal.received" and row.payload]


def unread(world: World, generation: int | None = None) -> tuple[int, ...]:
    return mailbox_from(world.run(generation=generation).mailbox).unread


def facts(row: HistoryRow) -> dict[str, Any]:
    found: dict[str, Any] = parse(row.data or "{}")
    return found


def of_error(code: str = "oops") -> Failed:
    return Failed(failure=Failure(code=code, message="", retryable=False))


def test_a_message_is_unread_until_its_function_has_received_it() -> None:
    world = function()
    attempt = driven(world)
    first, second = signal(world, 1), signal(world, 2)
    assert unread(world) == (first, second)
    record(world, attempt, seen=3, received=(first,))
    assert unread(world) == (second,)
    world.do(
        JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=FunctionWaiting(seen=3), received=(second,))
    )
    assert world.run().mailbox is None


def test_what_an_attempt_received_that_is_over_changes_nothing() -> None:
    world = function()
    attempt = driven(world)
    first = signal(world, 1)
    world.lose()
    with world.unchanged():
        assert record(world, attempt, seen=2, received=(first,)).status == "fenced"
        assert end(world, attempt, first).status == "fenced"
    assert unread(world) == (first,)


@pytest.mark.parametrize("outcome", [None, of_error()], ids=["completed", "failed"])
def test_a_message_that_came_with_its_start_begins_the_next_generation_where_nobody_starts_again(
    outcome: Outcome | None,
) -> None:
    world = function()
    send(world, 1)
    attempt = world.claim_one(world.open())
    send(world, 2)
    send(world, 3)
    end(world, attempt, 2, outcome=outcome)
    assert (world.run().generation, world.run().status) == (2, RunStatus.RUNNING)
    created, *rows = world.history()
    assert (created.payload, facts(created)["start"]) == (payload({"from": 2}), 3)
    assert messages(world) == [2, 3]
    assert facts(created)["inbox"] == len(rows) + 1  # they are there when it begins
    # The start of the first is used up, that of the second is not: no function begins without end.
    assert mailbox_from(world.run().mailbox).starts == {4: 3}
    end(world, world.claim_one(world.open()), 2)
    assert (world.run().generation, messages(world)) == (3, [3])
    end(world, world.claim_one(world.open()))
    assert (world.run().generation, unread(world)) == (3, (2,))


def test_what_ends_with_nothing_unread_begins_nothing() -> None:
    world = function()
    send(world, 1)
    attempt = world.claim_one(world.open())
    send(world, 2)
    end(world, attempt, 2, 4)
    assert (world.run().generation, world.run().mailbox) == (1, None)


def test_a_message_without_a_start_is_left_and_the_next_generation_gets_it() -> None:
    world = function()
    attempt = driven(world)
    left = signal(world, 1)
    end(world, attempt)
    assert (world.run().status, unread(world)) == (RunStatus.COMPLETED, (left,))
    send(world, 2)
    assert messages(world) == [1, 2]
    assert [facts(row).get("again") for row in world.history()[1:]] == [left, None]


def test_who_takes_the_place_of_a_run_gets_what_that_has_not_received() -> None:
    world = function()
    attempt = driven(world)
    received = signal(world, 1)
    signal(world, 2)
    record(world, attempt, seen=3, received=(received,))
    send(world, 3, if_active="terminate", if_ended="rerun")
    assert messages(world) == [2, 3]


@pytest.mark.parametrize("command", [RunCancel(run_id="x"), RunTerminate(run_id="x")])
def test_who_ends_a_run_ends_it_and_what_is_unread_stands_there(command: RunCancel | RunTerminate) -> None:
    world = function()
    send(world, 1)
    attempt = world.claim_one(world.open())
    world.do(command)
    if isinstance(command, RunCancel):
        end(world, attempt, outcome=Cancelled())
    assert (world.run().generation, world.run().status, unread(world)) == (1, RunStatus.CANCELLED, (2,))


def test_who_sends_after_a_run_was_cancelled_begins_the_next_generation_once_it_has_ended() -> None:
    world = function()
    send(world, 1)
    attempt = world.claim_one(world.open())
    world.do(RunCancel(run_id="x"))
    send(world, 2)
    end(world, attempt, outcome=Cancelled())
    assert (world.run().generation, messages(world), unread(world, 1)) == (2, [1, 2], (2, 5))


def test_a_deadline_is_an_end_of_its_own_before_it_begins_too() -> None:
    world = function()
    send(world, 1, deadline=60 * SECOND, concurrency_key="k")
    send(world, 2)
    world.wait(61)
    world.do(RunExpire())
    assert (world.run(generation=1).status, world.run().generation) == (RunStatus.FAILED, 2)
    assert messages(world) == [1, 2]


def test_a_start_that_is_only_for_what_failed_begins_nothing_after_what_completed() -> None:
    world = function()
    attempt = driven(world)
    send(world, 1, if_ended="rerun_failed")
    end(world, attempt)
    assert (world.run().generation, unread(world)) == (1, (3,))

    failing = function()
    attempt = driven(failing)
    send(failing, 1, if_ended="rerun_failed")
    end(failing, attempt, outcome=of_error())
    assert (failing.run().generation, messages(failing)) == (2, [1])


def test_the_next_generation_is_as_the_start_says_that_came_with_the_message() -> None:
    world = function()
    attempt = driven(world)
    send(world, 1, queue="slow", priority=3, concurrency_key="k", attributes='{"colour":"red"}')
    reply = end(world, attempt)
    run = world.run()
    assert (run.queue, run.priority, run.status, run.attributes) == (
        "slow",
        3,
        RunStatus.PENDING,
        '{"colour":"red"}',
    )
    assert reply.follow_up.runs == ("k",)


def test_an_end_of_another_workflow_begins_what_the_start_is_of() -> None:
    plans = (
        pipeline(attrs.evolve(stage(name, attempts=1), function=True), workflow=workflow)
        for name, workflow in (("f", "w"), ("g", "v"))
    )
    world = World(*plans)
    attempt = driven(world)
    world.do(
        RunCreate(
            workflow="v",
            id="x",
            input=payload(1),
            signals=(ChannelMessage(channel="c", payload=payload(1)),),
            if_active="return",
            if_ended="rerun",
        )
    )
    end(world, attempt)
    assert (world.run().workflow, messages(world)) == ("v", [1])


def close(call: str = "1", channel: str = "c") -> FunctionRecord:
    return ChannelClose(call=call, channel=channel)


def test_a_channel_is_closed_only_if_no_message_has_come_that_the_function_was_not_told() -> None:
    world = function()
    attempt = driven(world)
    number = signal(world, 1)
    signal(world, 2, "another")
    reply = record(world, attempt, close(), seen=1, received=())
    assert [row.type for row in reply.rows] == ["signal.received", "signal.received"]
    reply = record(world, attempt, close("2"), seen=3, received=(number,))
    assert [row.type for row in reply.rows] == ["channel.closed"]
    assert mailbox_from(world.run().mailbox) == Mailbox(unread=(3,), closed=("c",))


def test_who_sends_to_a_closed_channel_is_refused_unless_that_begins_the_next_generation() -> None:
    world = function()
    attempt = driven(world)
    record(world, attempt, close(), seen=1, received=())
    with world.unchanged():
        with pytest.raises(ChannelClosedError, match="has closed channel 'c'") as refused:
            signal(world, 1)
        assert isinstance(refused.value, SignalRefusedError)
        with pytest.raises(ChannelClosedError):
            send(world, 1, start=False, if_exists="return")
    send(world, 1)
    end(world, attempt)
    assert (world.run().generation, messages(world)) == (2, [1])


def test_a_resent_close_is_stored_once() -> None:
    world = function()
    attempt = driven(world)
    record(world, attempt, close(), seen=1, received=())
    again = record(world, attempt, close(), seen=1, received=())
    assert [row.type for row in again.rows] == ["channel.closed"]


def test_a_blocked_run_keeps_what_it_has_and_goes_on() -> None:
    world = function()
    attempt = driven(world)
    first = signal(world, 1)
    signal(world, 2)
    failure = Failure(code="stuck", message="it waits")
    end(world, attempt, first, outcome=Blocked(failure=failure))
    assert (world.run().status, unread(world)) == (RunStatus.BLOCKED, (3,))


def test_a_fork_is_told_all_again_and_starts_that_are_not_used_go_with_it() -> None:
    world = function()
    send(world, 1)
    attempt = world.claim_one(world.open())
    record(
        world,
        attempt,
        EventAppend(event=events.StepCompleted(call="1", step="s", attempt=1)),
        seen=2,
        received=(2,),
    )
    send(world, 2)
    world.do(RunRerunFrom(run_id="x", row=3))
    assert messages(world) == [2]
    # What it keeps of the messages is unread until its driver was told them.
    assert mailbox_from(world.run().mailbox) == Mailbox(unread=(2, 5), starts={5: 4})
    end(world, world.claim_one(world.open()), 2)
    assert (world.run().generation, messages(world)) == (3, [2])


def test_a_mailbox_is_as_short_as_can_be_and_comes_back_from_its_text() -> None:
    box = Mailbox(unread=(3, 4, 5, 9), starts={9: 8}, closed=("a",))
    assert box.to_text() == '{"closed":["a"],"starts":[[9,8]],"unread":[[3,5],[9,9]]}'
    assert mailbox_from(box.to_text()) == box
    assert box.received((9, 4)).to_text() == '{"closed":["a"],"unread":[[3,3],[5,5]]}'
    assert Mailbox().to_text() is None


def test_a_function_that_tells_a_run_through_a_closed_channel_is_told_why_it_was_refused() -> None:
    world = function()
    attempt = driven(world)
    record(world, attempt, close(), seen=1, received=())
    world.create("y", workflow="w")
    teller = next(one for one in world.claim(world.open()) if one.run == world.run("y").key)
    sent = ChannelMessage(channel="c", payload=payload(1))
    told = SignalSend(call="1", run_id="x", signal=sent)
    reply = record(world, teller, told, seen=1, received=())
    (row,) = reply.rows
    assert (facts(row)["closed"], facts(row)["channel"]) == (True, "c")
    assert messages(world) == []
