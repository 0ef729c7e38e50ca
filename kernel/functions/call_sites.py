"""Finds call sites: where in user code a call was made, and which asyncio function creates a task."""

import asyncio
import sys
from inspect import currentframe
from types import CodeType, FrameType
from typing import Final, cast

_OURS: Final = ("asyncio.", "holdfast.kernel.", "contextlib")
_BETWEEN: Final = ("caller", "create_task", "ensure_future", "_ensure_future", "<setcomp>")
"""Names of the functions, here and in asyncio, between a loop's `create_task` and the function that wants the task."""

_PLACES_MAX: Final = 10_000
"""Maximum number of cached code locations."""
_PLACES: Final[dict[tuple[int, int], tuple[CodeType, str]]] = {}
"""Locations as `<file>:<line>` by code object and instruction; "" outside of user code. Keeps the code object alive."""

_CHAIN_MAX: Final = 3
"""How many frames of a chain of waiting coroutines are named."""


def call_site(ours: int = 1) -> str:
    """Return the location in user code that calls into Holdfast, as `<file>:<line>`; "" outside user code.

    `ours` is the number of callers that are known to be Holdfast's own, which saves looking at their frames.
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
    """Return the location of a frame and cache it, since computing the line is slow."""
    place = "" if _module(frame).startswith(_OURS) else _place(frame)
    if len(_PLACES) >= _PLACES_MAX:
        _PLACES.clear()
    _PLACES[id(frame.f_code), frame.f_lasti] = frame.f_code, place
    return place


def waits_at(coroutine: object) -> str:
    """Return where a suspended coroutine waits: `<file>:<line> in <function>`, outermost first; "" outside user code.

    Of a long chain, only the innermost frames are named.
    """
    found: list[str] = []
    while coroutine is not None:
        frame = cast("FrameType | None", getattr(coroutine, "cr_frame", getattr(coroutine, "ag_frame", None)))
        if frame is not None and not _module(frame).startswith(_OURS):
            found.append(f"{_place(frame)} in {frame.f_code.co_name}")
        coroutine = getattr(coroutine, "cr_await", getattr(coroutine, "ag_await", None))
    return ", ".join(found[-_CHAIN_MAX:])


def caller() -> FrameType | None:
    """Return the frame of the function that creates a task."""
    frame = currentframe()
    while frame is not None and frame.f_code.co_name in _BETWEEN and _module(frame).startswith(_OURS):
        frame = frame.f_back
    return frame


def is_wait_for(frame: FrameType | None) -> bool:
    """Whether `asyncio.wait_for` creates a task. It does so up to Python 3.11 only (docs/decisions/0020)."""
    return frame is not None and frame.f_code is asyncio.wait_for.__code__


def as_completed_awaitables(frame: FrameType | None) -> object:
    """Return the argument of `asyncio.as_completed` if that creates a task, else None."""
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
