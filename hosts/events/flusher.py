"""The flusher of the outbox: delivers the events of runs to sinks, one round at a time, in any host."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, cast

import attrs

from holdfast.hosts.events.delivery import ERROR_MAX, DeliveryProgress, PendingEvents, deliver
from holdfast.hosts.text import counted
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import (
    FLUSH_LIMIT,
    OutboxFlush,
    OutboxFlushed,
    OutboxSettle,
    OutboxSettled,
    OutboxSweep,
    StreamFailure,
    StreamLease,
    StreamProgress,
)
from holdfast.kernel.history.events import shown_data
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.events import USER_EVENTS, Event, EventSink
from holdfast.ports.json import canonical, parse
from holdfast.ports.queries.outbox import SinksWithDueStreams, StreamRows, StreamStart
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros
from holdfast.ports.unreadable import PARSE_ERRORS

LEASE: Final = 60.0
"""How long streams are leased for a flush, in seconds."""
FLUSH_SECONDS: Final = 0.5
"""How long a flush delivers leased streams before it releases the remaining ones, in seconds."""
SETTLE_AFTER: Final = 0.015
"""Seconds after which a flush stores its progress, to limit duplicates if the process is killed."""
ROWS_EACH: Final = 100
"""The maximum number of history rows read of one run."""
ROWS_AT_ONCE: Final = 500
"""The maximum number of history rows read at a time. Between two reads a flush can store its progress."""
SWEEP_INTERVAL: Final = 10.0
"""Seconds between two sweeps."""
PAGES_AT_ONCE: Final = 20
"""The maximum number of pages in one sweep, if a sink is new."""
SKIPPED: Final = "event.skipped"
"""The type of the event that replaces a skipped one."""

_log = logging.getLogger("holdfast.events")


@attrs.frozen(kw_only=True)
class FlushResult:
    """The result of a flush.

    Attributes:
        events: How many events the sinks took.
        dead_lettered: How many streams were dead-lettered, because their sink repeatedly refused an event.
        failing: The names of sinks that took nothing and will be retried later.
        more: Whether there may be more to deliver at once.
    """

    events: int = 0
    dead_lettered: int = 0
    failing: tuple[str, ...] = ()
    more: bool = False


class Flusher:
    """Delivers events to some sinks. Its state is only the position of the sweep, so losing it does no harm.

    Several threads may use it for different sinks.
    """

    def __init__(self, core: Core, sinks: Mapping[str, EventSink], *, lease: float = LEASE) -> None:
        self._core = core
        self._sinks = dict(sinks)
        self._lease = lease
        self._sweep_at = 0.0
        self._sweep_after: str = ""
        self._began: Micros | None = None
        self._hurry = False
        self._logged_unknown: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sinks."""
        return tuple(self._sinks)

    def find_due_sinks(self) -> tuple[str, ...]:
        """Return the sinks with events due. Every ten seconds, sweep for events that no stream records first."""
        if not self._sinks:
            return ()
        self.sweep_if_due()
        now = micros(self._core.clock.now())
        return self._core.stores.persistence.read(SinksWithDueStreams(self._core.namespace, self.names, now))

    def sweep_if_due(self) -> None:
        """Every ten seconds, sweep for events that no stream records."""
        if self._core.clock.monotonic() >= self._sweep_at:
            self._sweep()

    def flush(self, *, keep_on: Callable[[], bool] = lambda: True) -> FlushResult:
        """Deliver events until none is due or `keep_on` returns False."""
        total = FlushResult()
        while keep_on():
            names = self.find_due_sinks()
            if not names:
                return attrs.evolve(total, more=False)
            for name in names:
                one = self.flush_once(name, keep_on)
                total = FlushResult(
                    events=total.events + one.events,
                    dead_lettered=total.dead_lettered + one.dead_lettered,
                    failing=tuple(sorted({*total.failing, *one.failing})),
                    more=True,
                )
        return total

    def flush_once(self, name: str, keep_on: Callable[[], bool] = lambda: True) -> FlushResult:
        """Lease some streams of one sink, deliver their events, and store the progress."""
        clock = self._core.clock
        # Half of the lease is reserved for the call in progress and for the store.
        began = clock.monotonic()
        until = began + self._lease / 2
        command = OutboxFlush(namespace=self._core.namespace, sink=name, lease=round(self._lease * 1_000_000))
        leased = self._core.kernel.dispatch(command)
        if not leased.streams:
            return FlushResult()
        delivery = DeliveryProgress()
        settling = _ProgressWriter(self._core, name, leased, delivery)
        untouched = [stream.run for stream in leased.streams]
        settled_at = began

        def may_go_on() -> bool:
            return clock.monotonic() < until and keep_on()

        try:
            for group in _groups(leased.streams):
                if delivery.error is not None or not may_go_on():
                    break
                if delivery.took and clock.monotonic() >= began + FLUSH_SECONDS:
                    break
                if clock.monotonic() >= settled_at + SETTLE_AFTER:
                    settling.settle_new()
                    settled_at = clock.monotonic()
                pending = self._readable_pending(leased, group, delivery)
                del untouched[: len(group)]
                deliver(self._sinks[name], pending, delivery, failing=leased.failing, may_go_on=may_go_on)
        finally:
            delivery.untouched += untouched
            settled = settling.settle_all()
        return self._flushed(name, leased, delivery, settled)

    def _flushed(
        self, name: str, leased: OutboxFlushed, delivery: DeliveryProgress, settled: OutboxSettled
    ) -> FlushResult:
        numbers = {one.run: one for one in delivery.refused}
        ids = self._ids(settled.dead_lettered)
        for run in settled.dead_lettered:
            refused = numbers[run]
            _log.error(
                "sink %r refuses event %s of run %s repeatedly: the run's events are dead-lettered, "
                "see `holdfast dead-letter list`: %s",
                name,
                refused.number,
                ids.get(run, run),
                refused.error,
            )
        if settled.fenced:
            _log.warning(
                "sink %r was too slow: the events of %s may be delivered twice",
                name,
                counted(len(settled.fenced), "run"),
            )
        is_failing = settled.retry_at is not None
        if is_failing:
            error = delivery.error or next((one.error for one in delivery.refused), "")
            _log.warning("sink %r accepts no events now, delivery is retried: %s", name, error)
        full = len(leased.streams) >= FLUSH_LIMIT or any(
            one.number < stream.head_row for one, stream in _matched(delivery, leased.streams)
        )
        return FlushResult(
            events=delivery.events,
            dead_lettered=len(settled.dead_lettered),
            failing=(name,) if is_failing else (),
            more=not is_failing and (full or bool(delivery.untouched)),
        )

    def _ids(self, runs: tuple[str, ...]) -> dict[str, str]:
        """Return run ids by run key, for log messages."""
        if not runs:
            return {}
        return {run.key: run.id for run in self._core.stores.persistence.read(RunsByKey(runs))}

    def _readable_pending(
        self, leased: OutboxFlushed, streams: Sequence[StreamLease], delivery: DeliveryProgress
    ) -> list[PendingEvents]:
        """Return the pending events. A run whose events can't be read is dead-lettered; the others proceed."""
        try:
            return self._pending(leased, streams)
        except (UnreadableRowError, *PARSE_ERRORS) as error:
            if len(streams) == 1:
                (stream,) = streams
                refused = StreamFailure(
                    run=stream.run,
                    delivered=stream.after,
                    number=stream.after + 1,
                    error=f"the events of the run can't be read: {error}"[:ERROR_MAX],
                    final=True,
                )
                delivery.refused.append(refused)
                return []
        return [one for stream in streams for one in self._readable_pending(leased, (stream,), delivery)]

    def _pending(self, leased: OutboxFlushed, streams: Sequence[StreamLease]) -> list[PendingEvents]:
        starts = tuple(StreamStart(one.run, one.after, leased.since) for one in streams)
        persistence = self._core.stores.persistence
        rows: dict[str, list[HistoryRow]] = {}
        for row in persistence.read(StreamRows(starts, ROWS_EACH)):
            rows.setdefault(row.run, []).append(row)
        runs = {run.key: run for run in persistence.read(RunsByKey(tuple(one.run for one in streams)))}
        return [_pending_of(one, rows.get(one.run, []), runs.get(one.run), leased.types) for one in streams]

    def _log_unknown(self, sinks: tuple[str, ...]) -> None:
        """Log once for each sink of this process that is not registered and so gets no events."""
        for name in sorted({*sinks} - self._logged_unknown):
            _log.warning(
                "the sink %r is not registered in the namespace %r and gets no events: register it with"
                " `holdfast sink add %s`, or with engine.register_sink(...)",
                name,
                self._core.namespace,
                name,
            )
        self._logged_unknown = {*sinks}

    def _sweep(self) -> None:
        """Check the next page of runs for events that no stream records; for a new sink, many pages, from the start."""
        for _ in range(PAGES_AT_ONCE):
            if not self._sweep_after:
                self._began = micros(self._core.clock.now())
            swept = self._core.kernel.dispatch(
                OutboxSweep(
                    namespace=self._core.namespace,
                    sinks=self.names,
                    began=self._began if self._hurry else None,
                    after=self._sweep_after,
                )
            )
            self._log_unknown(swept.unknown)
            if swept.healed:
                _log.info(
                    "events that were missing in the outbox were added: %s", counted(swept.healed, "run")
                )
            following: str | None = swept.next
            began_anew = swept.hurry and not self._hurry
            self._hurry = swept.hurry
            self._sweep_after = "" if began_anew else following or ""
            if not began_anew and (following is None or not swept.hurry):
                break
        is_under_way = self._hurry and self._sweep_after != ""
        self._sweep_at = self._core.clock.monotonic() + (0.0 if is_under_way else SWEEP_INTERVAL)


