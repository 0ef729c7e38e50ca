"""Exported histories: one generation of a run as a JSON document that can be replayed without a store."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Self, cast

import attrs

from holdfast.hosts.wiring.services import Core
from holdfast.kernel.functions.run_facts import RunFacts
from holdfast.kernel.history import events
from holdfast.kernel.history.reader import rows_of
from holdfast.kernel.values.codec import json_name
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import InvalidHistoryError
from holdfast.ports.json import canonical, compact, parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros, Payload

FORMAT: Final = 1
"""The version of the format. Later releases can read documents of this version."""


@attrs.frozen(kw_only=True)
class RunHistory:
    """The history of one generation of a run, with all values inline.

    Attributes:
        id: The run id.
        generation: The number of the generation, from 1.
        key: The key of the generation that has its first row: its own, or that of an earlier one whose rows it keeps.
            Random values and ids of a durable function are derived from it.
        workflow, version: The workflow of the run.
        status: The status when the history was read.
        created_at: When that generation was created. Aware, in UTC.
        rows: The rows by number, from 1 without gaps. Each payload is inline.
        error: Why it failed or was cancelled, as JSON text; None if neither.
        scheduled: Which schedule started the run, as JSON text; None if none did.
        parent: The id of the run that started it as a child run; None if none did.
        attributes: Its attributes, as JSON text; None without any.
        headers: Its headers, as JSON text; None without any.
    """

    id: str
    generation: int = 1
    key: str
    workflow: str
    version: str
    status: RunStatus
    created_at: datetime
    rows: tuple[HistoryRow, ...]
    error: str | None = None
    scheduled: str | None = None
    parent: str | None = None
    attributes: str | None = None
    headers: str | None = None

    @property
    def facts(self) -> RunFacts:
        """What the function of the run knows about it."""
        return RunFacts(
            id=self.id,
            generation=self.generation,
            workflow=self.workflow,
            version=self.version,
            parent=self.parent,
            attributes=self.attributes,
            headers=self.headers,
            scheduled=self.scheduled,
        )

    @property
    def definition(self) -> str:
        """The code that it needs, as `<workflow>@<version>`."""
        return f"{self.workflow}@{self.version}"

    @property
    def began_at(self) -> Micros:
        """`created_at` in microseconds."""
        return micros(self.created_at)

    @property
    def input(self) -> str:
        """The input of the run as JSON text; for a durable function, an object of its arguments by name."""
        return text_of(self.rows[0].payload)

    def to_json(self) -> str:
        """Return the document: JSON with one history row per line. `from_json` reads it, in any later release."""
        head: dict[str, object] = {
            "holdfast_history": FORMAT,
            "workflow": self.workflow,
            "version": self.version,
            "id": self.id,
            "generation": self.generation,
            "key": self.key,
            "status": self.status.value,
            "created_at": _iso(self.began_at),
        }
        if self.error is not None:
            head["error"] = parse(self.error)
        if self.scheduled is not None:
            head["scheduled"] = parse(self.scheduled)
        if self.parent is not None:
            head["parent"] = self.parent
        if self.attributes is not None:
            head["attributes"] = parse(self.attributes)
        if self.headers is not None:
            head["headers"] = parse(self.headers)
        lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
        rows = ",\n".join(f"    {json.dumps(_row_document(row))}" for row in self.rows)
        return "\n".join(("{", *lines, '  "rows": [', rows, "  ]", "}", ""))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse a document. InvalidHistoryError if it is invalid, or in the format of a newer release."""
        try:
            document = parse(text)
        except (ValueError, RecursionError) as error:
            raise InvalidHistoryError(f"it is not JSON: {error}") from None
        if not isinstance(document, dict) or "holdfast_history" not in document:
            raise InvalidHistoryError("it is not what `holdfast history export` writes")
        data = cast("dict[str, Any]", document)
        if data["holdfast_history"] != FORMAT:
            raise InvalidHistoryError(
                f"its format is {data['holdfast_history']!r}, and this release reads {FORMAT}: use the release that"
                " wrote it"
            )
        try:
            history = cls(
                id=_text(data["id"], "$.id"),
                generation=_whole(data["generation"], "$.generation"),
                key=_text(data["key"], "$.key"),
                workflow=_text(data["workflow"], "$.workflow"),
                version=_text(data["version"], "$.version"),
                status=RunStatus(data["status"]),
                created_at=instant(_micros(data["created_at"], "$.created_at")),
                rows=tuple(
                    _row_from(row, _text(data["key"], "$.key"), f"$.rows[{index}]")
                    for index, row in enumerate(data["rows"])
                ),
                error=canonical(data["error"]) if data.get("error") is not None else None,
                scheduled=canonical(data["scheduled"]) if data.get("scheduled") is not None else None,
                parent=_text(data["parent"], "$.parent") if data.get("parent") is not None else None,
                attributes=canonical(data["attributes"]) if data.get("attributes") is not None else None,
                headers=canonical(data["headers"]) if data.get("headers") is not None else None,
            )
        except KeyError as error:
            raise InvalidHistoryError(f"it has no {error}") from None
        except (TypeError, ValueError) as error:
            raise InvalidHistoryError(str(error)) from None
        _check_rows(history.rows)
        return history


