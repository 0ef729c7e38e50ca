"""Feeding many step results at once is equivalent to feeding them row by row."""

import asyncio

import pytest

from holdfast.hosts.functions.history_document import text_of
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.kernel.authoring.functions import now, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.functions.loop import CALLBACKS_MAX
from holdfast.ports.clock import micros
from holdfast.ports.errors import WorkflowStalledError
from holdfast.ports.json import canonical
from holdfast.ports.records.history import CLOCK_READ, HistoryRow
from holdfast.ports.records.values import Payload
from tests.unit.kernel.functions.player import BEGAN_AT, new_machine


@step
async def add(number: int) -> int:
    return number + 1


@step(queue="far")
async def add_far(number: int) -> int:
    return number + 1


@workflow
async def chain(length: int) -> int:
    number = 0
    for _ in range(length):
        number = await add(number)
    return number


@workflow
async def goes_far() -> list[int]:
    first = await add(0)
    return [first, *(await asyncio.gather(add_far(1), add(2))), await add(3), await add(4)]


@workflow
async def looks_at_the_clock() -> None:
    await add(0)
    seen = now()
    await add(0)
    await add(micros(seen) - BEGAN_AT)


@workflow
async def never_rests() -> None:
    await add(await add(0))
    for _ in range(CALLBACKS_MAX + 1):
        await asyncio.sleep(0)


def row(number: int, kind: str = "step.completed", **facts: object) -> HistoryRow:
    payload = Payload(inline=str(number - 1)) if kind == "step.completed" else None
    data = canonical({"step": "add", **facts})
    return HistoryRow(run="r", number=number, type=kind, at=BEGAN_AT + number, payload=payload, data=data)


CREATED = row(1, "run.created", definition="chain@1")
ADDED = [row(number, call=str(number - 1)) for number in range(2, 6)]


def test_it_knows_which_step_is_to_be_done_next() -> None:
    drive = FunctionReplay(new_machine(chain(9)), text_of)
    drive.open([CREATED, *ADDED])
    assert [(one.request.call, one.request.arguments, one.number) for one in drive.tries()] == [
        ("5", '{"number":4}', 1)
    ]
    assert (drive.seen, drive.stored) == (5, 5)
    drive.close()


def test_a_step_that_was_tried_goes_on_with_its_next_try() -> None:
    drive = FunctionReplay(new_machine(chain(9)), text_of)
    error = {"type": "ValueError", "message": "no", "code": "body_error"}
    retrying = row(3, "step.retrying", call="2", attempt=4, retry_at=7, error=error)
    drive.open([CREATED, ADDED[0], retrying])
    tries = {one.request.call: one for one in drive.tries()}
    assert [(call, one.number, one.at) for call, one in tries.items()] == [("2", 5, 7)]
    drive.close()


def test_steps_of_queues_are_known_to_be_over() -> None:
    rows = [
        ADDED[0],
        row(3, "step.queued", call="2", step="add_far", queue="far", attempt=1, max_attempts=1, job=2),
        row(4, call="3"),
        row(5, call="2", step="add_far", attempt=1, job=2),
        row(6, call="6"),
    ]
    waiting = FunctionReplay(new_machine(goes_far()), text_of)
    waiting.open([CREATED, *rows[:3]])
    assert waiting.waits_for_others
    assert not waiting.tries()
    waiting.close()
    drive = FunctionReplay(new_machine(goes_far()), text_of)
    drive.open([CREATED, *rows])
    assert not drive.waits_for_others
    assert [one.request.call for one in drive.tries()] == ["7"]
    drive.close()


def test_its_clock_shows_what_it_did_when_code_before_looked_at_it() -> None:
    read = row(3, CLOCK_READ, row=2, shown=BEGAN_AT + 3_000)
    drive = FunctionReplay(new_machine(looks_at_the_clock()), text_of)
    drive.open([CREATED, ADDED[0], read, row(4, call="2")])
    assert [one.request.arguments for one in drive.tries()] == ['{"number":3000}']
    drive.close()


@pytest.mark.slow
def test_one_that_never_rests_has_seen_the_row_after_which_it_does_not() -> None:
    drive = FunctionReplay(new_machine(never_rests()), text_of)
    drive.open([CREATED, *ADDED[:3]])
    assert isinstance(drive.fault, WorkflowStalledError)
    assert drive.seen == 3
    drive.close()
