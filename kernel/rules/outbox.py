"""Rules for the outbox: leasing streams of events to a flush, storing its progress, dead-lettering and sweeping."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

import attrs

from holdfast.kernel.commands import (
    DeadLetterReplay,
    DeadLettersReplayed,
    OutboxFlush,
    OutboxFlushed,
    OutboxSettle,
    OutboxSettled,
    OutboxSweep,
    OutboxSwept,
    StreamFailure,
    StreamLease,
)
from holdfast.kernel.composed_searches import RunsWithUndeliveredRows
from holdfast.kernel.rules.sinks import types_of, with_failure, with_success
from holdfast.kernel.runs.transitions import STREAM_TRANSITIONS
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import AdvanceStreams, Change, Update
from holdfast.ports.clock import Ids
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.outbox import Sink, SinkName, Stream, StreamHead, StreamKey, StreamState
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import DeadLetteredStreams, DueStreams

DEAD_LETTER_AFTER: Final = 5
"""How many times a sink must reject an event as such before the event's stream is dead-lettered."""
DEAD_LETTER_AFTER_FAILURES: Final = 20
"""How many times a sink must fail at an event for other reasons, while it accepts other events.

With the waits in between this takes more than an hour, so a partial outage of a sink dead-letters nothing.
"""
KNOWN_EVERYWHERE: Final[Micros] = 60_000_000
"""Microseconds after its registration by which every process knows of a sink."""
ERROR_MAX: Final = 2_000
"""Longest error text, and reason of a skipped event, that is stored, in characters."""
_DELAY_MIN: Final[Micros] = 1_000_000
_DELAY_MAX: Final[Micros] = 300_000_000


def stream_advances(
    rows: Iterable[HistoryRow], runs: Mapping[str, Run], sinks: Sequence[Sink]
) -> list[AdvanceStreams]:
    """Return the changes that make rows, which are about to be stored, known to their streams: one per run and sink."""
    last: dict[str, HistoryRow] = {}
    for row in rows:
        if row.run not in last or last[row.run].number < row.number:
            last[row.run] = row
    return [
        AdvanceStreams(StreamHead(sink=sink.key, run=key, head_row=row.number, at=row.at))
        for key, row in last.items()
        for sink in sinks
        if sink.namespace == runs[key].namespace
    ]


def reads_of_flush(command: OutboxFlush) -> Reads:
    """Search for streams with undelivered rows; read the sink."""
    return Reads(search=_due(command), sinks=(SinkName(command.namespace, command.sink),), if_found=True)


def decide_flush(state: State, command: OutboxFlush, now: Micros, ids: Ids) -> Decision[OutboxFlushed]:
    """Lease the due streams under a new holder id, so that a late `outbox.settle` of an older lease is fenced."""
    sink = state.tables.sink_named(SinkName(command.namespace, command.sink))
    due = [
        stream
        for stream in map(state.tables.streams.__getitem__, state.found[_due(command)].streams)
        if stream.due_at is not None and stream.due_at <= now
    ]
    if sink is None or sink.batch is not None or not due:
        return Decision(OutboxFlushed())
    holder, until = ids.new(), now + command.lease
    leases = tuple(
        StreamLease(
            run=stream.run,
            after=stream.delivered,
            head_row=stream.head_row,
            suspect=stream.failed_at is not None,
            skipped_rows=stream.skipped_rows,
        )
        for stream in due
    )
    reply = OutboxFlushed(
        registration=sink.key,
        holder=holder,
        until=until,
        since=sink.since,
        types=types_of(sink),
        failing=sink.failures > 0,
        streams=leases,
    )
    changes = tuple(Update(attrs.evolve(stream, holder=holder, due_at=until)) for stream in due)
    return Decision(reply, changes)


