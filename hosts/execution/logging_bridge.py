"""Sends what libraries log, while a body runs, to the log of its attempt; and only once what functions log."""

import logging
from contextvars import ContextVar
from typing import Final

from typing_extensions import override

from holdfast.hosts.execution.attempt_runtime import AttemptRuntime
from holdfast.kernel.authoring.stage_context import Level
from holdfast.kernel.functions.loop import FunctionLoop, running_loop

speaking: Final[ContextVar[AttemptRuntime | None]] = ContextVar("holdfast_speaking", default=None)
"""The attempt whose body runs in this context."""

_LEVELS: Final[tuple[tuple[int, Level], ...]] = (
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
)
_OURS: Final = "holdfast."


class AttemptLogHandler(logging.Handler):
    """A handler for Python's `logging` that keeps the records which bodies make in the logs of their attempts.

    Add it to a logger, once for a process. Records that no body makes are left alone, and so are Holdfast's own. Tasks
    and threads that a body starts belong to it where they have a copy of its context, as asyncio's tasks have. What a
    durable function says again in a replay is not kept again (see ReplayFilter).
    """

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record. Never raises."""
        runtime = _speaker()
        if runtime is None or record.name.startswith(_OURS):
            return
        try:
            runtime.log(self.format(record), {"logger": record.name}, _level(record.levelno))
        except Exception:  # noqa: BLE001  # a record that can't be printed must not be what fails a body
            self.handleError(record)


class ReplayFilter(logging.Filter):
    """A filter for Python's `logging` that lets pass what a durable function says for the first time only.

    Add it to handlers, of which each would otherwise print a line again in each replay. What no function says passes.
    What was said after the last row that a driver has recorded passes again in a replay: nobody knows that it was said.
    """

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is to be handled."""
        loop = running_loop()
        return loop is None or _is_live(loop)


def _speaker() -> AttemptRuntime | None:
    loop = running_loop()
    if loop is None:
        return speaking.get()
    return loop.speaker if _is_live(loop) and isinstance(loop.speaker, AttemptRuntime) else None


def _is_live(loop: FunctionLoop) -> bool:
    """Whether a function is driven, and past all that it has done before."""
    return loop.speaker is not None and not loop.is_replaying


def _level(number: int) -> Level:
    for least, name in _LEVELS:
        if number >= least:
            return name
    return "debug"
