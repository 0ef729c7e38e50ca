"""Who calls: where in the user's code, and which function of asyncio makes a task."""

import asyncio
import sys
from inspect import currentframe
from types import CodeType, FrameType
from typing import Final, cast

_OURS: Final = ("asyncio.", "holdfast.kernel.", "contextlib")
_BETWEEN: Final = ("caller", "create_task", "ensure_future", "_ensure_future", "<setcomp>")
"""What is between a loop's `create_task` and the function that wants the task, in asyncio and here."""

_PLACES_MAX: Final = 10_000
"""How many places in code are known by what people call them."""
_PLACES: Final[dict[tuple[int, int], tuple[CodeType, str]]] = {}
"""What people call places, "" for those that are none of the user's: by the code, which is kept, and where in it."""

_CHAIN_MAX: Final = 3
"""How many functions that wait for each other are named."""


def call_site(ours: int = 1) -> str:
    """Return where the code is that a durable function is in, as `<file>:<line>`; "" if it is none of the user's.

    `ours` is how many callers are certain to be none of the user's: to look at a frame takes its time.
    """
    frame: FrameType | None = sys._getframe(1 + ours)  # pyright: ignore[reportPrivateUsage]  # `inspect` can't skip any
    while frame is not None and frame.f_code.co_name != "run_until_quiet_here":
        code = frame.f_code
        known = _PLACES.get((id(code), frame.f_lasti))
        place = _learn(frame) if known is None else known[1]
        if place:
            return place
        frame = frame.f_back
    return ""


def _learn(frame: FrameType) -> str:
    """Return what people call the place where a frame is, and remember it: to find the line takes longer."""
    place = "" if _module(frame).startswith(_OURS) else _place(frame)
    if len(_PLACES) >= _PLACES_MAX:
        _PLACES.clear()
    _PLACES[id(frame.f_code), frame.f_lasti] = frame.f_code, place
    return place


def waits_at(coroutine: object) -> str:
    """Return where a coroutine waits that is not running: `<file>:<line> in <function>`, from the outermost on.

    "" if that is in none of the user's code. Of a long chain the last are given.
    """
    found: list[str] = []
    while coroutine is not None:
        frame = cast("FrameType | None", getattr(coroutine, "cr_frame", getattr(coroutine, "ag_frame", None)))
        if frame is not None and not _module(frame).startswith(_OURS):
            found.append(f"{_place(frame)} in {frame.f_code.co_name}")
        coroutine = getattr(coroutine, "cr_await", getattr(coroutine, "ag_await", None))
    return ", ".join(found[-_CHAIN_MAX:])


def caller() -> FrameType | None:
    """Return the frame of the function that wants a task."""
    frame = currentframe()
    while frame is not None and frame.f_code.co_name in _BETWEEN and _module(frame).startswith(_OURS):
        frame = frame.f_back
    return frame


def is_wait_for(frame: FrameType | None) -> bool:
    """Whether a task is made by `asyncio.wait_for`. It does so up to Python 3.11 only."""
    return frame is not None and frame.f_code is asyncio.wait_for.__code__


def as_completed_awaitables(frame: FrameType | None) -> object:
    """Return what `asyncio.as_completed` was given, if a task is made by it; None if not."""
    if frame is None or frame.f_code is not _as_completed():
        return None
    return cast("object", frame.f_locals.get("fs", frame.f_locals.get("aws")))


def _as_completed() -> object:
    iterator = getattr(asyncio.tasks, "_AsCompletedIterator", None)  # since Python 3.13
    return (iterator.__init__ if iterator else asyncio.as_completed).__code__


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


def _module(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name
