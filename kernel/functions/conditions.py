"""The conditions that a durable function waits for, over its own state."""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any


class Conditions:
    """Checks conditions when nothing of the function can run, and wakes those that wait for one that holds.

    Conditions are checked in the order of their waits: a replay runs the same code between two checks, so it finds the
    same. `new_future` creates a future on the function's loop; `look` calls a condition, which only reads.
    """

    __slots__ = ("_look", "_new_future", "_waiting")

    def __init__(
        self,
        new_future: "Callable[[], asyncio.Future[Any]]",
        look: Callable[[Callable[[], object]], object],
    ) -> None:
        self._new_future = new_future
        self._look = look
        self._waiting: dict[asyncio.Future[None], tuple[Callable[[], object], Context]] = {}

    async def hold(self, condition: Callable[[], object]) -> None:
        """Return when the condition holds; raise what it raises."""
        if self._look(condition):
            return
        future: asyncio.Future[None] = self._new_future()
        self._waiting[future] = condition, copy_context()
        try:
            await future
        finally:
            self._waiting.pop(future, None)

    def check(self) -> None:
        """Check all conditions that are waited for, and wake their waiters."""
        for future, (condition, context) in tuple(self._waiting.items()):
            if not future.done():
                try:
                    holds = context.run(self._look, condition)
                except Exception as error:  # noqa: BLE001  # raised where the function waits for the condition
                    future.set_exception(error)
                else:
                    if holds:
                        future.set_result(None)
