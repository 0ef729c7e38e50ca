"""The steps of a durable function for `holdfast run show`, read from the run's history."""

from collections.abc import Mapping
from typing import Final, cast

import attrs
from rich.table import Table
from rich.text import Text

from holdfast.hosts.cli.console import Screen, one_line, safe, status_text, table
from holdfast.hosts.functions.function_events import raised_from_facts
from holdfast.hosts.inspection.open_calls import OpenStep
from holdfast.hosts.text import format_duration
from holdfast.kernel.history.raised import Raised
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Micros

STEPS_SHOWN: Final = 20
"""Maximum number of steps that are shown: those with the latest changes."""

_STATES: Final = {
    "step.completed": "done",
    "step.failed": "failed",
    "step.retrying": "retrying",
    "step.started": "running",
    "step.queued": "queued",
    "step.cancelled": "cancelled",
}
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
    facts = cast("Mapping[str, object]", parse(row.data or "{}"))
    call = str(facts["call"])
    before = steps.pop(call, None)
    began = facts.get("started_at")
    retry_at, host = facts.get("retry_at"), facts.get("host")
    error = cast("Mapping[str, object]", facts.get("error") or {})
    steps[call] = StepSummary(
        call=call,
        step=str(facts.get("step", "")),
        state=state,
        # a step in its queue has had no attempt yet
        attempts=0
        if state == "queued"
        else cast("int", facts.get("attempt", before.attempts if before else 1)),
        site=str(facts.get("site", "")) or (before.site if before else ""),
        started_at=before.started_at if before else (began if isinstance(began, int) else row.at),
        last_at=row.at,
        retry_at=retry_at if isinstance(retry_at, int) else None,
        host=str(host) if host is not None else None,
        error=step_error(facts) if error else (before.error if before else None),
        traceback=str(error["traceback"]) if "traceback" in error else None,
        kept_of=kept_of,
        lost_attempts=cast("int", facts.get("lost_attempts", before.lost_attempts if before else 0)),
    )


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


def step_error(facts: Mapping[str, object]) -> str:
    """Return the error of an attempt, from the data of its row: class and message."""
    raised: Raised = raised_from_facts(facts)
    return f"{raised.type}: {raised.message}" if raised.message else raised.type


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
