"""Queued steps of a run, read from its history."""

from collections.abc import Sequence
from typing import Final, cast

import attrs

from holdfast.ports.json import parse
from holdfast.ports.records.history import (
    STEP_CANCELLED,
    STEP_COMPLETED,
    STEP_ENDS,
    STEP_FAILED,
    STEP_QUEUED,
    STEP_RETRYING,
    HistoryRow,
)

_TRIES: Final = frozenset({STEP_COMPLETED, STEP_FAILED, STEP_RETRYING})


@attrs.define
class QueuedStep:
    """A queued step."""

    queued: HistoryRow
    """Its `step.queued` row."""
    tries: list[HistoryRow] = attrs.field(factory=list[HistoryRow])
    """Rows that ended its attempts."""
    is_over: bool = False
    """Whether the step has ended."""

    @property
    def job(self) -> int:
        """Number of its job."""
        return number_in(self.queued, "job")


def queued_steps(history: Sequence[HistoryRow]) -> tuple[list[QueuedStep], list[str]]:
    """Return the queued steps in order, and the faults of their rows."""
    steps: list[QueuedStep] = []
    wrong: list[str] = []
    last: dict[str, QueuedStep] = {}
    assigned: set[int] = set()
    first = next((at for at, row in enumerate(history) if row.type == STEP_QUEUED), len(history))
    for row in history[first:]:
        if row.type not in _TRIES and row.type not in (STEP_QUEUED, STEP_CANCELLED):
            continue
        call, job = text_in(row, "call"), number_in(row, "job")
        known = last.get(call)
        if row.type == STEP_QUEUED:
            if job in assigned:
                wrong.append(
                    f"row {row.number} assigns job {job} to call {call}, but an earlier row has assigned"
                    " that job"
                )
            assigned.add(job)
            if known is not None:
                known.is_over = True  # a repair replaced its job
            last[call] = QueuedStep(row)
            steps.append(last[call])
        elif known is None or known.is_over or known.job != job:
            if job or (known is not None and not known.is_over):
                wrong.append(
                    f"row {row.number}, {row.type} of call {call}, names job {job}, which is not the open"
                    " job of the call"
                )
        else:
            if row.type in _TRIES:
                known.tries.append(row)
            known.is_over = row.type in STEP_ENDS
    return steps, wrong


def number_in(row: HistoryRow, name: str) -> int:
    """Return a number from the data of a row; 0 if it is missing."""
    return cast("dict[str, int]", parse(row.data or "{}")).get(name, 0)


def text_in(row: HistoryRow, name: str) -> str:
    """Return a text from the data of a row; empty if it is missing."""
    return cast("dict[str, str]", parse(row.data or "{}")).get(name, "")
