"""Reads of a sink by a client, batch by batch: every event once and in one order, from any process.

The place of a client is a cursor: `<registration>.<batch>.<stream>.<row>` after an event, and `<registration>.<batch>`
after the last one of a batch. Reading after a cursor acknowledges what is before it.
"""

import re
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, cast

import attrs

from holdfast.hosts.events.flusher import Flusher, event_of, is_wanted
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import OutboxBatch, OutboxRead
from holdfast.ports.clock import micros
from holdfast.ports.errors import EventRefusedError, InvalidFilterError, SinkNotFoundError
from holdfast.ports.events import Event
from holdfast.ports.json import parse
from holdfast.ports.queries.outbox import SinksWithDueStreams, StreamRows, StreamStart
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run

ROWS_MAX: Final = 1_000
"""The most history rows of a batch."""
_EMPTY_MAX: Final = 20
"""How many batches without an event of the sink's types one read passes over."""
_CURSOR: Final = re.compile(r"([0-9A-Za-z]{1,64})\.(\d{1,15})(?:\.(\d{1,6})\.(\d{1,12}))?")


@attrs.frozen(kw_only=True)
class SinkEvent:
    """An event of a sink that a client reads."""

    cursor: str
    """The place after it: reading continues there, and acknowledges the batches before its own."""
    id: str
    """What identifies it: the key of the generation and the number."""
    run_id: str
    """The run id."""
    generation: int
    """The number of the generation, from 1."""
    workflow: str
    """The name of the workflow."""
    number: int
    """The number of the history row."""
    type: str
    """The type of the event."""
    at: datetime
    """When it was stored. Aware, in UTC."""
    stage: str | None
    """The stage that it is about, if any."""
    item: int | None
    """The index of the map item that it is about, if any."""
    data: object
    """What a stage published, or an object of small facts."""


@attrs.frozen(kw_only=True)
class SinkBatch:
    """A batch of the events of a sink. It is the same however often it is read, until it is acknowledged."""

    items: tuple[SinkEvent, ...]
    """The events, those of a run in order; none if there is nothing new."""
    next: str
    """The cursor after these events. Reading or acknowledging with it acknowledges them."""


@attrs.frozen
class SinkCursor:
    """A place in the batches of a sink."""

    registration: str
    number: int
    stream: int | None = None
    """The index of the stream in the batch; None after the whole batch."""
    row: int = 0

    @property
    def text(self) -> str:
        """The text that clients keep."""
        whole = f"{self.registration}.{self.number}"
        return whole if self.stream is None else f"{whole}.{self.stream}.{self.row}"


def cursor_from(text: str) -> SinkCursor:
    """Return the cursor of a text. Raises InvalidFilterError."""
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidFilterError("after", "is not the cursor of an event or batch")
    registration, number, stream, row = found.groups()
    if stream is None:
        return SinkCursor(registration, int(number))
    return SinkCursor(registration, int(number), int(stream), int(row))


def read_batch(core: Core, name: str, after: SinkCursor | None, limit: int) -> SinkBatch:
    """Acknowledge what is before a cursor, and return the events after it.

    Without a cursor, the batch is returned that is not acknowledged, or a new one. Blocks.

    Raises:
        SinkNotFoundError: There is no such sink.
        SinkCursorError: Another batch was read since.
    """
    found = _dispatch(core, name, after, reads_on=True, limit=limit)
    for _ in range(_EMPTY_MAX):
        end = SinkCursor(found.registration, found.number)
        items = tuple(_events(core, found, after))
        if items:
            # So that whoever goes on from it acknowledges the batch with the very read that makes the next one.
            items = (*items[:-1], attrs.evolve(items[-1], cursor=end.text))
        if items or not found.streams or _is_in(found, after):
            return SinkBatch(items=items, next=end.text)
        found = _pass_over(core, name, found, limit)  # it has only events of other types
    # The last batch was not looked at: the client reads it from where it is.
    return SinkBatch(items=(), next=SinkCursor(found.registration, found.number - bool(found.streams)).text)


