"""Polling helpers for conditions that send no notification."""

from collections.abc import Callable

import anyio


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds. Raises TimeoutError after a minute."""
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110  # there is nobody who could set an event
            await anyio.sleep(0.005)
