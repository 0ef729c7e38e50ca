"""Patches of a run: those that it met before it recorded anything beyond them."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.hosts.functions.history_document import text_of
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import Workflow, patched, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import JobRecorded
from holdfast.kernel.functions.protocol import FunctionReturned
from holdfast.kernel.functions.run_facts import RunFacts
from holdfast.kernel.history import events
from holdfast.ports.json import canonical
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Payload

AT = 1_767_225_600_000_000
go = Channel("go", bool)


@step
async def give(number: int) -> int:
    return number


@workflow
async def at_the_top() -> bool:
    has = patched("new")
    await go.receive()
    await give(1)
    return has


@workflow
async def at_once() -> list[bool]:
    async def each(number: int) -> bool:
        await give(number)
        return patched(f"new-{number}")

    return list(await asyncio.gather(*map(each, range(3))))


@workflow
async def in_between() -> list[bool]:
    found = [patched("first")]
    await give(1)
    found.append(patched("second"))
    await go.receive()
    return found


def row(number: int, type: str, call: str = "", text: str = "true") -> HistoryRow:
    error = {"type": "", "message": "", "code": "body_error"}
    facts = {"call": call, "step": "give", "channel": "go", "attempt": 1, "retry_at": 0}
    facts |= {"definition": "late@1", "error": error}
    payload = None if type in {"run.created", "patch.marked"} else Payload(inline=text)
    return HistoryRow(
        run="k", number=number, type=type, at=AT + number, payload=payload, data=canonical(facts)
    )


CREATED = row(1, "run.created")


def driven(
    code: Workflow[[], object], known: Sequence[HistoryRow], *news: Sequence[HistoryRow]
) -> FunctionReplay:
    drive = FunctionReplay(
        code.machine("{}", began_at=AT, seed="k", run=RunFacts(id="k", workflow="w", version="1")), text_of
    )
    drive.open(known)
    for rows in news:
        drive.take(JobRecorded(status="recorded", rows=tuple(rows)))
    drive.close()
    assert drive.fault is None
    return drive


def output(drive: FunctionReplay) -> str:
    assert isinstance(drive.ended, FunctionReturned)
    return drive.ended.output


@pytest.mark.parametrize("sent", [1, 2])
def test_a_run_that_begins_with_messages_has_what_it_meets_first(sent: int) -> None:
    messages = [row(2 + number, "signal.received") for number in range(sent)]
    drive = driven(at_the_top, [CREATED, *messages])
    assert [one.event for one in drive.notes()] == [events.PatchMarked(call="new")]


def test_what_comes_of_several_calls_at_once_does_not_count_as_the_past() -> None:
    together = [row(2 + number, "step.completed", f"{number + 1}.1", str(number)) for number in range(3)]
    drive = driven(at_once, [CREATED], together)
    assert output(drive) == "[true,true,true]"
    assert [one.event for one in drive.notes()] == [
        events.PatchMarked(call=name) for name in ("new-0", "new-1", "new-2")
    ]
    marks = [row(5 + number, "patch.marked", f"new-{number}") for number in range(3)]
    assert output(driven(at_once, [CREATED, *together, *marks])) == "[true,true,true]"


@pytest.mark.parametrize("type", ["step.completed", "step.retrying"])
def test_what_was_recorded_by_older_code_counts_as_the_past(type: str) -> None:
    drive = driven(at_the_top, [CREATED, row(2, "signal.received"), row(3, type, "1", "1")])
    assert drive.notes() == []


def test_a_change_behind_what_is_recorded_is_new_though_a_message_has_come() -> None:
    known = [CREATED, row(2, "step.completed", "1", "1"), row(3, "signal.received")]
    assert output(driven(in_between, known)) == "[false,true]"
