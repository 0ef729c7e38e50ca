"""The log of a host about its runs: the logger, the fields of its records, and the line about a blocked run."""

import logging
from typing import Final

from holdfast.hosts.text import one_line
from holdfast.ports.records.run import Run
from holdfast.ports.unreadable import RunOutline

run_logger: Final = logging.getLogger("holdfast.runs")


def log_blocked(run: Run | RunOutline, code: str, message: str) -> None:
    """Log that a run is blocked."""
    run_logger.error(
        "run %s (%s@%s) is blocked: %s",
        run.id,
        run.workflow,
        run.version,
        one_line(message),
        extra=fields_of(run, "", None, f"{code}: {message}"),
    )


def fields_of(run: Run | RunOutline, step: str, attempt: int | None, error: str) -> dict[str, object]:
    """Return the fields of a record about a run. `step` is empty, and `attempt` None, if it is about no attempt."""
    return {
        "run": run.id,
        "workflow": f"{run.workflow}@{run.version}",
        "step": step,
        "attempt": attempt,
        "error": error,
    }
