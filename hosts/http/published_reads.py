"""Operations that read all values that a durable function publishes under a name.

A value is a history row, so the id of an event, `<generation>/<row>`, says exactly where to continue. The reads follow
a run that continues as new, and end with it: a rerun has values of its own.
"""

from datetime import datetime
from typing import Final

import attrs

from holdfast.hosts.functions.published_values import PublishedRow, PublishedRowReader
from holdfast.hosts.http.operations import (
    RUN,
    Invocation,
    Nothing,
    Operation,
    PageQuery,
    ServerEvent,
    Table,
    Wait,
)
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.run_events import HistoryEvent, RunEnded, place_in
from holdfast.hosts.inspection.run_info import find_run
from holdfast.hosts.wiring.services import Core
from holdfast.ports.clock import instant
from holdfast.ports.errors import BlobMissingError, InvalidFilterError, RunNotFoundError
from holdfast.ports.json import parse
from holdfast.ports.queries.runs import RunsByKey

_ROWS: Final = 500
"""How many history rows one read of a stream has."""


@attrs.frozen(kw_only=True)
class PublishedItem:
    """A value that a durable function published."""

    generation: int
    """The number of the generation that published it, from 1."""
    number: int
    """The number of its history row."""
    at: datetime
    """When it was stored; aware, in UTC."""
    value: object
    """The value as JSON."""


@attrs.frozen(kw_only=True)
class PublishedPage:
    """A page of the values that a durable function published under a name."""

    items: tuple[PublishedItem, ...]
    """The values, in the order in which they were stored."""
    next: str | None
    """The `after` of the next page; null if there was none when this page was read."""
    place: str
    """What was read up to, as `<generation>/<row>`: the `after` of a later read of what follows."""
    ended: bool
    """Whether the run has ended, and all was read."""


def list_published(call: Invocation[PageQuery, Nothing]) -> PublishedPage:
    """List the values that a durable function published under a name, in order.

    As a stream, it has each value once, with the type `value` and the id `<generation>/<row>`, and follows a run that
    continues as new. `end` is sent when the run has ended and all values were sent. A client that reconnects then gets
    204.
    """
    query, reader = call.query, _reader(call, call.query.after)
    rows: list[PublishedRow] = []
    while len(rows) <= query.limit and (found := reader.read_rows()):
        rows += found
    shown, has_more = rows[: query.limit], len(rows) > query.limit
    place = _id_of(shown[-1]) if has_more else f"{reader.generation}/{reader.last_read_row}"
    return PublishedPage(
        items=tuple(_item(reader, one) for one in shown),
        next=place if has_more else None,
        place=place,
        ended=reader.ended and not has_more,
    )


class PublishedEvents:
    """Reads published values as events. Blocking."""

    def __init__(self, core: Core, run_id: str, reader: PublishedRowReader) -> None:
        self._core = core
        self._run_id = run_id
        self._reader = reader
        self._has_sent = False
        self._is_over = False

    @property
    def place(self) -> tuple[str, int]:
        """The key of the generation, and the number of the last history row that was read."""
        return self._reader.run, self._reader.last_read_row

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, and all of its values have been read."""
        return self._is_over

    def read(self) -> list[ServerEvent]:
        """Return the next values as events; at the end the event `end`, unless nothing was read before it."""
        if self._is_over:
            return []
        reader = self._reader
        if rows := reader.read_rows(_ROWS):
            self._has_sent = True
            return [HistoryEvent(id=_id_of(one), type="value", data=_item(reader, one)) for one in rows]
        self._is_over = reader.ended
        found = self._core.stores.persistence.read(RunsByKey((reader.run,)))
        if not self._is_over or not self._has_sent or not found:
            return []
        ended = RunEnded(run_id=self._run_id, generation=reader.generation, status=found[0].status)
        return [HistoryEvent(id=None, type="end", data=ended)]


def stream_published(call: Invocation[PageQuery, Nothing], last: str | None) -> PublishedEvents:
    """Return a reader of the values as events."""
    reader = _reader(call, call.query.after if last is None else last, is_header=last is not None)
    return PublishedEvents(call.engine.core, call.path["run_id"], reader)


def _reader(
    call: Invocation[PageQuery, Nothing], after: str | None, *, is_header: bool = False
) -> PublishedRowReader:
    """Return a reader that continues after a place. Raises RunNotFoundError, InvalidFilterError or HttpError."""
    core, run_id, name = call.engine.core, call.path["run_id"], call.path["name"]
    if after is None:
        return PublishedRowReader(core, find_run(core, run_id), name)
    found = place_in(after)
    if found is None and is_header:
        raise HttpError("invalid_request", "Last-Event-ID is not <generation>/<row>")
    if found is None:
        raise InvalidFilterError("after", "is not <generation>/<row>")
    generation, row = found
    if generation == 0:
        raise RunNotFoundError(run_id, generation)
    return PublishedRowReader(core, find_run(core, run_id, generation), name, row)


def _id_of(found: PublishedRow) -> str:
    return f"{found.generation}/{found.row.number}"


def _item(reader: PublishedRowReader, found: PublishedRow) -> PublishedItem:
    return PublishedItem(
        generation=found.generation,
        number=found.row.number,
        at=instant(found.row.at),
        value=parse(reader.text_of(found)),
    )


OPERATIONS: Final[Table] = (
    Operation(
        name="run.published_values",
        method="GET",
        path=f"{RUN}/published/{{name}}/values",
        scope=Scope.PAYLOADS,
        query=PageQuery,
        reply=PublishedPage,
        handler=list_published,
        wait=Wait.ROWS,
        stream=stream_published,
        events={"value": PublishedItem, "end": RunEnded},
        errors=(RunNotFoundError, InvalidFilterError, BlobMissingError),
    ),
)
