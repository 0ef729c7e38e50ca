"""A function's clock when events reach it late because no worker drove it."""

import asyncio
from collections.abc import Generator, Sequence
from datetime import timedelta

import pytest

from holdfast.hosts.functions.replay import BEHIND_MAX, FunctionReplay
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import now, sleep, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import EventAppend, FunctionRecord, JobRecorded
from holdfast.kernel.functions.machine import evict_all
from holdfast.kernel.functions.protocol import FunctionReturned
from holdfast.kernel.history import events
from holdfast.ports.json import canonical
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Payload
from holdfast.testing import World, replay
from tests.unit.kernel.functions.player import BEGAN_AT, new_machine

HOUR = timedelta(hours=1)
LATE = 3_600_000_000

go = Channel("go", str)


@pytest.fixture(autouse=True)
def _out_of_memory() -> Generator[None]:
    """Evict all functions: other tests of this process check which are in memory."""
    yield
    evict_all()


@step
def fetch(what: str) -> str:
    return what.upper()


@workflow
async def hurried(what: str) -> str:
    async with asyncio.timeout(30):
        return await fetch(what)


@workflow
async def resting(seconds: float) -> str:
    began = now()
    await sleep(seconds)
    return str(now() - began)


@workflow
async def told() -> str:
    what = await go.receive()
    async with asyncio.timeout(30):
        return await fetch(what)


@workflow
async def asked() -> str:
    await fetch("x")
    what = await go.receive()
    async with asyncio.timeout(30):
        return await fetch(what)


@workflow
async def slept() -> str:
    await fetch("x")
    await sleep(30)
    return "rested"


@workflow
async def timeless(what: str) -> str:
    return await fetch(await fetch(what))


def notes_of(rows: Sequence[HistoryRow]) -> list[str | None]:
    return [row.data for row in rows if row.type == "clock.read"]


# Runs that were not driven at once ----------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [hurried("x"), resting(60.0)], ids=lambda call: call.definition.name)
def test_what_a_function_asks_for_first_counts_from_when_it_began_not_from_when_it_was_created(
    call: Call[str],
) -> None:
    with World() as world:
        began = world.now + HOUR
        run = world.start(call, start_at=began)
        assert run.result() in ("X", "0:01:00")
        history = run.export_history()
        assert world.now - began == timedelta(seconds=60 if call.definition is resting else 0)
        (note,) = notes_of(history.rows)
        assert note is not None
        assert '"row":0' in note
        assert replay(history, hurried, resting).as_recorded


def test_so_does_what_it_asks_for_once_it_has_taken_a_message_that_came_before_it_began() -> None:
    with World() as world:
        run = world.start(told(), start_at=world.now + HOUR, signals=[go("x")])
        assert run.result() == "X"
        (note,) = notes_of(run.export_history().rows)
        assert note is not None
        assert '"row":0' in note
        assert replay(run.export_history(), told).as_recorded


def test_who_does_not_look_at_the_clock_has_no_row_more() -> None:
    with World() as world:
        run = world.start(timeless("x"), start_at=world.now + HOUR)
        assert run.result() == "X"
        assert notes_of(run.export_history().rows) == []


def test_nor_has_who_began_at_once() -> None:
    with World() as world:
        run = world.start(hurried("x"))
        assert run.result() == "X"
        assert notes_of(run.export_history().rows) == []


def test_who_rests_before_anything_else_has_one_for_nobody_could_tell_that_it_had_begun() -> None:
    with World() as world:
        run = world.start(resting(60.0))
        assert run.result() == "0:01:00"
        (note,) = notes_of(run.export_history().rows)
        assert note is not None
        assert '"row":0' in note
        assert run.export_history().rows[0].type == "run.created"
        assert f'"shown":{run.export_history().rows[0].at}' in note


def test_a_fork_that_keeps_what_was_asked_for_keeps_the_time() -> None:
    with World() as world:
        run = world.start(resting(60.0), start_at=world.now + HOUR)
        run.result()
        world.advance(HOUR)
        before = notes_of(run.export_history().rows)
        row = next(row.number for row in run.export_history().rows if row.type == "clock.read")
        run.rerun_from(row=row)
        assert run.result() == "1:01:00"  # its timer was due long ago
        (note,) = notes_of(run.export_history().rows)
        assert note is not None
        assert before[0] is not None
        assert note.partition('"row"')[2] == before[0].partition('"row"')[2]


# A drive ------------------------------------------------------------------------------------------------------------


def row(number: int, kind: str, at: int, payload: str | None = None, **facts: object) -> HistoryRow:
    given = None if payload is None else Payload(inline=payload)
    return HistoryRow(run="r", number=number, type=kind, at=at, payload=given, data=canonical(facts))


def text(payload: Payload) -> str:
    assert payload.inline is not None
    return payload.inline


CREATED = row(1, "run.created", BEGAN_AT, definition="waits@1")
SENT = row(2, "signal.received", BEGAN_AT + 5, '"x"', channel="go")


def opened(*known: HistoryRow, code: Call[str], at: int | None = None) -> FunctionReplay:
    drive = FunctionReplay(new_machine(code), text)
    drive.open(known, now=at)
    return drive


def due(drive: FunctionReplay) -> list[int]:
    return [one.at - BEGAN_AT for one in drive.timers()]


