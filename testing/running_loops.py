"""Hides the event loop that runs in a thread from what is called in its midst."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")


def call_outside(call: Callable[[], T]) -> T:
    """Make a call as if no event loop ran in this thread: the call may run one of its own, or go to another fiber."""
    loop = asyncio._get_running_loop()
    if loop is None:
        return call()
    task = _leave_task(loop)
    asyncio._set_running_loop(None)
    try:
        return call()
    finally:
        asyncio._set_running_loop(loop)
        _enter_task(loop, task)


def _leave_task(loop: asyncio.AbstractEventLoop) -> "asyncio.Task[Any] | None":
    """Make the loop's current task nobody's, and return it: Python 3.14 keeps it by thread, not by loop."""
    swap = cast("Any", getattr(asyncio.tasks, "_swap_current_task", None))
    if swap is None or asyncio.current_task(loop) is None:  # Python 3.12.1 can't swap where there is none
        return None
    return cast("asyncio.Task[Any] | None", swap(loop, None))


def _enter_task(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any] | None") -> None:
    if task is not None:
        cast("Any", asyncio.tasks)._swap_current_task(loop, task)
