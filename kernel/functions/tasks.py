"""Tasks and futures that hash by order of creation, so that sets of them iterate alike in every process."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from typing import Any, Final, Protocol, Self, TypeVar, cast

from typing_extensions import override

from holdfast.ports.errors import NotDurableError

T = TypeVar("T")


_OF_THREADS: Final = "WorkerThread.stop"
"""The callback of anyio's tasks that use a thread. Adding it is the only point at which the thread can be refused."""


_OF_SCOPES: Final = "_deliver_cancellation"
"""The function in which anyio cancels tasks. Afterwards it always has the loop call it again."""


def forget_scopes(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Make anyio forget tasks that will never run again.

    anyio keeps the cancel scope of each task by a weak reference to the task. But the scope refers to the task: one
    that was not left would keep the task for ever, with everything to which its code refers.
    """
    states = getattr(sys.modules.get("anyio._backends._asyncio"), "_task_states", None)
    if states is not None:
        for task in tasks:
            states.pop(task, None)


class CancelsTogether(Protocol):
    """A loop that applies cancellations made in one go in the order in which the tasks were created."""

    def cancel_soon(self, task: "RunTask[Any]", msg: Any | None, /) -> None:
        """Cancel a task before the next callback is scheduled."""
        ...


class Numbers:
    """Generates the names of the calls of one task."""

    __slots__ = ("_last", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._last = 0

    def next(self) -> str:
        """Return the name of the next call: the path of the task and a number."""
        self._last += 1
        return f"{self.path}.{self._last}" if self.path else str(self._last)


class RunFuture(asyncio.Future[T]):
    """A future that hashes by order of creation. Its creator sets `number`, which avoids a call of `__init__`."""

    __slots__ = ("number",)

    number: int

    @override
    def __hash__(self) -> int:
        return self.number

    @override
    def __eq__(self, other: object) -> bool:
        return self is other


class RunTask(asyncio.Task[T]):
    """A task that hashes by order of creation and has a path in the tree of tasks."""

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
        # asyncio keeps all tasks of the process in one set. Numbers start at 1 in each function, so thousands of tasks
        # would have the same hash there. The set keeps the hash from the insertion, which `super().__init__` makes.
        self._number = id(self)
        self.numbers = numbers
        super().__init__(coroutine, loop=loop, name=name or f"Task-{numbers.path}", context=context)
        self._number = number

    @property
    def number(self) -> int:
        """The order of its creation."""
        return self._number

    @override
    def cancel(self, msg: Any | None = None) -> bool:
        # anyio cancels the tasks of nested scopes in the order of the scopes' addresses. So these cancellations are
        # collected and applied in the order in which the tasks were created (docs/decisions/0064).
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # `inspect` takes longer
        if frame.f_code.co_name == _OF_SCOPES and not self.done():
            cast("CancelsTogether", self.get_loop()).cancel_soon(self, msg)
            return True
        return super().cancel(msg)

    def cancel_now(self, msg: Any | None) -> None:
        """Cancel the task at once."""
        super().cancel(msg)

    @override
    def add_done_callback(self, fn: "Callable[[Self], object]", /, *, context: Context | None = None) -> None:
        if getattr(fn, "__qualname__", "") == _OF_THREADS:
            fn(self)  # ends the thread, which has no work yet
            raise NotDurableError("anyio.to_thread.run_sync")
        super().add_done_callback(fn, context=context)

    @override
    def __hash__(self) -> int:
        return self._number

    @override
    def __eq__(self, other: object) -> bool:
        return self is other


class RunTimer(asyncio.TimerHandle):
    """A timer with the call that requested it; "" if it was due when it was set."""

    __slots__ = ("call",)

    call: str