def reads_of_settle(command: OutboxSettle) -> Reads:
    """Lock the sink, then the streams."""
    runs = (
        *(one.run for one in command.delivered),
        *(one.run for one in command.refused),
        *command.untouched,
    )
    return Reads(
        sinks=(SinkName(command.namespace, command.sink),),
        locks_sinks=True,
        streams=tuple(StreamKey(command.registration, run) for run in runs),
    )


def decide_settle(state: State, command: OutboxSettle, now: Micros, _: Ids) -> Decision[OutboxSettled]:
    """Store the progress of streams that the holder still has, and dead-letter those that were refused too often."""
    sink = state.tables.sink_named(SinkName(command.namespace, command.sink))
    fenced: list[str] = []

    def held(run: str) -> Stream | None:
        stream = state.tables.streams.get(StreamKey(command.registration, run))
        if sink is None or sink.key != command.registration or stream is None:
            return None
        if stream.holder != command.holder:
            fenced.append(run)
            return None
        return stream

    streams = [
        _moved(stream, one.number, now) for one in command.delivered if (stream := held(one.run)) is not None
    ]
    error = command.error
    for refusal in command.refused:
        if (stream := held(refusal.run)) is not None:
            assert sink is not None
            counts = refusal.final or command.took or _took_others(sink, stream)
            error = error if counts else error or refusal.error
            streams.append(_refused(stream, refusal, sink, now, counts=counts))
    streams += [
        attrs.evolve(stream, holder=None, due_at=now)
        for run in command.untouched
        if (stream := held(run)) is not None
    ]
    changes: list[Change] = [Update(stream) for stream in streams]
    after = sink
    if sink is not None and sink.key == command.registration:
        after = sink
        if command.took:
            after = with_success(sink, now)
        elif error is not None:
            after = with_failure(sink, now, error[:ERROR_MAX], command.retry_after)
        if after != sink:
            changes.insert(0, Update(after))
    dead_lettered = tuple(stream.run for stream in streams if stream.state is StreamState.DEAD_LETTERED)
    reply = OutboxSettled(
        fenced=tuple(fenced), dead_lettered=dead_lettered, retry_at=None if after is None else after.retry_at
    )
    return Decision(reply, tuple(changes))


def _moved(stream: Stream, number: int, now: Micros) -> Stream:
    delivered = max(stream.delivered, number)
    head_row = max(stream.head_row, delivered)
    if delivered > stream.delivered:
        stream = attrs.evolve(stream, attempts=0, refused_row=None, failed_at=None, error=None)
    return attrs.evolve(
        stream,
        delivered=delivered,
        head_row=head_row,
        holder=None,
        due_at=now if delivered < head_row else None,
    )


def _took_others(sink: Sink, stream: Stream) -> bool:
    """Whether the sink has accepted an event since it failed at this stream."""
    failed_at, succeeded_at = stream.failed_at, sink.succeeded_at
    return failed_at is not None and succeeded_at is not None and succeeded_at > failed_at


def _refused(stream: Stream, refusal: StreamFailure, sink: Sink, now: Micros, *, counts: bool) -> Stream:
    """Schedule the stream again after a failure, or dead-letter it.

    The attempt counts only if the sink rejected the event as such, or accepted other events since the last failure.
    Otherwise the sink as a whole is failing.
    """
    moved = _moved(stream, refusal.delivered, now)
    attempts = moved.attempts + counts
    failed = attrs.evolve(
        moved,
        holder=None,
        attempts=attempts,
        refused_row=refusal.number,
        failed_at=now,
        error=refusal.error[:ERROR_MAX],
    )
    if attempts >= (DEAD_LETTER_AFTER if refusal.final else DEAD_LETTER_AFTER_FAILURES):
        state = STREAM_TRANSITIONS.check(failed.state, StreamState.DEAD_LETTERED)
        return attrs.evolve(failed, state=state, due_at=None, dead_lettered_at=now)
    # Later than the pause of the sink itself, so that other streams are tried first.
    delay = _DELAY_MIN * 2 ** min(attempts if counts else sink.failures + 1, 20)
    return attrs.evolve(failed, due_at=now + min(delay, _DELAY_MAX))


