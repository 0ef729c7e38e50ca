"""Tasks and futures that hash by the number in which they were made: a set of them has one order on every Python."""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

from typing_extensions import override

T = TypeVar("T")


class Numbers:
    """Gives out the numbers of one task's calls."""

    __slots__ = ("_last", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._last = 0

    def next(self) -> str:
        """Return the next call's name: its task's path and a number."""
        self._last += 1
        return f"{self.path}.{self._last}" if self.path else str(self._last)


class RunFuture(asyncio.Future[T]):
    """A future that hashes by the number in which it was made. Whoever makes it sets that: it takes no call then."""

    __slots__ = ("number",)

    number: int

    @override
    def __hash__(self) -> int:
        return self.number

    @override
    def __eq__(self, other: object) -> bool:
        return self is other


class RunTask(asyncio.Task[T]):
    """A task that hashes by the number in which it was made, and has a path in the tree of tasks."""

    __slots__ = ("_number", "numbers")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        *,
        loop: asyncio.AbstractEventLoop,
        number: int,
        numbers: Numbers,
        name: str | None,
        context: Context | None,
    ) -> None:
        # asyncio keeps all tasks of a process in one set, where those of all functions would have the same few hashes:
        # each would be compared with all. What is in that set has the hash from when it was put there.
        self._number = id(self)
        self.numbers = numbers
        super().__init__(coroutine, loop=loop, name=name or f"Task-{numbers.path}", context=context)
        self._number = number

    @override
    def __hash__(self) -> int:
        return self._number

    @override
    def __eq__(self, other: object) -> bool:
        return self is other


class RunTimer(asyncio.TimerHandle):
    """A timer that knows by which call it was asked for; "" if its time had come already."""

    __slots__ = ("call",)

    call: str