@attrs.define
class _ProgressWriter:
    """Stores the progress of a delivery in portions, each part of it once."""

    core: Core
    sink: str
    leased: OutboxFlushed
    delivery: DeliveryProgress
    delivered: int = 0
    refused: int = 0
    so_far: OutboxSettled = attrs.field(factory=OutboxSettled)

    def settle_new(self) -> None:
        """Store the progress since the last call, if there is any."""
        if len(self.delivery.delivered) > self.delivered or len(self.delivery.refused) > self.refused:
            self._settle((), None)

    def settle_all(self) -> OutboxSettled:
        """Store the remaining progress, release the untouched streams, and return the overall outcome."""
        self._settle(tuple(self.delivery.untouched), self.delivery.error)
        return self.so_far

    def _settle(self, untouched: tuple[str, ...], error: str | None) -> None:
        delivered, refused = self.delivery.delivered[self.delivered :], self.delivery.refused[self.refused :]
        settled = self.core.kernel.dispatch(
            OutboxSettle(
                namespace=self.core.namespace,
                sink=self.sink,
                registration=self.leased.registration,
                holder=self.leased.holder,
                delivered=tuple(delivered),
                refused=tuple(refused),
                untouched=untouched,
                took=self.delivery.took,
                error=error,
                retry_after=round(self.delivery.retry_after * 1_000_000),
            )
        )
        self.delivered += len(delivered)
        self.refused += len(refused)
        self.so_far = OutboxSettled(
            fenced=(*self.so_far.fenced, *settled.fenced),
            dead_lettered=(*self.so_far.dead_lettered, *settled.dead_lettered),
            retry_at=settled.retry_at,
        )


