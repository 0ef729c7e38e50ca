"""Batched sending to AWS services that take ten entries per request, in order for each run."""

from collections import deque
from collections.abc import Callable, Sequence
from heapq import nlargest
from typing import Final, Generic, TypeVar

import attrs

from holdfast.ports.errors import EventRefusedError, SinkUnavailableError

T = TypeVar("T")

AT_ONCE: Final = 10
"""The most entries of a request."""
BYTES_MAX: Final = 262_144 - 1
"""The most bytes of a request's entries, as the services count them."""
WITHIN: Final = 12.0
"""Seconds after which no request is started, so that the last one ends within the half minute that a sink has."""
FAILURES_MAX: Final = 4
"""Consecutive requests with failed entries after which the call fails."""
_PAUSE: Final = 0.1


@attrs.frozen(kw_only=True)
class Entry(Generic[T]):
    """An event as it is sent."""

    run: str
    """The key of the run."""
    name: str
    """The event's id, for messages."""
    content: T
    size: int
    """In bytes, as the service counts them."""


@attrs.frozen(kw_only=True)
class Failure:
    """The reason why an entry was not accepted."""

    reason: str
    final: bool
    """Whether the event itself is at fault, so that it will never be accepted."""


def send_in_order(
    who: str,
    entries: Sequence[Entry[T]],
    send: Callable[[Sequence[T]], Sequence[Failure | None]],
    *,
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Send entries, ten per request; `send` returns an outcome for each.

    A request has at most one entry per run: with several, a failed one would arrive after those that follow it. The
    runs with the most entries come first, which keeps requests full. A failed entry is sent again a few times, and
    delays only its own run.

    Raises:
        EventRefusedError: An entry is too large, and nothing was sent; or one was refused for good.
        SinkUnavailableError: Some entries were not accepted. Others may have been.
    """
    for entry in entries:
        if entry.size > BYTES_MAX:
            raise EventRefusedError(
                f"{who}: event {entry.name} has {entry.size:,} bytes, and may have {BYTES_MAX:,}"
            )
    waiting: dict[str, deque[Entry[T]]] = {}
    for entry in entries:
        waiting.setdefault(entry.run, deque()).append(entry)
    until = monotonic() + WITHIN
    failures = 0
    while waiting:
        if monotonic() >= until:
            raise SinkUnavailableError(
                f"{who} is too slow: {sum(map(len, waiting.values()))} events were not sent"
            )
        together = _heads(waiting)
        failed: str | None = None
        outcomes = send([entry.content for entry in together])
        for entry, failure in zip(together, outcomes, strict=True):
            if failure is None:
                waiting[entry.run].popleft()
                if not waiting[entry.run]:
                    del waiting[entry.run]
                continue
            failed = f"{who} rejected event {entry.name}: {failure.reason}"
            if failure.final:
                raise EventRefusedError(failed)
        failures = failures + 1 if failed is not None else 0
        if failed is not None:
            if failures == FAILURES_MAX:
                raise SinkUnavailableError(failed)
            sleep(_PAUSE * 2**failures)


def _heads(waiting: dict[str, deque[Entry[T]]]) -> list[Entry[T]]:
    heads: list[Entry[T]] = []
    size = 0
    for run in nlargest(AT_ONCE, waiting, key=lambda run: len(waiting[run])):
        head = waiting[run][0]
        if size + head.size <= BYTES_MAX:
            heads.append(head)
            size += head.size
    return heads
