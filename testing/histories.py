"""Golden histories: a run's history as text that changes only with the workflow."""

import difflib
import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.inspection.run_info import error_text
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.history import events
from holdfast.ports.json import parse
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.validation import TEXT, an, check

FORMAT: Final = 1

_PAGE: Final = 1_000
_ID: Final = re.compile(r"(?<![0-9A-Za-z])[0-7][0-9A-HJKMNP-TV-Z]{25}(?![0-9A-Za-z])")

_CHANGES_EACH_TIME: Final = frozenset(
    {"host", "job", "started_at", "retry_at", "give_up_at", "site", "traceback"}
)
"""Event data that differs between executions: times, hosts and places in the source."""


def recorded(run: SyncRunHandle[Any], /) -> str:
    """Return a run's history as JSON text with one event per line.

    It has the events in order, with results and errors, but without times, hosts and tracebacks. `clock.read` is left
    out, because it depends on delays. Generated ids are replaced by `<id 1>`, `<id 2>` and so on, in the order of their
    first occurrence.
    """
    check("recorded", an("the handle of a run, as returned by start", SyncRunHandle), run=run)
    row = run.row()
    rows = (one for one in _rows(run.core, row.key) if one.type != events.ClockRead.type)
    head: dict[str, object] = {
        "format": FORMAT,
        "workflow": f"{row.workflow}@{row.version}",
        "status": row.status.value,
    }
    error = error_text(row)
    if error is not None:
        head["error"] = error
    lines = [f"  {_json(name)}: {_json(value)}," for name, value in head.items()]
    listed = ",\n".join(f"    {_json(_event(run.core, one))}" for one in rows)
    return _stable("\n".join(("{", *lines, '  "events": [', listed, "  ]", "}", "")))


def check_history(text: str, path: Path, /, *, update: bool = False) -> bool:
    """Compare a text from `recorded` with a golden file. Return whether the file was written.

    Args:
        text: The recorded text.
        path: The golden file, which ends in `.json`.
        update: Whether to overwrite the file.

    Raises:
        AssertionError: They differ, or the file does not exist. The message has a diff.
    """
    check("check_history", TEXT, text=text)
    check("check_history", an("a pathlib.Path", Path), path=path)
    known = path.read_text(encoding="utf-8") if path.exists() else None
    if known == text:
        return False
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        return True
    if known is None:
        raise AssertionError(f"golden history {path} does not exist; pytest --holdfast-update writes it")
    raise AssertionError(_difference(known, text, path))


def _rows(core: Core, run: str) -> Iterator[HistoryRow]:
    after = 0
    while page := core.stores.persistence.read(HistoryOf(run, after, _PAGE)):
        yield from page
        after = page[-1].number


def _event(core: Core, row: HistoryRow) -> dict[str, object]:
    event: dict[str, object] = {"event": row.type}
    if row.node is not None:
        event["stage"] = row.node
    if row.item is not None:
        event["item"] = row.item
    facts = sorted(events.facts_of(row).items())
    event.update((name, value) for name, value in facts if name not in _CHANGES_EACH_TIME)
    if row.payload is not None and row.payload.inline is not None:
        event["value"] = parse(row.payload.inline)
    elif row.payload is not None:
        text = core.payloads.get(row.payload)
        event["value"] = f"<{len(text)} characters, sha256 {sha256(text.encode()).hexdigest()}>"
    return event


def _stable(text: str) -> str:
    known: dict[str, str] = {}
    return _ID.sub(lambda found: known.setdefault(found[0], f"<id {len(known) + 1}>"), text)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _difference(known: str, text: str, path: Path) -> str:
    lines = difflib.unified_diff(
        known.splitlines(), text.splitlines(), f"golden {path.name}", "this run", lineterm="", n=2
    )
    shown = "\n".join(lines)
    return (
        f"the history differs from {path}:\n\n{shown}\n\nIf the change is intended: pytest --holdfast-update"
    )
