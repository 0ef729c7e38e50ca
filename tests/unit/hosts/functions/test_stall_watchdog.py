"""The stall watchdog: a call is abandoned after several checks in the same turn, and not before."""

import threading
from collections.abc import Callable, Iterator
from typing import cast

import anyio
import pytest

from holdfast.hosts.functions import stall_watchdog
from holdfast.hosts.functions.stall_watchdog import STALLED_CHECKS_MAX, run_watched
from holdfast.ports.errors import WorkflowStalledError

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_watchdog, "CHECK_INTERVAL", 0.001)


class Function:
    """A function that is checked until it may end; `turns` lists the turn found at each check."""

    def __init__(self, found: Iterator[int], looks: int) -> None:
        self.looked = 0
        self._found = found
        self._looks = looks
        self._may_end = threading.Event()

    def call(self) -> str:
        self._may_end.wait(300)
        return "done"

    def end(self) -> None:
        self._may_end.set()

    def turn(self) -> int:
        self.looked += 1
        if self.looked == self._looks:
            self.end()
        return next(self._found)


def always(number: int) -> Iterator[int]:
    while True:
        yield number


async def test_one_that_stays_in_a_turn_is_given_up_and_it_says_where() -> None:
    function = Function(always(3), looks=10_000)
    with pytest.raises(WorkflowStalledError, match=r"without an await, and is at .*:\d+"):
        await run_watched(function.call, function.turn)
    assert function.looked == STALLED_CHECKS_MAX + 1, "the first look only says which turn it is"
    function.end()


@pytest.mark.parametrize(
    "found", [iter(range(1, 10_000, 2)), always(2)], ids=["one turn after the other", "between turns"]
)
async def test_one_that_gets_on_is_waited_for(found: Iterator[int]) -> None:
    function = Function(found, looks=2 * STALLED_CHECKS_MAX)
    assert await run_watched(function.call, function.turn) == "done"


async def test_a_debugger_takes_the_time_it_likes() -> None:
    function = Function(always(3), looks=2 * STALLED_CHECKS_MAX)
    scope = {"__name__": "pdb", "call": function.call}
    exec("def interaction(): return call()", scope)  # a frame of that module
    interaction = cast("Callable[[], str]", scope["interaction"])
    assert await run_watched(interaction, function.turn) == "done"


async def test_what_it_raises_is_raised() -> None:
    def fails() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError):
        await run_watched(fails, lambda: 1)


async def test_whoever_is_cancelled_leaves_it_behind() -> None:
    function = Function(always(2), looks=10_000)
    with anyio.move_on_after(0.02) as scope:
        await run_watched(function.call, function.turn)
    assert scope.cancelled_caught
    function.end()
