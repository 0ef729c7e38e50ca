"""Escapes log records, so that foreign text in them can neither forge log lines nor send terminal control codes.

Names, errors and replies come from users, receivers and databases, and may contain anything. Each record of Holdfast is
one line, with its traceback indented below it, whatever handlers the program has.
"""

import logging
import traceback
from textwrap import indent
from typing import Final

from holdfast.ports.texts import escape_line, escape_text

LOGGERS: Final = (
    *(
        "holdfast.ai",
        "holdfast.aws",
        "holdfast.cli",
        "holdfast.client",
        "holdfast.endings",
        "holdfast.engine",
    ),
    *("holdfast.events", "holdfast.functions", "holdfast.http", "holdfast.http.access"),
    *("holdfast.interceptors", "holdfast.listener"),
    *("holdfast.maintenance", "holdfast.nats", "holdfast.remote", "holdfast.remote.steps"),
    *("holdfast.removing", "holdfast.runs"),
    *("holdfast.server", "holdfast.sql", "holdfast.testing", "holdfast.triggers"),
    *("holdfast.supervisor", "holdfast.wake_ups", "holdfast.worker"),
)
"""All loggers of Holdfast. The filters of a logger do not apply to its children, so each needs its own."""


def escape_logs() -> None:
    """Install the filter on all loggers of Holdfast. Idempotent."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(escape_record)


def escape_record(record: logging.LogRecord) -> bool:
    """Escape the message and the traceback of a record. Always returns True, to keep the record."""
    message = record.getMessage()
    escaped = escape_line(message)
    if escaped != message:
        record.msg, record.args = escaped, None
    if record.exc_info and record.exc_info[0] is not None:
        # Handlers print exc_text if it is set; handlers that format tracebacks themselves still have exc_info.
        record.exc_text = traceback_text(record)
    return True


def traceback_text(record: logging.LogRecord) -> str:
    """Return the traceback of a record as indented lines; empty if it has none."""
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return indent(
        escape_text("".join(traceback.format_exception(*record.exc_info)).rstrip()), "  ", lambda _: True
    )
