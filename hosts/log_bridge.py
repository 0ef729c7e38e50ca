"""Sends what libraries log, while a body runs, to the log of its attempt."""

import logging
from contextvars import ContextVar
from typing import Final

from typing_extensions import override

from holdfast.hosts.runtime import AttemptRuntime
from holdfast.kernel.authoring.context import Level

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
    and threads that a body starts belong to it where they have a copy of its context, as asyncio's tasks have.
    """

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record. Never raises."""
        runtime = speaking.get()
        if runtime is None or record.name.startswith(_OURS):
            return
        try:
            runtime.log(self.format(record), {"logger": record.name}, _level(record.levelno))
        except Exception:  # noqa: BLE001  # a record that can't be printed must not be what fails a body
            self.handleError(record)


def _level(number: int) -> Level:
    for least, name in _LEVELS:
        if number >= least:
            return name
    return "debug"
