"""The messages with which a function starts: those that its first start found, at every restart."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.hosts.functions.history_document import text_of
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.functions.protocol import StepRequest
from holdfast.kernel.functions.run_facts import RunFacts
from holdfast.ports.records.history import FUNCTION_BEGAN, SIGNAL_RECEIVED, HistoryRow
from holdfast.ports.records.values import Payload

letters = Channel("letters", int)


@step
async def note(numbers: list[int]) -> None:
    del numbers


@workflow
async def polls() -> None:
    got: list[int] = []
    while True:
        try:
            async with asyncio.timeout(0):
                got.append(await letters.receive())
        except TimeoutError:
            await note(got)
            return


def row(number: int, kind: str, data: str, payload: str | None = None) -> HistoryRow:
    return HistoryRow(
        run="r",
        number=number,
        type=kind,
        at=number,
        data=data,
        payload=None if payload is None else Payload(inline=payload),
    )


CREATED = row(1, "run.created", '{"definition":"opens@1"}', "{}")
EARLY = row(2, SIGNAL_RECEIVED, '{"channel":"letters"}', "1")
BEGAN = row(3, FUNCTION_BEGAN, '{"row":2}')
LATE = row(4, SIGNAL_RECEIVED, '{"channel":"letters"}', "2")


@pytest.mark.parametrize(
    ("history", "begins_with"),
    [
        ([CREATED], "[]"),
        ([CREATED, EARLY], "[1]"),
        ([CREATED, EARLY, LATE], "[1,2]"),
        ([CREATED, EARLY, BEGAN, LATE], "[1]"),
    ],
    ids=["none", "one", "two", "begun with one"],
)
def test_a_function_begins_with_what_it_has_begun_with(
    history: Sequence[HistoryRow], begins_with: str
) -> None:
    """A step may be under way that is not recorded yet: a new driver must request the same one."""
    drive = FunctionReplay(
        polls.machine("{}", began_at=0, seed="r", run=RunFacts(id="r", workflow="w", version="1")), text_of
    )
    try:
        drive.open(history, begins=True)
        (asked,) = [one.request for one in drive.tries()]
        assert isinstance(asked, StepRequest)
        assert asked.arguments == f'{{"numbers":{begins_with}}}'
    finally:
        drive.close()
