"""The steps of a durable function for `holdfast run show`, read from the run's history."""

from typing import Final, TypeAlias, cast

import attrs
from rich.table import Table
from rich.text import Text

from holdfast.hosts.cli.console import Screen, one_line, safe, status_text, table
from holdfast.hosts.inspection.open_calls import OpenStep
from holdfast.hosts.text import format_duration
from holdfast.kernel.history import events
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Micros

STEPS_SHOWN: Final = 20
"""Maximum number of steps that are shown: those with the latest changes."""

_STATES: Final = {
    events.StepQueued.type: "queued",
    events.StepStarted.type: "running",
    events.StepRetrying.type: "retrying",
    events.StepCompleted.type: "done",
    events.StepFailed.type: "failed",
    events.StepCancelled.type: "cancelled",
}
_ATTEMPTS: Final = (events.StepStarted, events.StepRetrying, events.StepCompleted, events.StepFailed)
_StepEvent: TypeAlias = (
    events.StepQueued
    | events.StepStarted
    | events.StepRetrying
    | events.StepCompleted
    | events.StepFailed
    | events.StepCancelled
)
_OPEN: Final = ("running", "retrying", "queued")


@attrs.frozen(kw_only=True)
class StepSummary:
    """State, attempts and times of one call of a step."""

    call: str
    """The name of the call, such as `2` or `3.1`."""
    step: str
    """The name of the step."""
    state: str
    """`queued`, `running`, `retrying`, `done`, `failed` or `cancelled`."""
    attempts: int
    """Number of attempts so far."""
    site: str
    """The call's place in the source code."""
    started_at: Micros
    """When the first attempt started."""
    last_at: Micros
    """The time of the latest change."""
    retry_at: Micros | None = None
    """When the next attempt is due."""
    host: str | None = None
    """The host of the latest attempt."""
    error: str | None = None
    """Class and message of the error of the last failed attempt."""
    traceback: str | None = None
    """The traceback of that error."""
    kept_of: int | None = None
    """The generation that the result was kept from, if it is not the present one."""
    lost_attempts: int = 0
    """Number of attempts whose worker was lost."""

    @property
    def length(self) -> Micros:
        """Duration until the latest change, with waits between attempts, in microseconds."""
        return max(0, self.last_at - self.started_at)

    @property
    def is_over(self) -> bool:
        """Whether the call has ended."""
        return self.state not in _OPEN


def add_step(steps: dict[str, StepSummary], row: HistoryRow, kept_of: int | None = None) -> None:
    """Update the steps, a dict by call, with a history row. The latest change comes last.

    `kept_of` is the generation of the row, if it is an earlier one.
    """
    state = _STATES.get(row.type)
    if state is None:
        return
    event = cast("_StepEvent", events.event_of(row))
    before = steps.pop(event.call, None)
    started_at = row.at
    if isinstance(event, _ATTEMPTS) and event.started_at is not None:
        started_at = event.started_at
    summary = StepSummary(
        call=event.call,
        step=event.step or "",
        state=state,
        attempts=before.attempts if before else 1,
        site=before.site if before else "",
        started_at=before.started_at if before else started_at,
        last_at=row.at,
        error=before.error if before else None,
        kept_of=kept_of,
        lost_attempts=before.lost_attempts if before else 0,
    )
    if isinstance(event, events.StepQueued):
        # a step in its queue has had no attempt yet
        summary = attrs.evolve(summary, attempts=0, site=event.site or summary.site)
    if isinstance(event, _ATTEMPTS):
        site = event.site or summary.site
        summary = attrs.evolve(summary, attempts=event.attempt, site=site, host=event.host)
    if isinstance(event, events.StepRetrying | events.StepFailed):
        error = event.error
        summary = attrs.evolve(
            summary,
            error=error_line(error.type, error.message),
            traceback=error.traceback,
            lost_attempts=event.lost_attempts or summary.lost_attempts,
        )
    if isinstance(event, events.StepRetrying):
        summary = attrs.evolve(summary, retry_at=event.retry_at)
    steps[event.call] = summary


def add_open_step(steps: dict[str, StepSummary], one: OpenStep, began_at: Micros, host: str | None) -> None:
    """Add a step that runs now on `host`. `began_at` is when its attempt began, or later."""
    before = steps.pop(one.call, None)
    steps[one.call] = StepSummary(
        call=one.call,
        step=one.step,
        state="running",
        attempts=one.attempt,
        site=one.site,
        started_at=before.started_at if before else began_at,
        last_at=began_at,
        host=host,
        error=before.error if before else None,
        traceback=before.traceback if before else None,
        lost_attempts=one.lost_attempts,
    )


def error_line(type: str, message: str) -> str:
    """Return the class and message of an error as one text."""
    return f"{type}: {message}" if message else type


def steps_table(screen: Screen, steps: tuple[StepSummary, ...], now: Micros) -> Table:
    """Return a table of the steps with the latest changes."""
    rows = table(
        "call",
        "step",
        "state",
        "attempts",
        "duration",
        "ended",
        "",
        right=("attempts", "duration"),
        wraps=("",),
    )
    for story in steps[-STEPS_SHOWN:]:
        length = story.length if story.is_over else max(0, now - story.started_at)
        rows.add_row(
            story.call,
            safe(story.step),
            status_text(story.state),
            str(story.attempts),
            format_duration(length),
            screen.instant(story.last_at) if story.is_over else "",
            Text(_remark(screen, story, now), style="dim"),
        )
    return rows


def _remark(screen: Screen, story: StepSummary, now: Micros) -> str:
    parts = [] if story.kept_of is None else [f"from generation {story.kept_of}"]
    parts += [safe(story.site)] if story.site else []
    if story.state == "running":
        where = f" on {safe(story.host)}" if story.host else ""
        parts.append(f"attempt {story.attempts}{where} since {screen.instant(story.last_at)} or earlier")
    if story.retry_at is not None:
        left = story.retry_at - now
        parts.append(f"retry in {format_duration(left)}" if left > 0 else "retry now")
    if story.lost_attempts:
        parts.append(
            f"{story.lost_attempts} attempt{'' if story.lost_attempts == 1 else 's'} lost with the worker"
        )
    if story.error is not None and story.state != "done":
        parts.append(f"{'' if story.state == 'failed' else 'last error: '}{one_line(story.error)}")
    return ", ".join(parts)
