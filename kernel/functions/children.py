"""The child runs of a durable function, and their results."""

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.kernel.functions.protocol import ChildEnded


class Children:
    """Keeps the ends of child runs until the function awaits them.

    `new_future` creates a future on the function's loop.
    """

    __slots__ = ("_bound", "_ends", "_new_future", "_rows", "_started", "_waiting")

    def __init__(self, new_future: "Callable[[], asyncio.Future[Any]]") -> None:
        self._new_future = new_future
        self._ends: dict[str, ChildEnded] = {}
        self._bound: dict[str, None] = {}
        self._started: dict[str, Callable[[ChildEnded, int], object]] = {}
        self._rows: dict[str, int] = {}
        self._waiting: dict[str, list[asyncio.Future[ChildEnded]]] = {}

    @property
    def are_waited_for(self) -> bool:
        """Whether the function awaits the end of a child run."""
        return any(not future.done() for futures in self._waiting.values() for future in futures)

    @property
    def awaited(self) -> tuple[str, ...]:
        """The ids of the child runs whose ends are awaited."""
        return tuple(
            run for run, futures in self._waiting.items() if any(not future.done() for future in futures)
        )

    @property
    def bound(self) -> tuple[str, ...]:
        """The ids of active child runs that are closed with this run."""
        return tuple(run for run in self._bound if run not in self._ends)

    def begin(self, run: str, check: Callable[[ChildEnded, int], object], *, is_bound: bool) -> None:
        """Register a child run that was started; `is_bound` if it is closed with this run.

        `check` is called with its end, and the number of the row, before anything that awaits the child continues.
        """
        self._started[run] = check
        if is_bound:
            self._bound[run] = None
        if run in self._ends:
            check(self._ends[run], self._rows[run])

    def end(self, ended: ChildEnded, row: int, *, wakes: bool) -> None:
        """Store the end of a child run and, with `wakes`, resume what awaits it. A repeated end is ignored."""
        if ended.run not in self._ends:
            self._ends[ended.run], self._rows[ended.run] = ended, row
            if ended.run in self._started:
                self._started[ended.run](ended, row)
        for future in self._waiting.pop(ended.run, ()):
            if wakes and not future.done():
                future.set_result(self._ends[ended.run])

    async def ended(self, run: str) -> ChildEnded:
        """Wait for the end of a child run and return it."""
        if run not in self._ends:
            future: asyncio.Future[ChildEnded] = self._new_future()
            self._waiting.setdefault(run, []).append(future)
            return await future
        return self._ends[run]
