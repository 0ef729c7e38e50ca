"""Checks of lost attempts (S12): how they are counted, and which jobs and steps are given up for them."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from holdfast.kernel.history import events
from holdfast.kernel.invariants.history_facts import RunView, named_item
from holdfast.kernel.invariants.row_events import event_of
from holdfast.kernel.invariants.snapshots import Snapshot
from holdfast.kernel.invariants.violations import Violation
from holdfast.kernel.pipelines.plan import stage_of
from holdfast.kernel.runs.external_work import LOST_WORKER
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKind, JobState

StepLoss: TypeAlias = events.StepFailed | events.StepRetrying
"""An event of a step that was lost with its worker."""

_OF_STEPS: Final = frozenset(
    {
        events.StepStarted.type,
        events.StepCompleted.type,
        events.StepFailed.type,
        events.StepRetrying.type,
        events.StepQueued.type,
        events.StepCancelled.type,
    }
)
_FREE: Final = 2
"""Losses from which on a job is a suspect (quarantined)."""
_MIN: Final = 5
"""Fewest losses after which a job or step with several attempts is given up."""
_MAX: Final = 100
"""Most losses, however many attempts are allowed."""


def _most(attempts: int) -> int:
    return 1 if attempts == 1 else min(max(attempts, _MIN), _MAX)


def suspects_are_alone(snapshot: Snapshot) -> Iterator[Violation]:
    """S12: no session holds a suspect together with another job that was lost."""
    held: dict[str, list[Job]] = {}
    for jobs in snapshot.jobs.values():
        for job in jobs.values():
            if job.lost_attempts and job.state is JobState.LEASED and job.session is not None:
                held.setdefault(job.session, []).append(job)
    for session, lost in held.items():
        if len(lost) > 1 and any(job.lost_attempts >= _FREE for job in lost):
            named = ", ".join(f"{job.key.text} (lost {job.lost_attempts} times)" for job in lost)
            yield Violation(
                "S12", session, f"the session holds a quarantined job together with other lost jobs: {named}"
            )


def losses_are_counted(seen: RunView) -> Iterator[str]:
    """S12: a job or step is given up as lost at its maximum of losses, the last ones in quarantine; never earlier."""
    if seen.is_repaired:
        return
    for job in (*seen.jobs, *seen.steps, *seen.cancels):
        if job.kind is not JobKind.WORKFLOW and job.lost_attempts >= _most(job.max_attempts):
            yield (
                f"job {job.number} must fail after {_most(job.max_attempts)} lost attempts, but is still"
                f" open after {job.lost_attempts}"
            )
    yield from _stages(seen)
    yield from _queued(seen)
    yield from _steps(seen.history, keeps_rows=bool(seen.run.kept_rows))


def _stages(seen: RunView) -> Iterator[str]:
    """A stage fails as lost only at its maximum of losses."""
    for (item, _), rows in seen.attempts.items():
        for at, row in enumerate(rows):
            match event_of(row):
                case events.StageFailed(code=code) if code == LOST_WORKER:
                    pass
                case _:
                    continue
            node = seen.place.plan.nodes.get(item[0])
            is_check = any(one.type == events.StageSuspended.type for one in rows[:at])
            if node is None or is_check or stage_of(node).check is not None:
                continue  # a check that returned starts counting again
            losses = sum(one.type == events.StageLost.type for one in rows[:at]) + 1
            most = _most(stage_of(node).max_attempts)
            if losses < most:
                yield (
                    f"row {row.number} fails {named_item(item)} after {losses} lost attempts, but it may"
                    f" lose {most}"
                )


def _queued(seen: RunView) -> Iterator[str]:
    for step in seen.queued[0]:
        losses = sum(one.is_lost for one in step.tries)
        most = _most(step.queued.max_attempts)
        ends = [one.row for one in step.tries if isinstance(one.event, events.StepFailed) and one.is_lost]
        if ends and losses < most:
            yield (
                f"row {ends[0].number} fails the step of job {step.job} after {losses} lost attempts, but"
                f" it may lose {most}"
            )


def _steps(history: Sequence[HistoryRow], *, keeps_rows: bool) -> Iterator[str]:
    """An inline step is given up at its first loss, or as the only lost step that was running in quarantine.

    `keeps_rows`: the run is a fork. A call may have started again in the rows that it keeps.
    """
    if not any(row.type == events.StepFailed.type and _loss(row) is not None for row in history):
        return
    drive = 0  # `lost_attempts` of the driving job at its last loss
    begun = _begun_before(history) if keeps_rows else set[str]()
    batch: list[tuple[HistoryRow, StepLoss]] = []
    for row in history:
        if row.type == events.StageLost.type:
            drive = events.StageLost.from_row(row).lost_attempts
        loss = _loss(row)
        is_inline = loss is not None and not loss.job
        if not is_inline and batch:
            yield from _given_up(batch, begun, drive)
            begun -= {one.call for _, one in batch}
            batch = []
        if loss is not None and is_inline:
            batch.append((row, loss))
        elif row.type == events.StepStarted.type:
            begun.add(_call(row))
        elif row.type in _OF_STEPS:
            begun.discard(_call(row))
    yield from _given_up(batch, begun, drive)


def _loss(row: HistoryRow) -> StepLoss | None:
    """Return the event of a row if it records that a step was lost with its worker."""
    if row.type not in (events.StepFailed.type, events.StepRetrying.type):
        return None
    match event_of(row):
        case events.StepFailed(lost=True) | events.StepRetrying(lost=True) as loss:
            return loss
        case _:
            return None


def _call(row: HistoryRow) -> str:
    """Return the call of a step's row."""
    match event_of(row):
        case (
            events.StepQueued()
            | events.StepStarted()
            | events.StepRetrying()
            | events.StepCompleted()
            | events.StepFailed()
            | events.StepCancelled() as event
        ):
            return event.call
        case _:
            return ""


def _begun_before(history: Sequence[HistoryRow]) -> set[str]:
    """Return the calls that may have started again before this history: those whose first row here is a loss."""
    first = {_call(row): row for row in reversed(history) if row.type in _OF_STEPS}
    return {call for call, row in first.items() if _loss(row) is not None}


def _given_up(batch: Sequence[tuple[HistoryRow, StepLoss]], begun: set[str], drive: int) -> Iterator[str]:
    again = [loss for _, loss in batch if loss.lost_attempts > 1]
    for row, loss in batch:
        losses = loss.lost_attempts
        if losses > 1 and loss.call not in begun:
            yield f"row {row.number} counts a lost attempt of call {loss.call}, which was not running"
        if not isinstance(loss, events.StepFailed) or losses == 1:
            continue
        if losses < _MIN or len(again) > 1 or drive <= _FREE:
            beside = len(again) - 1
            yield (
                f"row {row.number} fails step {loss.step!r} after {losses} lost attempts, the last"
                f" one beside {beside} other steps that were lost before, and after {drive} lost attempts of"
                " its function; it must fail only after its maximum, as the only lost step in quarantine"
            )
