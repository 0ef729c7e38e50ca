"""The runs that a function has started, and what came of them."""

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.kernel.functions.protocol import ChildEnded


class Children:
    """Keeps the ends of runs, whether anybody waits for them or not.

    `new_future` makes a future of the loop that the function runs on.
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
        """Whether anybody waits for the end of one."""
        return any(not future.done() for futures in self._waiting.values() for future in futures)

    @property
    def awaited(self) -> tuple[str, ...]:
        """The runs whose ends are awaited, by their ids."""
        return tuple(
            run for run, futures in self._waiting.items() if any(not future.done() for future in futures)
        )

    @property
    def bound(self) -> tuple[str, ...]:
        """Those that have not ended, and are not to outlive this run."""
        return tuple(run for run in self._bound if run not in self._ends)

    def begin(self, run: str, check: Callable[[ChildEnded, int], object], *, is_bound: bool) -> None:
        """Note that one was started; `is_bound` says that it is not to outlive this run.

        `check` is given its end with the number of the row that tells of that, before anybody is.
        """
        self._started[run] = check
        if is_bound:
            self._bound[run] = None
        if run in self._ends:
            check(self._ends[run], self._rows[run])

    def end(self, ended: ChildEnded, row: int, *, wakes: bool) -> None:
        """Take in that one has ended, and wake who waits for it. What is told again changes nothing."""
        if ended.run not in self._ends:
            self._ends[ended.run], self._rows[ended.run] = ended, row
            if ended.run in self._started:
                self._started[ended.run](ended, row)
        for future in self._waiting.pop(ended.run, ()):
            if wakes and not future.done():
                future.set_result(self._ends[ended.run])

    async def ended(self, run: str) -> ChildEnded:
        """Wait for the end of one, and return it."""
        if run not in self._ends:
            future: asyncio.Future[ChildEnded] = self._new_future()
            self._waiting.setdefault(run, []).append(future)
            return await future
        return self._ends[run]
