"""The log of a host about its runs: the logger, the fields of its records, and the line about a blocked run."""

import logging
from typing import Final

from holdfast.hosts.text import one_line
from holdfast.ports.records.run import Run
from holdfast.ports.unreadable import RunOutline

run_logger: Final = logging.getLogger("holdfast.runs")


def log_blocked(run: Run | RunOutline, code: str, message: str) -> None:
    """Log that a run is blocked."""
    log_of_run(logging.ERROR, run, " is blocked: %s", one_line(message), error=f"{code}: {message}")


def log_of_run(
    level: int,
    run: Run | RunOutline,
    text: str,
    *args: object,
    step: str = "",
    attempt: int | None = None,
    error: str = "",
) -> None:
    """Log a line about a run, with the fields of the run; `text` follows its name."""
    fields = {
        "run": run.id,
        "workflow": f"{run.workflow}@{run.version}",
        "step": step,
        "attempt": attempt,
        "error": error,
    }
    line = f"run %s (%s@%s){text}"
    run_logger.log(level, line, run.id, run.workflow, run.version, *args, extra=fields, stacklevel=2)
