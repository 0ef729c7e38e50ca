"""A value that the store refuses for good: what is recorded instead of it."""

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import attrs
import pytest

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.kernel.commands import (
    Attempt,
    CancelSend,
    EventAppend,
    FunctionRecord,
    JobRecord,
    QueuedStepJob,
    RunUpdate,
    StepQueue,
)
from holdfast.kernel.dispatch.storage_refusals import without_value
from holdfast.kernel.history import events
from holdfast.ports.changes import Change
from holdfast.ports.errors import RefusedError
from holdfast.ports.persistence import Query, Transaction
from holdfast.ports.records.values import Micros
from tests.unit.kernel.test_functions import driven, record
from tests.unit.kernel.world import World, payload, pipeline, stage

R = TypeVar("R")
POISON = "poison"


class Picky:
    """A store that refuses a value."""

    def __init__(self, inner: MemoryPersistence) -> None:
        self._inner = inner

    def setup(self) -> None:
        self._inner.setup()

    def prune(self, before: Micros, /) -> int:
        return self._inner.prune(before)

    def close(self) -> None:
        self._inner.close()

    def read(self, query: Query[R], /) -> R:
        return self._inner.read(query)

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        return self._inner.transact(lambda tx: work(cast("Transaction", _PickyTransaction(tx))))


class _PickyTransaction:
    def __init__(self, inner: Transaction) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def apply(self, changes: Sequence[Change], /) -> None:
        if any(POISON in repr(change) for change in changes):
            raise RefusedError("not in here")
        self._inner.apply(changes)


@pytest.fixture
def world() -> World:
    """A world with a durable function, whose store refuses a value."""
    return World(pipeline(attrs.evolve(stage("f", attempts=1), function=True)), wrap=Picky)


def recorded(world: World, attempt: Attempt, one: FunctionRecord) -> events.HistoryEvent:
    """Return the event of the row that a record becomes."""
    (row,) = record(world, attempt, one, seen=len(world.history())).rows
    assert row.payload is None
    assert world.history()[-1] == row
    return events.event_of(row)


def test_a_refused_result_of_an_update_fails_the_update(world: World) -> None:
    attempt = driven(world)
    asked = world.do(RunUpdate(run_id="x", update="Board.move_to", arguments=payload("e4")))
    call = f"update{asked.number}"
    event = recorded(
        world, attempt, EventAppend(event=events.UpdateCompleted(call=call), payload=payload(POISON))
    )

    assert isinstance(event, events.UpdateFailed)
    assert (event.call, event.error.code) == (call, "storage_refused")
    assert "not in here" in event.error.message
    assert world.events() == ["run.created", "update.received", "update.failed"]


def test_a_refused_result_of_a_step_fails_the_step(world: World) -> None:
    attempt = driven(world)
    done = events.StepCompleted(
        call="1",
        step="charge",
        attempt=2,
        host="here",
        site="a.py:3",
        started_at=5,
        undoes="0",
        given="[1]",
    )
    event = recorded(world, attempt, EventAppend(event=done, payload=payload(POISON)))

    assert isinstance(event, events.StepFailed)
    assert event.error.code == "step_result"
    kept = {name: value for name, value in event.facts.items() if name != "error"}
    assert kept == done.facts


def test_refused_arguments_of_a_queued_step_fail_the_step(world: World) -> None:
    attempt = driven(world)
    queued = QueuedStepJob(queue="gpu", input=payload(POISON), attempts=3)
    event = recorded(
        world, attempt, StepQueue(call="1", step="embed", queued=queued, site="a.py:3", undoes="0")
    )

    assert isinstance(event, events.StepFailed)
    assert event == events.StepFailed(
        call="1", step="embed", attempt=1, error=event.error, site="a.py:3", undoes="0"
    )
    assert event.error.code == "storage_refused"
    assert len(world.jobs()) == 1


@pytest.mark.parametrize(
    "one",
    [
        EventAppend(event=events.ClockRead(row=1, shown=5)),
        EventAppend(event=events.ValuePublished(name="progress", number=1), payload=payload(POISON)),
        CancelSend(call="1", run_id="c"),
    ],
)
def test_other_records_have_no_replacement(one: FunctionRecord) -> None:
    command = JobRecord(job="r.1", epoch=1, seen=1, records=(one,))

    assert without_value(command, RefusedError("not in here")) is None
    assert without_value(attrs.evolve(command, records=(one, one)), RefusedError("not in here")) is None
