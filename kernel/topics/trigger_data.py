"""The JSON texts in the row of a trigger."""

from typing import Final, Literal, TypeAlias

from holdfast.kernel.commands.runs import RunCreate
from holdfast.kernel.schedules.row_data import Pause, ScheduleChange, text_of, value_of, values_of
from holdfast.ports.actors import Actor
from holdfast.ports.records.trigger import TriggerRow
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve, frozen
from holdfast.ports.unreadable import PARSE_ERRORS

RECENT_MAX: Final = 20
"""How many outcomes, and how many changes, a row keeps."""

TriggerOutcome: TypeAlias = Literal["started", "joined", "existing", "refused"]


@frozen(kw_only=True)
class MessageOutcome:
    """The outcome of a message of a trigger."""

    number: int
    """The number of the message."""
    at: Micros
    """When it was handled."""
    outcome: TriggerOutcome
    """A run was started; the message joined a run that gathers; its run existed; the start was refused."""
    run: str | None = None
    """The id of the run."""
    reason: str = ""
    """Why the start was refused."""


def trigger_start_text(start: RunCreate) -> str:
    """Return the command that starts each run as `TriggerRow.start` has it: without the version of the workflow."""
    return text_of(evolve(start, actor=None, version=None))


def trigger_start(row: TriggerRow) -> RunCreate:
    """Return the command that starts each run, without its input. Raises one of PARSE_ERRORS, InvalidCommandError."""
    return value_of(row.start, RunCreate)


def trigger_pause(row: TriggerRow) -> Pause | None:
    """Return why a trigger is paused; None if it is not."""
    if row.paused is None:
        return None
    try:
        return value_of(row.paused, Pause)
    except PARSE_ERRORS:
        return Pause(since=row.updated_at)


def with_change(
    row: TriggerRow, change: str, now: Micros, actor: Actor | None, reason: str = ""
) -> TriggerRow:
    """Return a trigger with a change added to those that its row keeps."""
    changes = (
        *values_of(row.changes, ScheduleChange),
        ScheduleChange(at=now, change=change, actor=actor, reason=reason),
    )
    return evolve(row, changes=text_of(changes[-RECENT_MAX:]), updated_at=max(now, row.updated_at))


def with_outcome(row: TriggerRow, outcome: MessageOutcome) -> TriggerRow:
    """Return a trigger with an outcome added to those that its row keeps, and counted."""
    recent = (*values_of(row.recent, MessageOutcome), outcome)[-RECENT_MAX:]
    return evolve(
        row,
        recent=text_of(recent),
        started=row.started + (outcome.outcome == "started"),
        refused=row.refused + (outcome.outcome == "refused"),
    )
