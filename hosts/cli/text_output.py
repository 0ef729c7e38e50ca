"""History events, steps, log lines, progress and values as text for people."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, cast

from rich.table import Table
from rich.text import Text

from holdfast.hosts.cli.console import Screen, format_length, one_line, safe, safe_lines, status_text, table
from holdfast.hosts.inspection.logs import LogLine, ProgressInfo
from holdfast.hosts.inspection.run_info import RunEvent
from holdfast.hosts.inspection.steps import StepDetails, error_line
from holdfast.hosts.inspection.value_previews import ValuePreview
from holdfast.hosts.text import counted, format_duration
from holdfast.kernel.authoring.scheduled_runs import Scheduled
from holdfast.kernel.history import events
from holdfast.ports.actors import Actor
from holdfast.ports.clock import micros
from holdfast.ports.json import compact

_TYPE_STYLES: Final = {
    "completed": "green",
    "failed": "bold red",
    "retrying": "yellow",
    "lost": "yellow",
    "cancelled": "yellow",
    "terminated": "yellow",
    "repaired": "magenta",
    "paused": "magenta",
}
_LEVEL_STYLES: Final = {"warning": "yellow", "error": "red", "critical": "bold red", "debug": "dim"}


def place_name(stage: str, item: int | None) -> str:
    """Return the name of a stage or, for an item of a mapped stage, `fetch[3]`."""
    return stage if item is None else f"{stage}[{item}]"


def preview_text(value: ValuePreview, most: int) -> str:
    """Return the beginning of a value's JSON text in one line, or the key of its blob."""
    if value.blob is not None:
        return f"blob {safe(value.blob)}"
    return one_line(compact(value.value) if value.text is None else value.text, most)


def schedule_text(screen: Screen, scheduled: Scheduled) -> str:
    """Return which schedule started a run, and why: `schedule nightly, due at 2026-11-27 02:30:00`."""
    at = screen.instant(scheduled.at)
    why = {
        "due": f"due at {at}",
        "made_up": f"which made up for its missed time {at}",
        "backfill": f"in a backfill of {at}",
        "manual": f"triggered by hand at {at}",
    }
    return f"schedule {scheduled.name}, {why[scheduled.kind]}"


def history_table(screen: Screen, found: Iterable[RunEvent]) -> Table:
    """Return a table of history events."""
    rows = table("#", "time", "what", "where", "", right=("#",), wraps=("",))
    for event in found:
        rows.add_row(
            str(event.number),
            screen.instant(event.at, fine=True),
            Text(event.type, style=_TYPE_STYLES.get(event.type.rpartition(".")[2], "")),
            _where(event),
            Text(_details(event), style="dim"),
        )
    return rows


def history_line(screen: Screen, event: RunEvent) -> Text:
    """Return a history event as one line, for rows that are shown as they come."""
    style = _TYPE_STYLES.get(event.type.rpartition(".")[2], "")
    text = Text.assemble(f"{event.number:>6}  ", (screen.instant(event.at, fine=True), "dim"))
    text.append("  ").append(f"{event.type:<22}", style=style)
    details = "  ".join(part for part in (_where(event), _details(event)) if part)
    return text.append(f"  {details}" if details else "")


def log_text(screen: Screen, line: LogLine, *, level: bool) -> Text:
    """Return a log line of a stage, with its level if requested."""
    place = place_name(line.stage, line.item) if line.stage else f"epoch {line.epoch}"
    text = Text.assemble((screen.instant(line.at, fine=True), "dim"), "  ")
    if level:
        text.append(f"{line.level:8}  ", style=_LEVEL_STYLES.get(line.level, ""))
    text.append(place, style="cyan").append(f"  {safe_lines(line.message)}")
    for name, value in line.fields.items():
        text.append(f" {safe(name)}=", style="dim")
        text.append(safe(str(value)))
    return text


