"""Calls that run functions, made in threads: one whose function does not get quiet is given up."""

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TypeVar, cast

import anyio

from holdfast.hosts.execution.event_loops import Event
from holdfast.hosts.execution.threads import begin_in_thread
from holdfast.ports.errors import RestlessError

T = TypeVar("T")

ROUND: Final = 0.25
"""Seconds between two looks at a function."""
ROUNDS_MAX: Final = 8
"""How many times it may be found in the same turn. These are counted, for a machine that sleeps lets no round pass."""
_EXCUSED: Final = ("bdb", "pdb", "pydevd", "_pydevd", "debugpy", "importlib._bootstrap")
"""The modules that take their time, and for which nothing can be done: debuggers, and imports, which end."""


async def in_turns(call: Callable[[], T], turn: Callable[[], int]) -> T:
    """Make a call in a thread; return what it gives, or raise what it raises. Whoever is cancelled leaves it behind.

    `turn` gives which turn the function is in, as `FunctionMachine.turn`. RestlessError if it is in the same for some
    two seconds: then the call is left behind, too. How it is stopped is for whoever called.
    """
    threads: list[int] = []
    results: list[T] = []
    errors: list[BaseException] = []

    def make() -> None:
        threads.append(threading.get_ident())
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  # it is raised again where the call is awaited
            errors.append(error)

    await quiet(begin_in_thread(make), turn, threads)
    if errors:
        raise errors[0]
    return results[0]


async def quiet(done: Event, turn: Callable[[], int], threads: list[int]) -> None:
    """Wait until a call is done that one of these threads makes. RestlessError, as `in_turns`."""
    rounds, before = 0, 0
    while not done.is_set():
        with anyio.move_on_after(ROUND):
            await done.wait()
            return
        now = turn()
        # It is odd while the function runs: what a store or a blob store takes is not the function's time.
        rounds = rounds + 1 if now == before and now % 2 and not _is_excused(threads) else 0
        before = now
        if rounds >= ROUNDS_MAX:
            frame = _frame(threads)
            site = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}" if frame else ""
            raise RestlessError(seconds=ROUND * ROUNDS_MAX, site=site)


def _is_excused(threads: list[int]) -> bool:
    frame = _frame(threads)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_EXCUSED):
            return True
        frame = frame.f_back
    return False


def _frame(threads: list[int]) -> FrameType | None:
    """Return where the call is; None if that is not known."""
    frames = cast("dict[int, FrameType]", cast("Any", sys)._current_frames())
    return frames.get(threads[0]) if threads else None
