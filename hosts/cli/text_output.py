"""History rows and attempt output as lines of text."""

from collections.abc import Mapping
from typing import Final, cast

from rich.table import Table
from rich.text import Text

from holdfast.hosts.cli.console import Screen, one_line, safe, safe_lines, table
from holdfast.hosts.cli.run_facts import StageItem
from holdfast.hosts.cli.step_table import error_line
from holdfast.hosts.text import counted, format_duration
from holdfast.kernel.history import events
from holdfast.ports.actors import Actor
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow, OutputRow

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


def place_name(stage: str, item: int | None) -> str:
    """Return the name of a stage or, for an item of a mapped stage, `fetch[3]`."""
    return stage if item is None else f"{stage}[{item}]"


def history_table() -> Table:
    """Return an empty table for history rows."""
    return table("#", "time", "what", "where", "", right=("#",), wraps=("",))


def add_history_row(rows: Table, screen: Screen, row: HistoryRow) -> None:
    """Add a history row to a table."""
    rows.add_row(
        str(row.number),
        screen.instant(row.at, fine=True),
        Text(row.type, style=_TYPE_STYLES.get(row.type.rpartition(".")[2], "")),
        _where(row),
        Text(_details(row), style="dim"),
    )


def note_line(screen: Screen, note: OutputRow, place: StageItem | None) -> Text:
    """Return a log line of an attempt."""
    content = cast("dict[str, object]", parse(note.data))
    line = Text.assemble(
        (screen.instant(note.at, fine=True), "dim"),
        "  ",
        (place_name(*place) if place else f"job {note.job}", "cyan"),
        "  ",
        safe_lines(str(content.get("message", ""))),
    )
    fields = cast("dict[str, object]", content.get("fields") or {})
    for name, value in fields.items():
        line.append(f" {safe(name)}=", style="dim")
        line.append(safe(str(value)))
    return line


def progress_text(data: str) -> str:
    """Return the progress of an attempt as text: `40%  page 3`."""
    content = cast("dict[str, object]", parse(data))
    done, of = cast("float", content.get("done", 0)), cast("float", content.get("of", 0))
    share = f"{done / of:.0%}" if of else f"{done:g}"
    return f"{share}  {one_line(str(content.get('message', '')), 100)}".rstrip()


def _where(row: HistoryRow) -> str:
    """Return what a row is about: a step, a stage, or an item of a mapped stage."""
    step = events.facts_of(row).get("step")
    if step is not None:
        return safe(str(step))
    return "" if row.node is None else place_name(row.node, row.item)


def _details(row: HistoryRow) -> str:
    data = events.facts_of(row)
    parts: list[str] = []
    if "call" in data:
        parts.append(f"call {data['call']}" + (f" at {data['site']}" if "site" in data else ""))
    if "definition" in data:
        parts.append(str(data["definition"]))
    parts.extend(f"{name} {data[name]}" for name in ("channel", "run") if name in data)
    if "attempt" in data and row.node is not None:
        parts.append(f"attempt {data['attempt']}")
    started_at, retry_at = data.get("started_at"), data.get("retry_at")
    if isinstance(started_at, int) and row.type != events.StepStarted.type:
        parts.append(f"took {format_duration(max(0, row.at - started_at))}")
    if "host" in data:
        parts.append(f"on {data['host']}")
    if "items" in data:
        parts.append(counted(cast("int", data["items"]), "item"))
    if isinstance(retry_at, int):
        parts.append(f"retry in {format_duration(max(0, retry_at - row.at))}")
    if "error" in data:
        error = cast("Mapping[str, object]", data["error"])
        parts.append(one_line(error_line(str(error.get("type", "")), str(error.get("message", "")))))
    if "message" in data:
        kind = data.get("type") or data.get("code")
        texts = (kind, one_line(str(data["message"])) if data["message"] else None)
        parts.append(": ".join(str(text) for text in texts if text))
    parts.extend(f"{name}: {data[name]}" for name in ("reason", "cause") if name in data)
    if issubclass(events.class_of(row.type), events.OperatorEvent) and "actor" in data:
        parts.append(f"by {Actor.of(data['actor']).text}")
    if row.payload is not None:
        inline = row.payload.inline
        value = one_line(inline, 60) if inline is not None else f"blob {row.payload.blob}"
        return safe(f"{', '.join(parts)} → {value}")
    return safe(", ".join(parts))
