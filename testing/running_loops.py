"""Calls that must not see the event loop of their thread."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")


def call_outside(call: Callable[[], T]) -> T:
    """Make a call as if this thread ran no event loop: it may run a loop itself, or switch to another fiber."""
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
    """Unset the loop's current task, and return it: Python 3.14 stores it by thread, not by loop."""
    swap = cast("Any", getattr(asyncio.tasks, "_swap_current_task", None))
    if swap is None or asyncio.current_task(loop) is None:  # Python 3.12.1 can't swap without a task
        return None
    return cast("asyncio.Task[Any] | None", swap(loop, None))


def _enter_task(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any] | None") -> None:
    if task is not None:
        cast("Any", asyncio.tasks)._swap_current_task(loop, task)
