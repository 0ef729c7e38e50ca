"""Updates: the request is a history row that wakes the function, the answer another."""

import pytest

from holdfast.kernel.commands import (
    EventAppend,
    FunctionRecord,
    FunctionWaiting,
    RunPause,
    RunTerminate,
    RunUpdate,
    RunUpdated,
)
from holdfast.kernel.history import events
from holdfast.ports.errors import InvalidCommandError, RunNotFoundError, UpdateRefusedError
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from holdfast.ports.transport import HistoryGrew
from tests.unit.kernel.test_functions import driven, function, parked, record
from tests.unit.kernel.world import World, payload, pipeline, stage


def ask(world: World, *, update: str = "Board.move_to", key: str | None = None) -> RunUpdated:
    command = RunUpdate(run_id="x", update=update, arguments=payload({"field": "e4"}), idempotency_key=key)
    return world.do(command)


def answer(number: int = 2) -> FunctionRecord:
    return EventAppend(event=events.UpdateCompleted(call=f"update{number}"), payload=payload("a1"))


def shown(number: int) -> FunctionRecord:
    return EventAppend(event=events.ValuePublished(name="progress", number=number), payload=payload(number))


def test_an_update_is_a_row_and_wakes_a_function_that_sleeps() -> None:
    world = function()
    attempt = driven(world)
    parked(world, attempt, seen=1)
    reply = ask(world, key="k")
    assert reply == RunUpdated(run=world.run().key, number=2, status=RunStatus.RUNNING)
    row = world.history()[1]
    assert (row.type, row.payload) == ("update.received", payload({"field": "e4"}))
    assert row.data == '{"key":"k","update":"Board.move_to"}'
    assert world.job(attempt).state is JobState.QUEUED


def test_a_function_that_is_driven_is_only_told() -> None:
    world = function()
    attempt = driven(world)
    world.heard.hints.clear()
    ask(world)
    assert world.heard.hints == [HistoryGrew(run=world.run().key)]
    assert world.job(attempt).state is JobState.LEASED
    # It does not rest before it has been told what came.
    assert world.settle(attempt, FunctionWaiting(seen=1)).retry_at == world.now


def test_whoever_waits_for_an_answer_hears_of_it() -> None:
    world = function()
    attempt = driven(world)
    ask(world)
    world.heard.hints.clear()
    reply = record(world, attempt, answer(), seen=2)
    assert [row.type for row in reply.rows] == ["update.completed"]
    assert reply.rows[0].data == '{"call":"update2"}'
    assert world.heard.hints == [HistoryGrew(run=world.run().key)]


def test_an_answer_that_is_sent_again_is_stored_once() -> None:
    world = function()
    attempt = driven(world)
    ask(world)
    record(world, attempt, answer(), shown(1), seen=2)
    world.heard.hints.clear()
    again = record(world, attempt, answer(), shown(1), shown(2), seen=2)
    assert [row.type for row in again.rows] == ["update.completed", "value.published", "value.published"]
    assert [row.data for row in again.rows[1:]] == [
        '{"name":"progress","number":1}',
        '{"name":"progress","number":2}',
    ]
    assert len(world.history()) == 5
    assert world.heard.hints == []


def test_a_paused_function_is_asked_too() -> None:
    world = function()
    attempt = driven(world)
    parked(world, attempt, seen=1)
    world.do(RunPause(run_id="x"))
    assert ask(world).status is RunStatus.PAUSED
    assert world.job(attempt).state is JobState.PAUSED


def test_who_takes_no_update() -> None:
    world = function()
    with pytest.raises(RunNotFoundError):
        ask(world)
    driven(world)
    for name in ("", "x" * 257):
        with pytest.raises(InvalidCommandError):
            ask(world, update=name)
    with pytest.raises(UpdateRefusedError, match="generation 2 was requested, but 1 is the newest"):
        world.do(RunUpdate(run_id="x", update="u", arguments=payload({}), generation=2))
    world.do(RunTerminate(run_id="x"))
    rows = len(world.history())
    with pytest.raises(UpdateRefusedError, match="the run was cancelled"):
        ask(world)
    assert len(world.history()) == rows
    of_stages = World(pipeline(stage("a")))
    of_stages.create()
    with pytest.raises(UpdateRefusedError, match="is a pipeline"):
        ask(of_stages)