def read_history(core: Core, run: Run) -> RunHistory:
    """Read the history of a run up to its last known row, with all values. BlobMissingError and similar."""
    kept = list(rows_of(core.stores.persistence, run, upto=run.last_row))
    if not kept:
        raise InvalidHistoryError(f"no rows are left of the history of run {run.id!r}")
    first = kept[0]
    rows = [_inlined(core, row) for row in kept]
    if run.gathered is not None:
        # The document is replayed: its first row has the input as the function got it.
        rows[0] = attrs.evolve(rows[0], payload=Payload(inline=core.inputs.input_of(run)))
    return RunHistory(
        id=run.id,
        generation=run.generation,
        key=first.run,
        workflow=run.workflow,
        version=run.version,
        status=run.status,
        created_at=instant(first.at if run.kept_rows else run.created_at),
        rows=tuple(rows),
        error=run.error,
        scheduled=run.scheduled,
        parent=run.parent_run,
        attributes=run.attributes,
        headers=run.headers,
    )


def rows_since(core: Core, run: Run, seen: int) -> list[HistoryRow]:
    """Return the rows of a run after a number, up to its last known row, with all values."""
    return [_inlined(core, row) for row in rows_of(core.stores.persistence, run, seen, upto=run.last_row)]


def text_of(payload: Payload | None) -> str:
    """Return the JSON text of an inline payload."""
    return "null" if payload is None or payload.inline is None else payload.inline


def _inlined(core: Core, row: HistoryRow) -> HistoryRow:
    if row.payload is None or row.payload.inline is not None:
        return row
    return attrs.evolve(row, payload=Payload(inline=core.payloads.get(row.payload)))


def _row_document(row: HistoryRow) -> dict[str, object]:
    document: dict[str, object] = {"number": row.number, "type": row.type, "at": _iso(row.at)}
    place = {"stage": row.node, "item": row.item, "epoch": row.epoch}
    document |= {name: value for name, value in place.items() if value is not None}
    if row.data is not None:
        document["data"] = events.facts_of(row)
    if row.payload is not None:
        document["payload"] = parse(text_of(row.payload))
    return document


def _row_from(given: object, run: str, path: str) -> HistoryRow:
    if not isinstance(given, dict):
        raise TypeError(f"{path}: expected object, got {json_name(given)}")
    document = cast("Mapping[str, Any]", given)
    stage, item, epoch = document.get("stage"), document.get("item"), document.get("epoch")
    return HistoryRow(
        run=run,
        number=_whole(document["number"], f"{path}.number"),
        type=_text(document["type"], f"{path}.type"),
        at=_micros(document["at"], f"{path}.at"),
        node=None if stage is None else _text(stage, f"{path}.stage"),
        item=None if item is None else _whole(item, f"{path}.item"),
        epoch=None if epoch is None else _whole(epoch, f"{path}.epoch"),
        payload=Payload(inline=compact(document["payload"])) if "payload" in document else None,
        data=canonical(document["data"]) if "data" in document else None,
    )


def _check_rows(rows: tuple[HistoryRow, ...]) -> None:
    if not rows or rows[0].type != events.RunCreated.type:
        raise InvalidHistoryError(f"its first row is not a {events.RunCreated.type}")
    for number, row in enumerate(rows, 1):
        if row.number != number:
            raise InvalidHistoryError(f"row {number} is missing: row {row.number} follows instead")


def _iso(at: Micros) -> str:
    return instant(at).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _micros(text: object, path: str) -> Micros:
    at = datetime.fromisoformat(_text(text, path))
    if at.tzinfo is None:
        raise ValueError(f"{path}: expected a time with a time zone, got {text!r}")
    return micros(at)


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{path}: expected string, got {json_name(value)}")
    return value


def _whole(value: object, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{path}: expected integer, got {json_name(value)}")
    return value
