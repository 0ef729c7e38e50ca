"""Steps of durable functions: their state, attempts, times and results, derived from the history."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from holdfast.hosts.inspection.open_calls import OpenStep
from holdfast.hosts.inspection.value_previews import ValuePreview, preview_of
from holdfast.kernel.history import events
from holdfast.kernel.history.events.step_events import FailedStepAttempt, StepAttemptEvent
from holdfast.ports.clock import instant
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Micros

_STATES: Final = {
    events.StepQueued.type: "queued",
    events.StepStarted.type: "running",
    events.StepRetrying.type: "retrying",
    events.StepCompleted.type: "done",
    events.StepFailed.type: "failed",
    events.StepCancelled.type: "cancelled",
}
_OPEN: Final = ("running", "retrying", "queued")


@attrs.frozen(kw_only=True)
class StepDetails:
    """A call of a step by a durable function. Instants are aware, in UTC."""

    call: str
    """The name of the call, such as `2` or `3.1`."""
    step: str
    """The name of the step."""
    state: str
    """`queued`, `running`, `retrying`, `done`, `failed` or `cancelled`."""
    attempts: int
    """The number of attempts so far."""
    lost_attempts: int = 0
    """The number of attempts whose worker was lost."""
    site: str = ""
    """The call's place in the source code."""
    started_at: datetime
    """When the first attempt started; of a queued step, when it was queued."""
    updated_at: datetime
    """The time of the latest change."""
    ended_at: datetime | None = None
    """When it ended; None if it is open."""
    retry_at: datetime | None = None
    """When the next attempt is due; None if none is scheduled."""
    duration: timedelta = timedelta()
    """From its start to its end, with waits between attempts; of an open step to the time of the read."""
    host: str | None = None
    """The host of the latest attempt."""
    error: str | None = None
    """Class and message of the error of the last failed attempt."""
    traceback: str | None = None
    """The traceback of that error, unless another attempt followed."""
    arguments: ValuePreview | None = None
    """The arguments of a step in a queue, by name; None for an inline step, whose arguments are not stored."""
    result: ValuePreview | None = None
    """The result; None if it has none."""
    kept_of: int | None = None
    """The generation that the latest change was kept from; None if it is of this generation."""
    first_row: int = 0
    """The number of the first history row about it; 0 before that row."""
    row: int = 0
    """The number of the last history row about it, which holds the result of a completed step."""

    @property
    def is_open(self) -> bool:
        """Whether the call has not ended."""
        return self.state in _OPEN


def add_step(steps: dict[str, StepDetails], row: HistoryRow, kept_of: int | None = None) -> None:
    """Update the steps, a dict by call, with a history row. The latest change comes last.

    `kept_of` is the generation of the row, if it is an earlier one.
    """
    state = _STATES.get(row.type)
    if state is None:
        return
    event, at = events.event_of(row), instant(row.at)
    assert isinstance(event, events.StepQueued | StepAttemptEvent | events.StepCancelled)
    before = steps.pop(event.call, None) or StepDetails(
        call=event.call,
        step=event.step or "",
        state=state,
        attempts=1,
        started_at=instant(getattr(event, "started_at", None) or row.at),
        updated_at=at,
        first_row=row.number,
    )
    steps[event.call] = attrs.evolve(
        before, state=state, updated_at=at, row=row.number, kept_of=kept_of, **_changes(before, event, row)
    )


def _changes(
    before: StepDetails, event: events.StepQueued | StepAttemptEvent | events.StepCancelled, row: HistoryRow
) -> Mapping[str, Any]:
    changes: dict[str, Any] = {"host": None, "traceback": None, "retry_at": None}
    if isinstance(event, events.StepQueued):
        changes |= {"attempts": 0, "arguments": preview_of(row.payload)}  # it had no attempt yet
        return {**changes, "site": event.site or before.site}
    if isinstance(event, StepAttemptEvent):
        changes |= {"attempts": event.attempt, "site": event.site or before.site, "host": event.host}
    if isinstance(event, FailedStepAttempt):
        error = event.error
        changes |= {
            "error": error_line(error.type, error.message),
            "traceback": error.traceback,
            "lost_attempts": event.lost_attempts or before.lost_attempts,
        }
    if isinstance(event, events.StepRetrying) and event.retry_at is not None:
        changes["retry_at"] = instant(event.retry_at)
    if isinstance(event, events.StepCompleted):
        changes["result"] = preview_of(row.payload)
    return changes


def add_open_step(steps: dict[str, StepDetails], one: OpenStep, began_at: Micros, host: str | None) -> None:
    """Add a step that runs now on `host`. `began_at` is when its attempt began, or later."""
    at = instant(began_at)
    before = steps.pop(one.call, None) or StepDetails(
        call=one.call, step=one.step, state="running", attempts=one.attempt, started_at=at, updated_at=at
    )
    steps[one.call] = attrs.evolve(
        before,
        state="running",
        attempts=one.attempt,
        lost_attempts=one.lost_attempts,
        site=one.site,
        updated_at=at,
        retry_at=None,
        host=host,
        kept_of=None,
    )


def timed(step: StepDetails, now: datetime) -> StepDetails:
    """Return a step with its duration and, if it has ended, its end."""
    end = now if step.is_open else step.updated_at
    return attrs.evolve(
        step, ended_at=None if step.is_open else end, duration=max(timedelta(), end - step.started_at)
    )


def error_line(type: str, message: str) -> str:
    """Return the class and message of an error as one text."""
    return f"{type}: {message}" if message else type
