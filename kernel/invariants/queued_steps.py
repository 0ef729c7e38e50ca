"""Queued steps of a run, read from its history."""

from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs

from holdfast.kernel.history import events
from holdfast.kernel.invariants.row_events import event_of
from holdfast.ports.records.history import HistoryRow

TryEnd: TypeAlias = events.StepCompleted | events.StepFailed | events.StepRetrying
"""An event that ends an attempt of a step."""

_OF_QUEUED_STEPS: Final = frozenset({events.StepQueued.type, events.StepRetrying.type, *events.STEP_ENDS})


@attrs.frozen
class StepTry:
    """An attempt of a queued step that has ended."""

    row: HistoryRow
    event: TryEnd

    @property
    def is_lost(self) -> bool:
        """Whether its worker was lost."""
        return not isinstance(self.event, events.StepCompleted) and self.event.lost


@attrs.define
class QueuedStep:
    """A queued step."""

    row: int
    """Number of its `step.queued` row."""
    queued: events.StepQueued
    tries: list[StepTry] = attrs.field(factory=list[StepTry])
    """Its attempts that have ended."""
    is_over: bool = False
    """Whether the step has ended."""

    @property
    def job(self) -> int:
        """Number of its job."""
        return self.queued.job


def queued_steps(history: Sequence[HistoryRow]) -> tuple[list[QueuedStep], list[str]]:
    """Return the queued steps in order, and the faults of their rows."""
    steps: list[QueuedStep] = []
    wrong: list[str] = []
    last: dict[str, QueuedStep] = {}
    assigned: set[int] = set()
    first = next((at for at, row in enumerate(history) if row.type == events.StepQueued.type), len(history))
    for row in history[first:]:
        if row.type not in _OF_QUEUED_STEPS:
            continue
        match event_of(row):
            case events.StepQueued(call=call, job=job) as queued:
                if job in assigned:
                    wrong.append(
                        f"row {row.number} assigns job {job} to call {call}, but an earlier row has assigned"
                        " that job"
                    )
                assigned.add(job)
                if call in last:
                    last[call].is_over = True  # a repair replaced its job
                last[call] = QueuedStep(row.number, queued)
                steps.append(last[call])
            case (
                events.StepCompleted()
                | events.StepFailed()
                | events.StepRetrying()
                | events.StepCancelled() as ended
            ):
                known, job = last.get(ended.call), ended.job or 0
                if known is None or known.is_over or known.job != job:
                    if job or (known is not None and not known.is_over):
                        wrong.append(
                            f"row {row.number}, {row.type} of call {ended.call}, names job {job}, which is not"
                            " the open job of the call"
                        )
                    continue
                if not isinstance(ended, events.StepCancelled):
                    known.tries.append(StepTry(row, ended))
                known.is_over = row.type in events.STEP_ENDS
            case _:
                pass
    return steps, wrong
