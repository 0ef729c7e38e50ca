"""A parked function resumes exactly as a replay would, or reports that it cannot."""

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import JobRecorded
from holdfast.kernel.functions.protocol import FunctionReturned
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.json import canonical
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Payload
from tests.unit.kernel.functions.player import BEGAN_AT, new_machine

go = Channel("go", int)


@step
async def add(number: int) -> int:
    return number + 1


@workflow
async def waits() -> int:
    return await add(1) + await go.receive()


def row(number: int, kind: str, payload: str | None = None, **facts: object) -> HistoryRow:
    return HistoryRow(
        run="r",
        number=number,
        type=kind,
        at=BEGAN_AT + number,
        payload=None if payload is None else Payload(inline=payload),
        data=canonical(facts),
    )


def text(payload: Payload) -> str:
    assert payload.inline is not None
    return payload.inline


CREATED = row(1, "run.created", definition="waits@1")
ADDED = row(2, "step.completed", "2", call="1", step="add", attempt=1)
PAUSED = row(3, "run.paused")
SENT = row(4, "signal.received", "40", channel="go")


def rested(*known: HistoryRow) -> FunctionReplay:
    drive = FunctionReplay(new_machine(waits()), text)
    drive.open(known)
    assert not drive.is_over
    drive.tries()
    drive.suspend()
    return drive


def test_it_is_told_what_has_come() -> None:
    drive = rested(CREATED, ADDED)
    assert drive.resume([PAUSED, SENT], text)
    assert drive.ended == FunctionReturned("42")


def test_what_it_waits_for_is_to_be_done_again() -> None:
    drive = rested(CREATED)
    assert drive.resume([], text)
    assert [one.request.step for one in drive.tries()] == ["add"]
    drive.close()


def test_it_is_not_paused_any_more() -> None:
    drive = FunctionReplay(new_machine(waits()), text)
    drive.open([CREATED])
    drive.take(JobRecorded(status="recorded", run_status=RunStatus.PAUSED))
    assert drive.is_paused
    drive.suspend()
    assert drive.resume([], text)
    assert not drive.is_paused
    drive.close()


@pytest.mark.parametrize(
    "news",
    [
        [SENT],
        [PAUSED, row(5, "signal.received", "40", channel="go")],
        [ADDED, PAUSED],
        [row(3, "step.completed", "2", call="2", step="add", attempt=1)],
        [row(3, "step.retrying", call="1", step="add", attempt=1, retry_at=1)],
        [row(3, "timer.fired", call="2")],
        [row(3, "patch.marked", call="new")],
    ],
    ids=["a gap", "a gap later", "known already", "a step", "a try", "a timer", "a patch"],
)
def test_rows_that_do_not_follow_or_are_another_driver_s_are_refused(news: Sequence[HistoryRow]) -> None:
    drive = rested(CREATED, ADDED)
    assert not drive.resume(news, text)
    assert drive.seen == 2, "it was told none of them"
    drive.close()


def test_it_keeps_nothing_of_whoever_has_driven_it() -> None:
    """Otherwise an attempt, with all that it read, would stay in memory as long as its function."""
    machine: Any = new_machine(waits())

    class Owner:
        def text(self, payload: Payload) -> str:
            return text(payload)

    import gc
    import weakref

    owner = Owner()
    drive = FunctionReplay(machine, owner.text)
    drive.open([CREATED, ADDED])
    drive.suspend()
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None
    drive.close()


def test_a_damaged_row_that_concerns_it_ends_the_replay() -> None:
    drive = FunctionReplay(new_machine(waits()), text)
    drive.open([CREATED, ADDED, row(3, "signal.received", "40")])
    assert isinstance(drive.fault, UnreadableRowError)
    assert "row 3 is not a valid signal.received" in str(drive.fault)
    drive.close()


def test_a_damaged_row_that_does_not_concern_it_is_passed_over() -> None:
    drive = FunctionReplay(new_machine(waits()), text)
    drive.open([CREATED, ADDED, row(3, "run.paused", reason=7), row(4, "stage.lost"), row(5, "new.type")])
    assert drive.fault is None
    assert drive.seen == 5
    drive.close()