def read(row: int, shown: int) -> FunctionRecord:
    return EventAppend(event=events.ClockRead(row=int(str(row)), shown=shown))


def test_it_is_to_be_recorded_before_anything_relies_on_it() -> None:
    drive = opened(CREATED, code=hurried("x"), at=BEGAN_AT + LATE)
    assert drive.notes() == [read(0, BEGAN_AT + LATE)]
    noted = row(2, "clock.read", BEGAN_AT + LATE, row=0, shown=BEGAN_AT + LATE)
    drive.take(JobRecorded(status="recorded", rows=(noted,)), now=BEGAN_AT + 2 * LATE)
    assert (drive.notes(), due(drive)) == ([], [LATE + 30_000_000])
    assert due(opened(CREATED, noted, code=hurried("x"))) == [LATE + 30_000_000]


def test_a_second_is_not_late() -> None:
    drive = opened(CREATED, code=hurried("x"), at=BEGAN_AT + BEHIND_MAX)
    assert (drive.notes(), due(drive)) == ([], [30_000_000])


def test_who_takes_over_does_not_put_off_what_may_have_been_stored() -> None:
    """Otherwise a function whose workers are lost repeatedly would never wake."""
    first = opened(CREATED, code=resting(60.0), at=BEGAN_AT)
    assert (first.notes(), first.before_suspend()) == ([], [read(0, BEGAN_AT)])
    noted = row(2, "clock.read", BEGAN_AT, row=0, shown=BEGAN_AT)
    first.take(JobRecorded(status="recorded", rows=(noted,)), now=BEGAN_AT)
    assert first.before_suspend() == []
    assert due(opened(CREATED, noted, code=resting(60.0), at=BEGAN_AT + LATE)) == [60_000_000]
    assert due(opened(CREATED, code=resting(60.0), at=BEGAN_AT + LATE)) == [LATE + 60_000_000]


@pytest.mark.parametrize("from_memory", [True, False])
def test_news_that_are_late_show_what_time_it_is(from_memory: bool) -> None:
    drive = opened(CREATED, code=told())
    if from_memory:
        drive.suspend()
        assert drive.resume([SENT], text, now=BEGAN_AT + LATE)
    else:
        drive.take(JobRecorded(status="recorded", rows=(SENT,)), now=BEGAN_AT + LATE)
    assert drive.notes() == [read(2, BEGAN_AT + LATE)]
    assert due(drive) == [LATE + 30_000_000]


def test_news_after_the_last_that_is_stored_are_new_to_whoever_takes_over() -> None:
    fetched = row(2, "step.completed", BEGAN_AT + 1, '"X"', call="1", step="fetch", attempt=1)
    sent = row(3, "signal.received", BEGAN_AT + 5, '"x"', channel="go")
    late = opened(CREATED, fetched, sent, code=asked(), at=BEGAN_AT + LATE)
    assert (late.notes(), due(late)) == ([read(3, BEGAN_AT + LATE)], [LATE + 30_000_000])
    in_time = opened(CREATED, fetched, sent, code=asked(), at=BEGAN_AT + 5)
    assert (in_time.notes(), in_time.before_suspend()) == ([], [read(3, BEGAN_AT + 5)])
    noted = row(4, "clock.read", BEGAN_AT + 5, row=3, shown=BEGAN_AT + 5)
    again = opened(CREATED, fetched, sent, noted, code=asked(), at=BEGAN_AT + LATE)
    assert (again.notes(), again.before_suspend(), due(again)) == ([], [], [30_000_005])


def test_what_is_stored_is_not_put_off() -> None:
    fetched = row(2, "step.completed", BEGAN_AT + 1, '"X"', call="1", step="fetch", attempt=1)
    drive = opened(CREATED, fetched, code=slept(), at=BEGAN_AT + LATE)
    assert (drive.notes(), drive.before_suspend(), due(drive)) == ([], [], [30_000_001])


def test_a_time_that_was_shown_and_not_looked_at_is_forgotten() -> None:
    """A replay, which does not know it, must come to the same result."""
    drive = opened(CREATED, code=told(), at=BEGAN_AT + LATE)
    drive.take(JobRecorded(status="recorded", rows=(SENT,)), now=BEGAN_AT + 10)
    assert (drive.notes(), due(drive)) == ([], [30_000_005])
    assert drive.ended is None


def test_a_driver_that_rests_does_not_go_on_over_the_note_of_another() -> None:
    drive = opened(CREATED, code=told())
    drive.suspend()
    noted = row(3, "clock.read", BEGAN_AT + LATE, row=2, shown=BEGAN_AT + LATE)
    assert not drive.resume([SENT, noted], text, now=BEGAN_AT + 2 * LATE)


def test_what_ends_it_is_told_in_time() -> None:
    drive = opened(CREATED, code=timeless("x"), at=BEGAN_AT + LATE)
    for number, call in ((2, "1"), (3, "2")):
        done = row(number, "step.completed", BEGAN_AT + LATE, '"X"', call=call, step="fetch", attempt=1)
        drive.take(JobRecorded(status="recorded", rows=(done,)), now=BEGAN_AT + LATE)
    assert drive.ended == FunctionReturned('"X"')
    assert drive.notes() == []