def progress_text(progress: ProgressInfo) -> str:
    """Return the progress of an attempt as text: `40%  page 3`."""
    return f"{share_text(progress)}  {one_line(progress.message, 100)}".rstrip()


def share_text(progress: ProgressInfo) -> str:
    """Return how much of an attempt is done, as a percentage if the total is known."""
    return f"{progress.done / progress.of:.0%}" if progress.of else f"{progress.done:g}"


def _where(event: RunEvent) -> str:
    """Return what an event is about: a step, a stage, or an item of a mapped stage."""
    step = event.data.get("step")
    if step is not None:
        return safe(str(step))
    return "" if event.stage is None else place_name(event.stage, event.item)


def _details(event: RunEvent) -> str:
    data, at = event.data, micros(event.at)
    parts: list[str] = []
    if "call" in data:
        parts.append(f"call {data['call']}" + (f" at {data['site']}" if "site" in data else ""))
    if "definition" in data:
        parts.append(str(data["definition"]))
    parts.extend(f"{name} {data[name]}" for name in ("channel", "run") if name in data)
    if "attempt" in data and event.stage is not None:
        parts.append(f"attempt {data['attempt']}")
    started_at, retry_at = data.get("started_at"), data.get("retry_at")
    if isinstance(started_at, int) and event.type != events.StepStarted.type:
        parts.append(f"took {format_duration(max(0, at - started_at))}")
    if "host" in data:
        parts.append(f"on {data['host']}")
    if "items" in data:
        parts.append(counted(cast("int", data["items"]), "item"))
    if isinstance(retry_at, int):
        parts.append(f"retry in {format_duration(max(0, retry_at - at))}")
    if "error" in data:
        error = cast("Mapping[str, object]", data["error"])
        parts.append(one_line(error_line(str(error.get("type", "")), str(error.get("message", "")))))
    if "message" in data:
        kind = data.get("type") or data.get("code")
        texts = (kind, one_line(str(data["message"])) if data["message"] else None)
        parts.append(": ".join(str(text) for text in texts if text))
    parts.extend(f"{name}: {data[name]}" for name in ("reason", "cause") if name in data)
    if "actor" in data and issubclass(events.class_of(event.type), events.OperatorEvent):
        parts.append(f"by {Actor.of(data['actor']).text}")
    value = "" if event.payload is None else f" → {preview_text(event.payload, 60)}"
    return safe(f"{', '.join(parts)}{value}")


def step_table(screen: Screen, steps: Sequence[StepDetails], now: datetime) -> Table:
    """Return a table of steps."""
    names = ("call", "step", "state", "attempts", "duration", "ended", "")
    rows = table(*names, right=("attempts", "duration"), wraps=("",))
    for step in steps:
        rows.add_row(
            step.call,
            safe(step.step),
            status_text(step.state),
            str(step.attempts),
            format_length(step.duration),
            "" if step.ended_at is None else screen.instant(step.ended_at),
            Text(_step_remark(screen, step, now), style="dim"),
        )
    return rows


def _step_remark(screen: Screen, step: StepDetails, now: datetime) -> str:
    parts = [] if step.kept_of is None else [f"from generation {step.kept_of}"]
    parts += [safe(step.site)] if step.site else []
    if step.state == "running":
        where = f" on {safe(step.host)}" if step.host else ""
        parts.append(f"attempt {step.attempts}{where} since {screen.instant(step.updated_at)} or earlier")
    if step.retry_at is not None:
        left = step.retry_at - now
        parts.append(f"retry in {format_length(left)}" if left > timedelta() else "retry now")
    if step.lost_attempts:
        parts.append(f"{counted(step.lost_attempts, 'attempt')} lost with the worker")
    if step.error is not None and step.state != "done":
        parts.append(f"{'' if step.state == 'failed' else 'last error: '}{one_line(step.error)}")
    result = "" if step.result is None else f" → {preview_text(step.result, 60)}"
    return f"{', '.join(parts)}{result}"
