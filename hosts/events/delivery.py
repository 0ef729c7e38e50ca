"""Delivers events to a sink, and isolates failures: whether the sink fails or one event is refused."""

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from holdfast.hosts.text import printable
from holdfast.kernel.commands import StreamFailure, StreamProgress
from holdfast.ports.errors import EventRefusedError, SinkUnavailableError, UnavailableError
from holdfast.ports.events import Event, EventSink

EVENTS_AT_ONCE: Final = 500
"""The maximum number of events in one call of a sink."""
ERROR_MAX: Final = 2_000
"""The maximum length of a stored error, in characters."""
FAILURES_MAX: Final = 3
"""After failing on this many runs in a row, with no success, the sink itself counts as failing."""


@attrs.frozen(kw_only=True)
class PendingEvents:
    """The pending events of one run."""

    run: str
    """The key of the run."""
    events: tuple[Event, ...]
    """The events, in order."""
    before: int
    """The number of the history row before the first event."""
    end: int
    """The number of the last history row, which may be no event."""
    suspect: bool = False
    """Whether the last delivery of this run failed."""


@attrs.define
class DeliveryProgress:
    """The progress of a delivery to one sink."""

    delivered: list[StreamProgress] = attrs.field(factory=list[StreamProgress])
    """Up to which row each run's events were taken."""
    refused: list[StreamFailure] = attrs.field(factory=list[StreamFailure])
    """The runs at whose events the sink failed."""
    untouched: list[str] = attrs.field(factory=list[str])
    """The keys of runs whose events were not tried."""
    events: int = 0
    """How many events the sink took."""
    took: bool = False
    """Whether the sink took any event."""
    error: str | None = None
    """Why the sink failed as a whole; None if it did not."""
    retry_after: float = 0.0
    """The delay before the next delivery that the sink requested, in seconds."""


def deliver(
    sink: EventSink,
    pending: Sequence[PendingEvents],
    delivery: DeliveryProgress,
    *,
    failing: bool,
    may_go_on: Callable[[], bool],
) -> None:
    """Deliver events in as few calls as possible, and record the outcome in `delivery`.

    If a call fails, its runs are tried one by one, and runs that failed before event by event. A sink that takes some
    of the events is healthy, and the others are refused; one that takes none of the first few is failing. No call is
    started after `may_go_on` returns False or the sink has failed.
    """
    waiting = [one for one in pending if one.events]
    delivery.delivered += [StreamProgress(run=one.run, number=one.end) for one in pending if not one.events]
    healthy = [one for one in waiting if not one.suspect]
    alone = [one for one in waiting if one.suspect]
    if failing and not delivery.took:
        healthy, alone = [], [*healthy, *alone]
    for together in _batches(healthy):
        if delivery.error is not None or not may_go_on():
            delivery.untouched += [one.run for one in together]
            continue
        error = _emitted(sink, [event for one in together for event in one.events], delivery)
        if error is None:
            delivery.delivered += [StreamProgress(run=one.run, number=one.end) for one in together]
        elif isinstance(error, UnavailableError):
            _failed(delivery, error)
            _split(together, error, delivery)
        elif len(together) == 1:
            _event_by_event(sink, together[0], delivery, may_go_on, error)
        else:
            _one_by_one(sink, together, delivery, may_go_on)
    _one_by_one(sink, alone, delivery, may_go_on)


def _split(together: Sequence[PendingEvents], error: UnavailableError, delivery: DeliveryProgress) -> None:
    """Divide the runs of a failed call into those whose events the sink took before failing and the untouched ones."""
    left = _taken(error)
    for one in together:
        taken = min(left, len(one.events))
        left -= taken
        if taken:
            number = one.end if taken == len(one.events) else one.events[taken - 1].number
            delivery.delivered.append(StreamProgress(run=one.run, number=number))
            delivery.events += taken
        else:
            delivery.untouched.append(one.run)


def _one_by_one(
    sink: EventSink,
    pending: Sequence[PendingEvents],
    delivery: DeliveryProgress,
    may_go_on: Callable[[], bool],
) -> None:
    failures = 0
    for one in pending:
        if delivery.error is not None or not may_go_on():
            delivery.untouched.append(one.run)
        elif (error := _run_delivered(sink, one, delivery, may_go_on)) is not None:
            failures += 1
            if failures >= FAILURES_MAX and not delivery.took and not isinstance(error, EventRefusedError):
                _failed(delivery, error)


def _run_delivered(
    sink: EventSink, one: PendingEvents, delivery: DeliveryProgress, may_go_on: Callable[[], bool]
) -> Exception | None:
    """Deliver one run's events in one call; if that fails, up to the event at which the sink fails."""
    if one.suspect:
        return _event_by_event(sink, one, delivery, may_go_on, None)
    error = _emitted(sink, one.events, delivery)
    if error is not None:
        return _event_by_event(sink, one, delivery, may_go_on, error)
    delivery.delivered.append(StreamProgress(run=one.run, number=one.end))
    return None


def _event_by_event(
    sink: EventSink,
    one: PendingEvents,
    delivery: DeliveryProgress,
    may_go_on: Callable[[], bool],
    error: Exception | None,
) -> Exception | None:
    """Deliver one run's events up to the one at which the sink fails. `error` is that of a call with all of them."""
    number = one.before
    taken = _taken(error)
    if taken:
        number = one.events[taken - 1].number
        delivery.events += taken
    for event in one.events[taken:]:
        if not may_go_on():
            delivery.delivered.append(StreamProgress(run=one.run, number=number))
            return None
        if error is None or len(one.events) > 1:
            error = _emitted(sink, (event,), delivery)
        if error is not None:
            final = isinstance(error, EventRefusedError)
            delivery.refused.append(
                StreamFailure(
                    run=one.run, delivered=number, number=event.number, error=_text(error), final=final
                )
            )
            return error
        number = event.number
    delivery.delivered.append(StreamProgress(run=one.run, number=one.end))
    return None


def _emitted(sink: EventSink, events: Sequence[Event], delivery: DeliveryProgress) -> Exception | None:
    try:
        sink.emit(events)
    except Exception as error:  # noqa: BLE001  # any error means that the sink has failed
        return error
    delivery.took = True
    delivery.events += len(events)
    return None


def _taken(error: Exception | None) -> int:
    """Return how many events a sink took before it failed."""
    return error.taken if isinstance(error, SinkUnavailableError) else 0


def _failed(delivery: DeliveryProgress, error: Exception) -> None:
    delivery.error = _text(error)
    if isinstance(error, SinkUnavailableError):
        delivery.retry_after = error.retry_after


def _text(error: Exception) -> str:
    try:
        return printable(f"{type(error).__name__}: {error}")[:ERROR_MAX]
    except Exception:  # noqa: BLE001  # a sink's own error class may do anything when it is printed
        return type(error).__name__


def _batches(pending: Sequence[PendingEvents]) -> list[list[PendingEvents]]:
    """Divide runs into batches of at most `EVENTS_AT_ONCE` events."""
    batches: list[list[PendingEvents]] = []
    size = EVENTS_AT_ONCE
    for one in pending:
        if size + len(one.events) > EVENTS_AT_ONCE:
            batches.append([])
            size = 0
        batches[-1].append(one)
        size += len(one.events)
    return batches
