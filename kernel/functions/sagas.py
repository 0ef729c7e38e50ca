"""What a function has done and would have to take back, should it fail or be cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import attrs

from holdfast.ports.errors import CompensationError, StepLostError, StepResultError

_UNKNOWN = (TimeoutError, StepLostError, StepResultError)
"""What a step fails with that may have happened, or has, and of which nobody knows what it gave."""


@attrs.define(eq=False)
class Due:
    """One thing to take back. `undo` does so; it gets the JSON text of what the step gave, or None if nobody knows it.

    With `takes_unknown` it can do without; otherwise the outcome is waited for, which `future` will bring.
    """

    what: str
    undo: Callable[[str | None], Coroutine[Any, Any, object]]
    takes_unknown: bool = True
    future: "asyncio.Future[str] | None" = None
    output: str | None = None
    read: Callable[[str, int], Coroutine[Any, Any, object]] | None = None
    """Reads what the step gave, given the number of its row. If it can't be read the function is halted."""
    row: int = 0


class Saga:
    """Keeps what is due, in the order in which it was begun, and takes it back in reverse order."""

    __slots__ = ("_due", "is_under_way")

    def __init__(self) -> None:
        self._due: list[Due] = []
        self.is_under_way = False
        """Whether it is being taken back: then a cancellation changes nothing any more."""

    def __bool__(self) -> bool:
        return bool(self._due)

    @property
    def whats(self) -> tuple[str, ...]:
        """What would have to be taken back, in words."""
        return tuple(due.what for due in self._due)

    def expect(self, due: Due) -> Due:
        """Note that something is begun."""
        self._due.append(due)
        return due

    def failed(self, due: Due, error: Exception) -> None:
        """Note that a step has failed for good. It stays due if it may have happened all the same."""
        if not isinstance(error, _UNKNOWN):
            self._due.remove(due)

    async def compensate(self) -> None:
        """Take back what is due, the last of it first. CompensationError if that can't be done."""
        self.is_under_way = True
        for due in self._due:  # all are looked at before anything is taken back
            if due.read is not None and (output := _known(due)) is not None:
                await due.read(output, due.row)
        while self._due:
            due = self._due.pop()
            if due.output is not None or due.takes_unknown or await _has_happened(due):
                with suppress(StepResultError):  # it is taken back, and nobody asks for what that gave
                    await due.undo(due.output)


def _known(due: Due) -> str | None:
    """Return what a step gave, if that is known by now."""
    future = due.future
    if due.output is None and future is not None and future.done() and not future.cancelled():
        return None if future.exception() else future.result()
    return due.output


async def _has_happened(due: Due) -> bool:
    """Wait for what a step gives that is still under way. CompensationError if nobody will ever know."""
    assert due.future is not None
    try:
        due.output = await due.future
    except _UNKNOWN as error:
        why = (
            f"{_what_is_known(error)} ({type(error).__name__}), and what would do it can't do without what the step"
            " gave; have it take None, too"
        )
        raise CompensationError(due.what, why) from error
    except Exception:  # noqa: BLE001  # it has failed, so there is nothing to take back
        return False
    return True


def _what_is_known(error: Exception) -> str:
    return "it was done" if isinstance(error, StepResultError) else "nobody knows whether it happened"
