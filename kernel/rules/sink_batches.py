"""Rules for sinks that clients read by themselves, batch by batch, instead of having events delivered.

A batch is noted in the sink's row: which rows of which runs it has. It stays there until it is acknowledged, so a
client that got no answer reads the same events again, from any host. There is one batch at a time. Its streams count as
delivered when it is made; so rows that follow are due for the next batch.

A batch may have no event of the types that the sink wants. It is passed over: the next one gets its number, so no
client has ever got the number of a batch that is gone.
"""

from collections.abc import Iterator, Sequence
from typing import cast

import attrs

from holdfast.kernel.commands import OutboxBatch, OutboxRead, StreamRange
from holdfast.kernel.rules.sinks import types_of
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import SinkCursorError
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.outbox import Sink, SinkName, Stream
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import DueStreams
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class StoredBatch:
    """The batch that was read last, as the sink's row has it."""

    number: int = 0
    """Its number, from 1; 0 before the first one."""
    read_at: Micros = 0
    """Instant at which it was made or acknowledged."""
    streams: tuple[StreamRange, ...] = ()
    """What it has; nothing once it is acknowledged."""
    passed_over: int = 0
    """How many batches had no event for the client. Their numbers were used again."""

    @property
    def rows(self) -> int:
        """The number of history rows in it."""
        return sum(one.last - one.after for one in self.streams)

    @property
    def text(self) -> str:
        """The JSON text."""
        streams = [[one.run, one.after, one.last, one.skipped_rows] for one in self.streams]
        found: dict[str, object] = {"number": self.number, "read_at": self.read_at, "streams": streams}
        return canonical({**found, "passed_over": self.passed_over} if self.passed_over else found)


def stored_batch(sink: Sink) -> StoredBatch | None:
    """Return the batch in the row of a sink; None if it is not read by clients."""
    if sink.batch is None:
        return None
    found = cast("dict[str, object]", parse(sink.batch))
    streams = cast("list[tuple[str, int, int, str | None]]", found["streams"])
    return StoredBatch(
        number=cast("int", found["number"]),
        read_at=cast("int", found["read_at"]),
        streams=tuple(
            StreamRange(run=run, after=after, last=last, skipped_rows=skipped)
            for run, after, last, skipped in streams
        ),
        passed_over=cast("int", found.get("passed_over", 0)),
    )


def reads_of_read(command: OutboxRead) -> Reads:
    """Search for due streams; lock the sink."""
    return Reads(search=_due(command), sinks=(SinkName(command.namespace, command.sink),), locks_sinks=True)


def decide_read(state: State, command: OutboxRead, now: Micros, _: Ids) -> Decision[OutboxBatch]:
    """Return the batch that is not acknowledged, or acknowledge it and make the next one. Raises SinkCursorError."""
    sink = state.tables.sink_named(SinkName(command.namespace, command.sink))
    if sink is None:
        return Decision(OutboxBatch())
    known = stored_batch(sink)
    if known is None and not command.reads_on:
        return Decision(OutboxBatch(registration=sink.key, since=sink.since, types=types_of(sink)))
    batch = known or StoredBatch(read_at=now)
    if _passes_over(sink, batch, command):
        batch = attrs.evolve(
            batch, number=batch.number - 1, read_at=now, streams=(), passed_over=batch.passed_over + 1
        )
    elif command.passes_over is None and _acknowledges(sink, batch, command):
        batch = attrs.evolve(batch, read_at=now, streams=())
    changes: list[Change] = []
    if not batch.streams and command.reads_on:
        due = [
            stream
            for stream in map(state.tables.streams.__getitem__, state.found[_due(command)].streams)
            if stream.due_at is not None and stream.due_at <= now
        ]
        ranges = list(_ranges(due, command.rows_max))
        if ranges:
            streams = tuple(one for _, one in ranges)
            batch = attrs.evolve(batch, number=batch.number + 1, read_at=now, streams=streams)
            changes += [Update(_handed_out(stream, one.last, now)) for stream, one in ranges]
    if batch != known:
        changes.insert(0, Update(attrs.evolve(sink, batch=batch.text)))
    reply = OutboxBatch(
        registration=sink.key,
        number=batch.number,
        since=sink.since,
        types=types_of(sink),
        streams=batch.streams if command.reads_on else (),
        passed_over=batch.passed_over,
    )
    return Decision(reply, tuple(changes))


def _passes_over(sink: Sink, batch: StoredBatch, command: OutboxRead) -> bool:
    """Return whether a batch without events for the client is replaced. Another host may have done so already."""
    here = (sink.key, batch.number, batch.passed_over)
    return bool(batch.streams) and here == (
        command.registration,
        command.acknowledged,
        command.passes_over,
    )


def _acknowledges(sink: Sink, batch: StoredBatch, command: OutboxRead) -> bool:
    """Return whether a command acknowledges a batch, as opposed to reading it again. Raises SinkCursorError."""
    if command.registration is None or command.acknowledged is None:
        return False
    if command.registration != sink.key:
        raise SinkCursorError(sink.name, "the sink was removed and registered anew")
    if command.acknowledged == batch.number:
        return bool(batch.streams)
    if command.acknowledged == batch.number - 1 and batch.streams:
        return False
    raise SinkCursorError(
        sink.name, f"it is of batch {command.acknowledged:,}, and batch {batch.number:,} was read since"
    )


def _ranges(due: Sequence[Stream], rows: int) -> Iterator[tuple[Stream, StreamRange]]:
    """Yield what a new batch has of each stream, with so many rows at most."""
    for stream in due:
        if rows <= 0:
            return
        taken = min(max(0, stream.head_row - stream.delivered), rows)
        rows -= taken
        last = stream.delivered + taken
        yield (
            stream,
            StreamRange(run=stream.run, after=stream.delivered, last=last, skipped_rows=stream.skipped_rows),
        )


def _handed_out(stream: Stream, last: int, now: Micros) -> Stream:
    return attrs.evolve(
        stream,
        delivered=last,
        holder=None,
        due_at=now if last < stream.head_row else None,
        attempts=0,
        refused_row=None,
        failed_at=None,
        error=None,
    )


def _due(command: OutboxRead) -> DueStreams:
    return DueStreams(command.namespace, command.sink, command.limit)
