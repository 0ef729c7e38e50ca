"""Triggers: each message that one selects starts one run, in one commit with the progress of the trigger."""

from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    NamespaceCreate,
    NewTopicMessage,
    RunCreate,
    TopicDeliver,
    TopicPublish,
    TriggerFire,
    TriggerFired,
    TriggerPause,
    TriggerPut,
    TriggerRemove,
    TriggerResume,
)
from holdfast.kernel.schedules.row_data import RECENT_MAX, OperatorChange, values_of
from holdfast.kernel.topics.trigger_data import MessageOutcome, trigger_digest
from holdfast.ports.errors import InvalidCommandError, TriggerNotFoundError, UnknownWorkflowError
from holdfast.ports.records.trigger import TriggerName, TriggerRow
from holdfast.ports.records.values import Payload
from tests.unit.kernel.world import World, payload, pipeline, stage

START = RunCreate(workflow="w", input=Payload(inline="null"))
PUT = TriggerPut(trigger="ship", topic="orders", selection='{"country":"nz"}', start=START)


@pytest.fixture
def world() -> World:
    return World(pipeline(stage("a")))


def trigger(world: World) -> TriggerRow:
    return world.tables().triggers[TriggerName("default", "ship")]


def publish(world: World, *names: str) -> None:
    for name in names:
        world.do(TopicPublish(message=NewTopicMessage(topic="orders", payload="1"), id=name))
    world.do(TopicDeliver(topic="orders"))


def digest_of(world: World) -> str:
    row = world.tables().triggers.get(TriggerName("default", "ship"))
    return "" if row is None else trigger_digest(row)


def fire(
    world: World,
    number: int,
    *,
    expected: int | None = None,
    digest: str | None = None,
    start: RunCreate = START,
) -> TriggerFired:
    run = attrs.evolve(start, id=f"ship/orders/{number}", if_exists="return", input=payload(number))
    command = TriggerFire(
        trigger="ship",
        expected=number if expected is None else expected,
        digest=digest_of(world) if digest is None else digest,
        number=number,
        next=number + 1,
        start=run,
    )
    return world.do(command)


def outcomes(world: World) -> list[tuple[int, str]]:
    return [(one.number, one.outcome) for one in values_of(trigger(world).recent, MessageOutcome)]


def test_a_message_starts_its_run_and_the_trigger_moves_on(world: World) -> None:
    assert world.do(PUT).next_number == 1
    fired = fire(world, 1)
    assert (fired.handled, fired.run_id) == (True, "ship/orders/1")
    assert world.run("ship/orders/1").workflow == "w"
    assert (trigger(world).next_number, trigger(world).started, outcomes(world)) == (2, 1, [(1, "started")])


def test_a_command_that_comes_again_or_late_changes_nothing(world: World) -> None:
    world.do(PUT)
    fire(world, 1)
    with world.unchanged():
        assert not fire(world, 1).handled
        assert not fire(world, 3, expected=3).handled


@pytest.mark.parametrize(
    "changed",
    [
        {"selection": "{}"},
        {"topic": "other"},
        {"since": 0},
        {"start": attrs.evolve(START, priority=7)},
        {"start": attrs.evolve(START, workflow="v")},
    ],
)
def test_a_host_that_has_read_the_trigger_before_its_update_starts_nothing(changed: dict[str, Any]) -> None:
    """It has passed over messages that the trigger selects now, or its start is that of before."""
    world = World(pipeline(stage("a")), pipeline(stage("a"), workflow="v"))
    world.do(PUT)
    read = digest_of(world)
    world.do(attrs.evolve(PUT, **changed))
    assert trigger(world).next_number == 1
    with world.unchanged():
        assert not fire(world, 1, digest=read).handled
        assert not world.do(TriggerFire(trigger="ship", digest=read, expected=1, next=9)).handled
    assert fire(world, 1).handled


def test_the_command_of_a_host_that_sends_no_digest_is_carried_out(world: World) -> None:
    world.do(PUT)
    assert world.do(TriggerFire(trigger="ship", expected=1, next=2)).handled


def test_a_host_that_has_read_the_trigger_before_it_skipped_messages_starts_nothing(world: World) -> None:
    world.do(PUT)
    read = digest_of(world)
    world.wait(1)
    world.do(TriggerPause(trigger="ship"))
    world.do(TriggerResume(trigger="ship", skip=True))
    assert not fire(world, 1, digest=read).handled


