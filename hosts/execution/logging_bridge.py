"""Handlers for Python's `logging`: store the records of bodies in the logs of their attempts, without repeats."""

import logging
from contextvars import ContextVar
from typing import Final

from typing_extensions import override

from holdfast.hosts.execution.attempt_runtime import AttemptRuntime
from holdfast.kernel.authoring.attempt_context import Level
from holdfast.kernel.functions.loop import FunctionLoop, running_loop

current_attempt: Final[ContextVar[AttemptRuntime | None]] = ContextVar("holdfast_speaking", default=None)
"""The attempt whose body runs in this context."""

_LEVELS: Final[tuple[tuple[int, Level], ...]] = (
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
)
_OURS: Final = "holdfast."


class AttemptLogHandler(logging.Handler):
    """A handler for Python's `logging` that stores the records of bodies in the logs of their attempts.

    Add it to a logger, once per process. Records from outside a body are ignored, and so are Holdfast's own. Tasks
    and threads that a body starts belong to it if they have a copy of its context, as asyncio's tasks have. Records
    that a durable function repeats in a replay are not stored again (see ReplayFilter).
    """

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Store a record. Never raises."""
        runtime = _speaker()
        if runtime is None or record.name.startswith(_OURS):
            return
        try:
            runtime.log(self.format(record), {"logger": record.name}, _level(record.levelno))
        except Exception:  # noqa: BLE001  # a record that cannot be formatted must not fail a body
            self.handleError(record)


class ReplayFilter(logging.Filter):
    """A filter for Python's `logging` that drops the records that a durable function repeats in a replay.

    Add it to handlers that would otherwise print such a record again in each replay. Records from outside durable
    functions pass. Records that were logged after the last row that a driver has stored pass again in a replay,
    because nothing shows that they were logged before.
    """

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to handle a record."""
        loop = running_loop()
        return loop is None or _is_live(loop)


def _speaker() -> AttemptRuntime | None:
    loop = running_loop()
    if loop is None:
        return current_attempt.get()
    return loop.log_target if _is_live(loop) and isinstance(loop.log_target, AttemptRuntime) else None


def _is_live(loop: FunctionLoop) -> bool:
    """Return whether a function is driven, rather than inspected, and is past its recorded history."""
    return loop.log_target is not None and not loop.is_replaying


def _level(number: int) -> Level:
    for least, name in _LEVELS:
        if number >= least:
            return name
    return "debug"