def _matched(
    delivery: DeliveryProgress, streams: Sequence[StreamLease]
) -> Iterator[tuple[StreamProgress, StreamLease]]:
    by_run = {one.run: one for one in streams}
    return ((one, by_run[one.run]) for one in delivery.delivered)


def _groups(streams: Sequence[StreamLease]) -> Iterator[Sequence[StreamLease]]:
    """Divide streams into groups of at most `ROWS_AT_ONCE` rows."""
    group: list[StreamLease] = []
    size = 0
    for stream in streams:
        rows = max(1, min(stream.head_row - stream.after, ROWS_EACH))
        if group and size + rows > ROWS_AT_ONCE:
            yield group
            group, size = [], 0
        group.append(stream)
        size += rows
    yield group


def _pending_of(
    stream: StreamLease, rows: Sequence[HistoryRow], run: Run | None, types: tuple[str, ...]
) -> PendingEvents:
    """Return the pending events in the history rows of one run. Without rows, the stream is up to date."""
    skips = cast("dict[str, dict[str, object]]", parse(stream.skipped_rows)) if stream.skipped_rows else {}
    events = [
        event_of(row, run, skips.get(str(row.number)))
        for row in rows
        if run is not None and (is_wanted(row.type, types) or str(row.number) in skips)
    ]
    end = rows[-1].number if rows else stream.head_row
    return PendingEvents(
        run=stream.run, events=tuple(events), before=stream.after, end=end, suspect=stream.suspect
    )


def event_of(row: HistoryRow, run: Run, skipped: Mapping[str, object] | None = None) -> Event:
    """Return the event for a history row; if an operator skipped it, an `event.skipped` with the reason and actor."""
    if skipped is not None:
        kind, data = SKIPPED, canonical({"type": row.type, **skipped})
    elif row.type.startswith(USER_EVENTS) and row.payload is not None:
        kind, data = row.type, row.payload.inline or "null"
    else:
        kind, data = row.type, shown_data(row) or "{}"
    return Event(
        namespace=run.namespace,
        run_id=run.id,
        run=run.key,
        number=row.number,
        type=kind,
        at=instant(row.at),
        data=data,
        workflow=run.workflow,
        generation=run.generation,
        stage=row.node,
        item=row.item,
    )


def is_wanted(kind: str, types: tuple[str, ...]) -> bool:
    """Return whether a sink for these types of events gets one of this type."""
    return not types or any(kind == one or (one.endswith("*") and kind.startswith(one[:-1])) for one in types)
