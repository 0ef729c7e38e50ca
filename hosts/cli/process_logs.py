"""Logging of a process to stderr: lines for people, or JSON lines for programs."""

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Final

from rich.text import Text
from typing_extensions import override

from holdfast.hosts.cli.console import Screen, safe, safe_lines
from holdfast.hosts.execution.logging_bridge import ReplayFilter
from holdfast.hosts.inspection.json_form import json_form
from holdfast.hosts.wiring.safe_logs import traceback_text
from holdfast.ports.json import compact
from holdfast.ports.urls import hide

_HOLDFAST: Final = logging.getLogger("holdfast")
_FIELDS: Final = (
    *("run", "workflow", "step", "attempt", "error"),
    *("operation", "status", "ms", "principal", "namespace", "request_id"),
)
"""Extra fields of the log records of attempts, and of requests to the server."""
_LEVEL_STYLES: Final = {
    "DEBUG": "dim",
    "INFO": "green",
    "WARNING": "yellow",
    "ERROR": "bold red",
    "CRITICAL": "bold red",
}


class ScreenHandler(logging.Handler):
    """A logging handler that writes to a screen, with secrets masked and replays left out."""

    def __init__(self, screen: Screen, process: int | None = None) -> None:
        """`process` is the number of this worker process under its supervisor, which each line has then."""
        super().__init__()
        self._screen = screen
        self._process = process
        self.addFilter(ReplayFilter())

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; never raise."""
        try:
            if self._screen.as_json:
                self._emit_json(record)
            else:
                self._emit_text(record)
        except Exception:  # noqa: BLE001  # as in logging: a failing log must not stop the program
            self.handleError(record)

    def _emit_json(self, record: logging.LogRecord) -> None:
        data: dict[str, object] = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            **({} if self._process is None else {"process": self._process}),
            "message": hide(record.getMessage(), self._screen.secrets),
        }
        fields = vars(record)
        for name in _FIELDS:
            if (value := fields.get(name)) not in (None, ""):
                data[name] = hide(value, self._screen.secrets) if isinstance(value, str) else value
        if record.exc_info:
            lines = "".join(traceback.format_exception(*record.exc_info))
            data["traceback"] = hide(lines, self._screen.secrets)
        sys.stderr.write(compact(json_form(data)) + "\n")
        sys.stderr.flush()

    def _emit_text(self, record: logging.LogRecord) -> None:
        line = Text.assemble(
            (self._screen.instant(_at(record)), "dim"),
            "  ",
            (f"{record.levelname:<7}", _LEVEL_STYLES.get(record.levelname, "")),
            "  " if self._process is None else f"  [{self._process}] ",
            safe_lines(hide(record.getMessage(), self._screen.secrets)),
        )
        if not record.name.startswith("holdfast"):
            line.append(f"  ({safe(record.name)})", style="dim")
        self._screen.note(line)
        if record.exc_info:
            text = hide(traceback_text(record), self._screen.secrets)
            self._screen.note(Text(text, style="dim"))


def _at(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def log_holdfast(screen: Screen) -> None:
    """Show warnings of the logger `holdfast`; change no other logger."""
    _HOLDFAST.addHandler(ScreenHandler(screen))
    _HOLDFAST.setLevel(logging.WARNING)
    _HOLDFAST.propagate = False


def log_all(screen: Screen, *, verbose: bool, process: int | None = None) -> None:
    """Log everything, for long-lived processes. Keeps handlers of the root logger that user code has set up.

    `process` is as in `ScreenHandler`.
    """
    stop_logging()
    _HOLDFAST.setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(ScreenHandler(screen, process))
        root.setLevel(logging.INFO)


def stop_logging() -> None:
    """Remove our logging handlers."""
    for logger in (_HOLDFAST, logging.getLogger()):
        for handler in list(logger.handlers):
            if isinstance(handler, ScreenHandler):
                logger.removeHandler(handler)
    _HOLDFAST.setLevel(logging.NOTSET)
    _HOLDFAST.propagate = True
