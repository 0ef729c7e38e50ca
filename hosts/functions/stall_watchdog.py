"""Watchdog for calls that run durable functions in threads: a function that computes without waiting is given up."""

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TypeVar, cast

import anyio

from holdfast.hosts.execution.caught_calls import CaughtCall
from holdfast.hosts.execution.event_loops import Event
from holdfast.hosts.execution.threads import begin_in_thread
from holdfast.ports.errors import WorkflowStalledError

T = TypeVar("T")

CHECK_INTERVAL: Final = 0.25
"""Seconds between two checks of a function."""
STALLED_CHECKS_MAX: Final = 8
"""In how many checks in a row a function may be in the same turn.

Checks are counted instead of seconds, because a suspended machine makes no checks.
"""
_EXCUSED: Final = ("bdb", "pdb", "pydevd", "_pydevd", "debugpy", "importlib._bootstrap")
"""Modules that may take long without being at fault: debuggers, and imports, which end."""


async def run_watched(call: Callable[[], T], turn: Callable[[], int]) -> T:
    """Run a call in a thread; return its result or raise its error. A cancelled caller abandons it.

    `turn` returns the turn that the function is in, as `FunctionMachine.turn`. WorkflowStalledError if the turn does
    not change for about two seconds: then the call is abandoned, and the caller has to stop the function.
    """
    threads: list[int] = []
    caught = CaughtCall(call)

    def make() -> None:
        threads.append(threading.get_ident())
        caught()

    await wait_watched(begin_in_thread(make), turn, threads)
    return caught.result()


async def wait_watched(done: Event, turn: Callable[[], int], threads: list[int]) -> None:
    """Wait for a call that one of these threads makes. WorkflowStalledError, see `run_watched`."""
    rounds, before = 0, 0
    while not done.is_set():
        with anyio.move_on_after(CHECK_INTERVAL):
            await done.wait()
            return
        now = turn()
        # An odd turn means that the function runs: waiting for a store or a blob store does not count.
        rounds = rounds + 1 if now == before and now % 2 and not _is_excused(threads) else 0
        before = now
        if rounds >= STALLED_CHECKS_MAX:
            frame = _frame(threads)
            site = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}" if frame else ""
            raise WorkflowStalledError(seconds=CHECK_INTERVAL * STALLED_CHECKS_MAX, site=site)


def _is_excused(threads: list[int]) -> bool:
    frame = _frame(threads)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_EXCUSED):
            return True
        frame = frame.f_back
    return False


def _frame(threads: list[int]) -> FrameType | None:
    """Return the current frame of the call; None if it is unknown."""
    frames = cast("dict[int, FrameType]", cast("Any", sys)._current_frames())
    return frames.get(threads[0]) if threads else None
