"""Handlers for Python's `logging`: store the records of bodies in the logs of their attempts, without repeats."""

import logging
from contextvars import ContextVar
from typing import Final

from typing_extensions import override

from holdfast.kernel.authoring.attempt_context import Level, LogTarget
from holdfast.kernel.authoring.workflow_context import FunctionOutputTarget
from holdfast.kernel.functions.loop import running_loop

current_attempt: Final[ContextVar[LogTarget | None]] = ContextVar("holdfast_log_target", default=None)
"""What receives the log of the body that runs in this context."""

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
        target = _target()
        if target is None or record.name.startswith(_OURS):
            return
        try:
            target.log(self.format(record), {"logger": record.name}, _level(record.levelno))
        except Exception:  # noqa: BLE001  # a record that cannot be formatted must not fail a body
            self.handleError(record)


class ReplayFilter(logging.Filter):
    """A filter for Python's `logging` that drops the records that a durable function repeats in a replay.

    Add it to handlers that would otherwise print such a record again in each replay. Records from outside durable
    functions pass. Records that were logged after a driver last stored rows pass again in a replay, because nothing
    shows that they were logged before.
    """

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to handle a record."""
        loop = running_loop()
        return loop is None or loop.is_live


def _target() -> LogTarget | None:
    """Return what receives the log of the current body; None for none, or for a function that is evicted or queried."""
    loop = running_loop()
    if loop is None:
        return current_attempt.get()
    return None if loop.is_evicted or loop.is_queried else FunctionOutputTarget(loop)


def _level(number: int) -> Level:
    for least, name in _LEVELS:
        if number >= least:
            return name
    return "debug"
