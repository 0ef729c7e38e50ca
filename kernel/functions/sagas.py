"""Compensations: what a durable function has done and has to undo if it fails or is cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import attrs

from holdfast.ports.errors import CompensationError, StepLostError, StepResultError

_UNKNOWN = (TimeoutError, StepLostError, StepResultError)
"""Errors of steps that may have taken effect, or have, without a known result."""


@attrs.define(eq=False)
class Compensation:
    """A registered compensation of one step."""

    what: str
    """The step, in words."""
    undo: Callable[[str | None], Coroutine[Any, Any, object]]
    """Undoes the step, given its result as JSON text, or None if that is unknown."""
    takes_unknown: bool = True
    """Whether `undo` accepts None. If not, the step's result is awaited."""
    future: "asyncio.Future[str] | None" = None
    """The step's result, once there is one."""
    output: str | None = None
    read: Callable[[str, int], Coroutine[Any, Any, object]] | None = None
    """Decodes the result before any compensation runs, given its JSON text and row number; may halt the function."""
    row: int = 0


class Compensations:
    """The registered compensations, which run in reverse order."""

    __slots__ = ("_due", "is_under_way")

    def __init__(self) -> None:
        self._due: list[Compensation] = []
        self.is_under_way = False
        """Whether compensations are running: then a cancellation of the run changes nothing."""

    def __bool__(self) -> bool:
        return bool(self._due)

    @property
    def whats(self) -> tuple[str, ...]:
        """Descriptions of the pending compensations."""
        return tuple(due.what for due in self._due)

    def expect(self, due: Compensation) -> Compensation:
        """Register a compensation when its step is called."""
        self._due.append(due)
        return due

    def failed(self, due: Compensation, error: Exception) -> None:
        """Remove the compensation of a failed step, unless the step may have taken effect."""
        if not isinstance(error, _UNKNOWN):
            self._due.remove(due)

    async def compensate(self) -> None:
        """Run the compensations, last one first. CompensationError if one can't be run."""
        self.is_under_way = True
        # A result that can't be decoded halts the function. That must happen before anything is undone.
        for due in self._due:
            if due.read is not None and (output := _known(due)) is not None:
                await due.read(output, due.row)
        while self._due:
            due = self._due.pop()
            if due.output is not None or due.takes_unknown or await _has_happened(due):
                with suppress(StepResultError):  # undone, and the result of a compensation is not used
                    await due.undo(due.output)


def _known(due: Compensation) -> str | None:
    """Return the result of the step, if it is known by now."""
    future = due.future
    if due.output is None and future is not None and future.done() and not future.cancelled():
        return None if future.exception() else future.result()
    return due.output


async def _has_happened(due: Compensation) -> bool:
    """Wait for a step in progress; return whether it took effect. CompensationError if its result stays unknown."""
    assert due.future is not None
    try:
        due.output = await due.future
    except _UNKNOWN as error:
        why = (
            f"{_what_is_known(error)} ({type(error).__name__}), and the compensation needs the result of the"
            " step; let it accept None"
        )
        raise CompensationError(due.what, why) from error
    except Exception:  # noqa: BLE001  # the step has failed, so there is nothing to undo
        return False
    return True


def _what_is_known(error: Exception) -> str:
    return "it was done" if isinstance(error, StepResultError) else "it is unknown whether it happened"