def test_a_pause_and_other_runs_leave_the_digest_as_it_is(world: World) -> None:
    world.do(PUT)
    read = digest_of(world)
    fire(world, 1)
    world.do(TriggerPause(trigger="ship"))
    world.do(TriggerResume(trigger="ship"))
    assert fire(world, 2, digest=read).handled


def test_a_run_that_was_removed_is_not_started_again(world: World) -> None:
    """The position of the trigger counts, not the run."""
    world.do(PUT)
    fire(world, 1)
    del world.tables().runs[world.run("ship/orders/1").key]
    assert not fire(world, 1).handled


def test_what_is_not_selected_is_passed_over(world: World) -> None:
    world.do(PUT)
    assert world.do(TriggerFire(trigger="ship", digest=digest_of(world), expected=1, next=40)).handled
    assert (trigger(world).next_number, outcomes(world)) == (40, [])


@pytest.mark.parametrize(("number", "next_number"), [(None, 1), (3, 3), (0, 2), (2, 1)])
def test_a_trigger_never_goes_back(world: World, number: int | None, next_number: int) -> None:
    world.do(PUT)
    with (
        world.unchanged(),
        pytest.raises(InvalidCommandError, match="the trigger continues after the message"),
    ):
        world.do(
            TriggerFire(trigger="ship", digest=digest_of(world), expected=1, number=number, next=next_number)
        )


def test_a_run_that_exists_is_not_started_again(world: World) -> None:
    world.do(PUT)
    world.create("ship/orders/1")
    assert fire(world, 1).run_id == "ship/orders/1"
    assert (trigger(world).started, outcomes(world)) == (0, [(1, "existing")])


def test_a_start_that_is_refused_is_noted_and_the_next_one_starts(world: World) -> None:
    world.do(PUT)
    refused = fire(world, 1, start=attrs.evolve(START, deadline=-1))
    assert refused.handled
    assert "deadline is -1" in (refused.refused or "")
    said = world.do(
        TriggerFire(
            trigger="ship", digest=digest_of(world), expected=2, number=2, next=3, refused="a wrong type"
        )
    )
    assert said.refused == "a wrong type"
    fire(world, 3)
    assert (trigger(world).refused, trigger(world).started) == (2, 1)
    assert outcomes(world) == [(1, "refused"), (2, "refused"), (3, "started")]


def test_a_quota_holds_a_trigger_up(world: World) -> None:
    world.do(PUT)
    world.do(NamespaceCreate(namespace="default", max_active_runs=0))
    held = fire(world, 1)
    assert not held.handled
    assert held.problem == trigger(world).problem
    assert trigger(world).next_number == 1
    with world.unchanged():
        fire(world, 1)
    world.do(NamespaceCreate(namespace="default"))
    world.wait(60)
    fire(world, 1)
    assert (trigger(world).problem, trigger(world).next_number) == (None, 2)


def test_code_that_is_missing_is_an_error_and_no_outcome(world: World) -> None:
    world.do(PUT)
    with world.unchanged(), pytest.raises(UnknownWorkflowError):
        fire(world, 1, start=attrs.evolve(START, workflow="other"))


def test_a_row_keeps_the_last_outcomes_and_changes(world: World) -> None:
    world.do(PUT)
    for number in range(1, 31):
        fire(world, number)
        world.do(attrs.evolve(PUT, start=attrs.evolve(START, priority=number)))
    assert [number for number, _ in outcomes(world)] == list(range(31 - RECENT_MAX, 31))
    assert len(values_of(trigger(world).changes, OperatorChange)) == RECENT_MAX


def test_a_new_trigger_begins_after_the_messages_that_have_a_number(world: World) -> None:
    publish(world, "a", "b")
    assert world.do(PUT).next_number == 3


def test_a_trigger_since_an_instant_begins_with_the_first_message_after_it(world: World) -> None:
    publish(world, "a")
    world.wait(10)
    since = world.now
    assert world.do(attrs.evolve(PUT, since=since)).next_number == 2
    publish(world, "b", "c")
    assert world.do(attrs.evolve(PUT, trigger="other", since=since)).next_number == 2
    assert world.do(attrs.evolve(PUT, trigger="third", since=0)).next_number == 1


