"""What Holdfast logs of others' texts can neither pass for a line of its own nor command a terminal.

Names, errors and answers come from users, receivers and databases, and so may hold anything. Whatever handlers a
program has, each record of Holdfast's is one line, and a traceback below it is indented.
"""

import logging
import traceback
from textwrap import indent
from typing import Final

from holdfast.ports.texts import escape_line, escape_text

LOGGERS: Final = (
    "holdfast.ai",
    "holdfast.aws",
    "holdfast.cli",
    "holdfast.endings",
    "holdfast.engine",
    "holdfast.events",
    "holdfast.functions",
    "holdfast.interceptors",
    "holdfast.listener",
    "holdfast.maintenance",
    "holdfast.nats",
    "holdfast.removing",
    "holdfast.runs",
    "holdfast.sql",
    "holdfast.testing",
    "holdfast.wake_ups",
    "holdfast.worker",
)
"""All of them. The filters of a logger are not for those below it."""


def escape_logs() -> None:
    """Have all that Holdfast logs escaped. Harmless when repeated."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(escape_record)


def escape_record(record: logging.LogRecord) -> bool:
    """Escape what a record says, if there is anything to escape. It is kept."""
    message = record.getMessage()
    escaped = escape_line(message)
    if escaped != message:
        record.msg, record.args = escaped, None
    if record.exc_info and record.exc_info[0] is not None:
        # Handlers print this text where there is one; who formats tracebacks by himself has the error.
        record.exc_text = traceback_text(record)
    return True


def traceback_text(record: logging.LogRecord) -> str:
    """Return the traceback of a record, in lines that begin with spaces; an empty text if it has none."""
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return indent(
        escape_text("".join(traceback.format_exception(*record.exc_info)).rstrip()), "  ", lambda _: True
    )