def acknowledge_batch(core: Core, name: str, cursor: SinkCursor) -> None:
    """Acknowledge what is before a cursor. Raises SinkNotFoundError or SinkCursorError."""
    _dispatch(core, name, cursor, reads_on=False, limit=1)


def has_due_events(core: Core, name: str) -> bool:
    """Return whether a new batch of a sink that clients read would have something."""
    now = micros(core.clock.now())
    return bool(
        core.stores.persistence.read(SinksWithDueStreams(core.namespace, (name,), now, are_read=True))
    )


class SinkSweeps:
    """Sweeps for events that no stream records, for sinks that clients read: no flusher does it for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flushers: dict[tuple[str, str], Flusher] = {}

    def sweep_if_due(self, core: Core, name: str) -> None:
        """Sweep for a registered sink every ten seconds. Does nothing while another thread does."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            flusher = self._flushers.setdefault((core.namespace, name), Flusher(core, {name: _Nowhere()}))
            flusher.sweep_if_due()
        finally:
            self._lock.release()


class _Nowhere:
    """A sink that gets nothing: hosts deliver no events to a sink that clients read."""

    def emit(self, events: Sequence[Event], /) -> None:
        raise EventRefusedError("clients read the events of this sink")


def _dispatch(core: Core, name: str, after: SinkCursor | None, *, reads_on: bool, limit: int) -> OutboxBatch:
    core.connect()
    acknowledged = None
    if after is not None:
        acknowledged = after.number - (after.stream is not None)
    command = OutboxRead(
        namespace=core.namespace,
        sink=name,
        registration=None if after is None else after.registration,
        acknowledged=acknowledged,
        reads_on=reads_on,
        rows_max=limit,
    )
    batch = core.kernel.dispatch(command)
    if not batch.registration:
        raise SinkNotFoundError(name)
    return batch


def _is_in(batch: OutboxBatch, after: SinkCursor | None) -> bool:
    """Return whether a client has got events of a batch: its cursor is after one of them."""
    return after is not None and after.stream is not None and after.number == batch.number


def _pass_over(core: Core, name: str, batch: OutboxBatch, limit: int) -> OutboxBatch:
    """Return the batch after one that has nothing for the client, under the same number."""
    return core.kernel.dispatch(
        OutboxRead(
            namespace=core.namespace,
            sink=name,
            registration=batch.registration,
            acknowledged=batch.number,
            passes_over=batch.passed_over,
            rows_max=limit,
        )
    )


def _events(core: Core, batch: OutboxBatch, after: SinkCursor | None) -> Iterator[SinkEvent]:
    """Yield the events of a batch after a cursor."""
    if not batch.streams:
        return
    persistence = core.stores.persistence
    starts = tuple(StreamStart(one.run, one.after, batch.since) for one in batch.streams)
    rows: dict[str, list[HistoryRow]] = {}
    for row in persistence.read(StreamRows(starts, max(one.last - one.after for one in batch.streams))):
        rows.setdefault(row.run, []).append(row)
    runs = {run.key: run for run in persistence.read(RunsByKey(tuple(one.run for one in batch.streams)))}
    begin = (-1, 0)
    if after is not None and after.number == batch.number and after.stream is not None:
        begin = (after.stream, after.row)
    for index, stream in enumerate(batch.streams):
        run = runs.get(stream.run)
        skips = (
            cast("dict[str, dict[str, object]]", parse(stream.skipped_rows)) if stream.skipped_rows else {}
        )
        for row in rows.get(stream.run, ()) if run is not None else ():
            assert run is not None
            is_there = row.number <= stream.last and row.at >= batch.since and (index, row.number) > begin
            skip = skips.get(str(row.number))
            if is_there and (skip is not None or is_wanted(row.type, batch.types)):
                cursor = SinkCursor(batch.registration, batch.number, index, row.number)
                yield _event(event_of(row, run, skip), cursor, run)


def _event(event: Event, cursor: SinkCursor, run: Run) -> SinkEvent:
    return SinkEvent(
        cursor=cursor.text,
        id=event.id,
        run_id=run.id,
        generation=run.generation,
        workflow=event.workflow,
        number=event.number,
        type=event.type,
        at=event.at,
        stage=event.stage,
        item=event.item,
        data=parse(event.data),
    )
