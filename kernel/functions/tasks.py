"""Tasks and futures that hash by the number in which they were made: a set of them has one order on every Python."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final, Protocol, Self, TypeVar, cast

from typing_extensions import override

from holdfast.ports.errors import NotDurableError

T = TypeVar("T")


_OF_THREADS: Final = "WorkerThread.stop"
"""What anyio has a task call in the end that uses a thread of its own: there is no other place to refuse that."""


_OF_SCOPES: Final = "_deliver_cancellation"
"""What anyio cancels tasks in. Whenever it has, the last that it does is to have the loop call it again."""


class CancelsTogether(Protocol):
    """A loop that cancels tasks in the order in which they were made."""

    def cancel_soon(self, task: "RunTask[Any]", msg: Any | None, /) -> None:
        """Have a task cancelled before anything else is made to run."""
        ...


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

    @property
    def number(self) -> int:
        """In which it was made."""
        return self._number

    @override
    def cancel(self, msg: Any | None = None) -> bool:
        # anyio cancels the tasks of nested scopes in the order of these scopes' addresses. What it cancels in one go is
        # cancelled at its end, in the order in which the tasks were made.
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # `inspect` takes longer
        if frame.f_code.co_name == _OF_SCOPES and not self.done():
            cast("CancelsTogether", self.get_loop()).cancel_soon(self, msg)
            return True
        return super().cancel(msg)

    def cancel_now(self, msg: Any | None) -> None:
        """Cancel it."""
        super().cancel(msg)

    @override
    def add_done_callback(self, fn: "Callable[[Self], object]", /, *, context: Context | None = None) -> None:
        if getattr(fn, "__qualname__", "") == _OF_THREADS:
            fn(self)  # ends the thread, which has been given nothing to do yet
            raise NotDurableError("anyio.to_thread.run_sync")
        super().add_done_callback(fn, context=context)

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
