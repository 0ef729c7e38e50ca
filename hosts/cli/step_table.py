"""What is known of the steps of a durable function: read from the history of its run."""

from collections.abc import Mapping
from typing import Final, cast

import attrs
from rich.table import Table
from rich.text import Text

from holdfast.hosts.cli.console import Screen, one_line, safe, status_text, table
from holdfast.hosts.functions.function_events import raised_from_facts
from holdfast.hosts.inspection.open_calls import OpenStep
from holdfast.hosts.text import span
from holdfast.kernel.functions.protocol import Raised
from holdfast.ports.json import parse
from holdfast.ports.records import HistoryRow, Micros

STEPS_SHOWN: Final = 20
"""How many steps are shown: those that came to something last."""

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
class StepStory:
    """What one call of a step has come to. `last_at` is when it did.

    `length` is how long it took, from the beginning of its first try; waits between tries count. `error` is what the
    last try raised that failed; `traceback` is where. `kept_of` is the number of the generation in which it came to
    that, if this one keeps it. `lost_attempts` of the tries were lost with their workers.
    """

    call: str
    step: str
    state: str
    tries: int
    site: str
    started_at: Micros
    last_at: Micros
    retry_at: Micros | None = None
    host: str | None = None
    error: str | None = None
    traceback: str | None = None
    kept_of: int | None = None
    lost_attempts: int = 0

    @property
    def length(self) -> Micros:
        """How long it took until now, or until it ended."""
        return max(0, self.last_at - self.started_at)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state not in _OPEN


def add_step(steps: dict[str, StepStory], row: HistoryRow, kept_of: int | None = None) -> None:
    """Add to the stories of steps, by their calls, what a row of the history says. The latest is the last.

    `kept_of` is the number of the generation that has the row, if it is one before.
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
    steps[call] = StepStory(
        call=call,
        step=str(facts.get("step", "")),
        state=state,
        # One that gets into its queue was not tried yet.
        tries=0 if state == "queued" else cast("int", facts.get("attempt", before.tries if before else 1)),
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


def add_open_step(steps: dict[str, StepStory], one: OpenStep, began_at: Micros, host: str | None) -> None:
    """Add a step that the worker on `host` does now. `began_at` is when its try began, or later."""
    before = steps.pop(one.call, None)
    steps[one.call] = StepStory(
        call=one.call,
        step=one.step,
        state="running",
        tries=one.attempt,
        site=one.site,
        started_at=before.started_at if before else began_at,
        last_at=began_at,
        host=host,
        error=before.error if before else None,
        traceback=before.traceback if before else None,
        lost_attempts=one.lost_attempts,
    )


def step_error(facts: Mapping[str, object]) -> str:
    """Return what a try has raised, by the facts of its row: its class and its message."""
    raised: Raised = raised_from_facts(facts)
    return f"{raised.type}: {raised.message}" if raised.message else raised.type


def steps_table(screen: Screen, steps: tuple[StepStory, ...], now: Micros) -> Table:
    """Return a table of the steps that came to something last."""
    rows = table(
        "call", "step", "state", "tries", "duration", "ended", "", right=("tries", "duration"), wraps=("",)
    )
    for story in steps[-STEPS_SHOWN:]:
        length = story.length if story.is_over else max(0, now - story.started_at)
        rows.add_row(
            story.call,
            safe(story.step),
            status_text(story.state),
            str(story.tries),
            span(length),
            screen.instant(story.last_at) if story.is_over else "",
            Text(_remark(screen, story, now), style="dim"),
        )
    return rows


def _remark(screen: Screen, story: StepStory, now: Micros) -> str:
    parts = [] if story.kept_of is None else [f"of generation {story.kept_of}"]
    parts += [safe(story.site)] if story.site else []
    if story.state == "running":
        where = f" on {safe(story.host)}" if story.host else ""
        parts.append(f"try {story.tries}{where} since {screen.instant(story.last_at)} or before")
    if story.retry_at is not None:
        left = story.retry_at - now
        parts.append(f"again in {span(left)}" if left > 0 else "again now")
    if story.lost_attempts:
        parts.append(
            f"lost with its worker {'once' if story.lost_attempts == 1 else f'{story.lost_attempts} times'}"
        )
    if story.error is not None and story.state != "done":
        parts.append(f"{'' if story.state == 'failed' else 'last failed by '}{one_line(story.error)}")
    return ", ".join(parts)