def reads_of_sweep(command: OutboxSweep) -> Reads:
    """Search for runs with rows that are in no stream; lock the sinks if the end of a sweep is to be stored."""
    return Reads(
        search=_undelivered(command),
        sinks=tuple(SinkName(command.namespace, name) for name in command.sinks),
        locks_sinks=command.began is not None,
    )


def decide_sweep(state: State, command: OutboxSweep, now: Micros, _: Ids) -> Decision[OutboxSwept]:
    """Add the missing rows to their streams.

    At the end of a sweep that began when every process knew of the sinks, no further sweep is due.
    """
    found = state.found[_undelivered(command)]
    sinks = [
        sink
        for name in command.sinks
        if (sink := state.tables.sink_named(SinkName(command.namespace, name))) is not None
    ]
    known = tuple(sinks)
    changes: list[Change] = [AdvanceStreams(attrs.evolve(head, at=now)) for head in found.stream_heads]
    began = command.began
    if found.next is None and began is not None:
        walked = [attrs.evolve(sink, swept_at=began) for sink in sinks if not is_walked(sink)]
        changes += [Update(sink) for sink in walked]
        sinks = walked
    reply = OutboxSwept(
        healed=len(found.stream_heads),
        checked=found.checked,
        next=found.next,
        hurry=any(not is_walked(sink) for sink in sinks),
        unknown=tuple(name for name in command.sinks if name not in {sink.name for sink in known}),
    )
    return Decision(reply, tuple(changes))


def is_walked(sink: Sink) -> bool:
    """Whether a sweep over all runs has ended that began when every process knew of the sink."""
    return sink.swept_at is not None and sink.swept_at >= sink.created_at + KNOWN_EVERYWHERE


def reads_of_replay(command: DeadLetterReplay) -> Reads:
    """Search for dead-lettered streams."""
    return Reads(search=_dead_lettered(command))


def decide_replay(
    state: State, command: DeadLetterReplay, now: Micros, _: Ids
) -> Decision[DeadLettersReplayed]:
    """Release dead-lettered streams, with the refused event or without it."""
    found = state.found[_dead_lettered(command)].streams
    streams = [_replayed(state.tables.streams[key], command, now) for key in found]
    reply = DeadLettersReplayed(replayed=len(streams), more=len(streams) >= command.limit)
    return Decision(reply, tuple(Update(stream) for stream in streams))


def _replayed(stream: Stream, command: DeadLetterReplay, now: Micros) -> Stream:
    delivered, skips = stream.delivered, stream.skipped_rows
    if command.skip and stream.refused_row is not None:
        left_out = cast("dict[str, object]", parse(skips)) if skips else {}
        if str(stream.refused_row) in left_out:
            delivered = max(delivered, stream.refused_row)
        skip: dict[str, object] = {"reason": command.reason[:ERROR_MAX]}
        if command.actor is not None:
            skip["actor"] = command.actor.data
        skips = canonical({**left_out, str(stream.refused_row): skip})
    return attrs.evolve(
        stream,
        state=STREAM_TRANSITIONS.check(stream.state, StreamState.READY),
        delivered=delivered,
        skipped_rows=skips,
        due_at=now,
        attempts=0,
        refused_row=None,
        failed_at=None,
        dead_lettered_at=None,
        error=None,
    )


def _due(command: OutboxFlush) -> DueStreams:
    return DueStreams(command.namespace, command.sink, command.limit)


def _dead_lettered(command: DeadLetterReplay) -> DeadLetteredStreams:
    return DeadLetteredStreams(command.namespace, command.sink, command.run_id, command.limit)


def _undelivered(command: OutboxSweep) -> RunsWithUndeliveredRows:
    return RunsWithUndeliveredRows(command.namespace, command.sinks, command.after, command.limit)
