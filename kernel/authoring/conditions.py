"""Waiting for a condition on the state of a durable function."""

import asyncio
from collections.abc import Callable

from holdfast.kernel.functions.loop import loop_for
from holdfast.ports.durations import NO_TIME, Duration
from holdfast.ports.validation import Wanted, check, duration

_CONDITION = Wanted("a function without parameters, such as lambda: len(done) == 3", callable)


async def wait_until(condition: Callable[[], object], /, *, timeout: Duration | None = None) -> None:
    """Wait until a condition on the function's own state holds.

    `await wait_until(lambda: len(votes) >= 3)`. The condition is checked at once, and then each time that code of the
    function has run: an update, a task, or what follows the result of a step. It only reads: it makes no calls, waits
    for nothing and does not ask for the time. For a time limit use `timeout`.

    Args:
        condition: Called without arguments. It holds if it returns a true value. What it raises is raised here.
        timeout: A timedelta or a number of seconds.

    Raises:
        TimeoutError: The condition did not hold within `timeout`.
        InvalidArgumentError: An argument is of the wrong type.
        RuntimeError: It was not called by a durable function, or the condition made a call.
    """
    check("wait_until", _CONDITION, condition=condition)
    conditions = loop_for("holdfast.workflows.wait_until()").conditions
    if timeout is None:
        return await conditions.hold(condition)
    async with asyncio.timeout(duration("wait_until", "timeout", timeout, least=NO_TIME).total_seconds()):
        await conditions.hold(condition)
    return None


def updates_done() -> bool:
    """Return whether no update of this durable function is in progress: `await wait_until(updates_done)`.

    An update that has arrived and for which nothing is exposed yet is not in progress. An update that asks counts
    itself. RuntimeError outside of a workflow.
    """
    return not loop_for("holdfast.workflows.updates_done()").updates.are_under_way