def test_an_update_goes_on_where_it_is_unless_the_messages_change(world: World) -> None:
    world.do(attrs.evolve(PUT, since=0))
    publish(world, "a", "b")
    fire(world, 1)
    assert world.do(attrs.evolve(PUT, start=attrs.evolve(START, priority=2))).next_number == 2
    assert world.do(attrs.evolve(PUT, since=0)).next_number == 2  # the same instant
    world.wait(1)
    assert world.do(attrs.evolve(PUT, since=1)).next_number == 1
    assert world.do(attrs.evolve(PUT, selection="{}")).next_number == 3
    assert world.do(attrs.evolve(PUT, topic="other")).next_number == 1
    assert (trigger(world).topic, trigger(world).started) == ("other", 1)


def test_a_declaration_that_has_not_changed_changes_nothing(world: World) -> None:
    declared = attrs.evolve(PUT, declared="one")
    assert world.do(declared).created
    world.do(attrs.evolve(PUT, start=attrs.evolve(START, priority=7)))
    with world.unchanged():
        assert not world.do(declared).changed
    assert world.do(attrs.evolve(PUT, declared="two")).changed


def test_a_paused_trigger_fires_nothing(world: World) -> None:
    world.do(PUT)
    assert world.do(TriggerPause(trigger="ship", reason="closed")).changed
    with world.unchanged():
        assert not fire(world, 1).handled
        assert not world.do(TriggerPause(trigger="ship")).changed
    assert world.do(attrs.evolve(PUT, start=attrs.evolve(START, priority=1))).changed
    assert trigger(world).paused is not None
    assert world.do(TriggerResume(trigger="ship")).next_number == 1
    with world.unchanged():
        assert not world.do(TriggerResume(trigger="ship", skip=True)).changed
    assert fire(world, 1).handled


def test_a_resumed_trigger_may_skip_what_was_published(world: World) -> None:
    world.do(PUT)
    publish(world, "a")
    world.do(TriggerPause(trigger="ship"))
    publish(world, "b", "c")
    world.wait(1)
    assert world.do(TriggerResume(trigger="ship", skip=True)).next_number == 4
    assert trigger(world).since == world.now


def test_a_trigger_is_removed_once(world: World) -> None:
    world.do(attrs.evolve(PUT, declared="one"))
    assert not world.do(TriggerRemove(trigger="ship", declared="other")).removed
    assert world.do(TriggerRemove(trigger="ship", declared="one")).removed
    assert not world.do(TriggerRemove(trigger="ship")).removed
    for command in (TriggerPause(trigger="ship"), TriggerResume(trigger="ship")):
        with pytest.raises(TriggerNotFoundError):
            world.do(command)
    assert not fire(world, 1).handled


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "a" * 101, "\x00"])
def test_a_name_is_checked(world: World, name: str) -> None:
    with pytest.raises(InvalidCommandError):
        world.do(attrs.evolve(PUT, trigger=name))


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"id": "x"}, "start.id is set"),
        ({"start_at": 1}, "start.start_at is set"),
        ({"idempotency_key": "k"}, "start.idempotency_key is set"),
        ({"namespace": "other"}, "start.namespace is set"),
        ({"input": Payload(inline="1")}, "start.input is set"),
        ({"deadline": -1}, "deadline is -1"),
    ],
)
def test_a_start_is_checked_when_it_is_stored(world: World, changed: dict[str, Any], wrong: str) -> None:
    with world.unchanged(), pytest.raises(InvalidCommandError, match=wrong):
        world.do(attrs.evolve(PUT, start=attrs.evolve(START, **changed)))


@pytest.mark.parametrize(
    "changed",
    [
        {"selection": "[]"},
        {"selection": '{"a":1}'},
        {"selection": "{"},
        {"topic": ""},
        {"topic": "t" * 101},
        {"since": 10**18},
    ],
)
def test_the_messages_are_checked_when_it_is_stored(world: World, changed: dict[str, Any]) -> None:
    with world.unchanged(), pytest.raises(InvalidCommandError):
        world.do(attrs.evolve(PUT, **changed))


def test_the_workflow_must_be_known(world: World) -> None:
    with pytest.raises(UnknownWorkflowError):
        world.do(attrs.evolve(PUT, start=attrs.evolve(START, workflow="other")))
