"""Sends what services of AWS take ten at a time, and answer one by one: in order for each run."""

from collections import deque
from collections.abc import Callable, Sequence
from heapq import nlargest
from typing import Final, Generic, TypeVar

import attrs

from holdfast.ports.errors import EventRefusedError, SinkUnavailableError

T = TypeVar("T")

AT_ONCE: Final = 10
"""How many entries a request may have."""
BYTES_MAX: Final = 262_144 - 1
"""How long the entries of a request may be together, as the services count."""
WITHIN: Final = 12.0
"""Seconds after which no request is begun: with the last one that is less than the half minute that a sink has."""
FAILURES_MAX: Final = 4
"""After how many requests in a row in which an entry failed the rest is left for later."""
_PAUSE: Final = 0.1


@attrs.frozen(kw_only=True)
class Entry(Generic[T]):
    """An event as it is sent. `size` is in bytes, as the service counts them; `name` is for people."""

    run: str
    name: str
    content: T
    size: int


@attrs.frozen(kw_only=True)
class Failure:
    """Why an entry was not taken. A `final` one is about the event: it will never be taken."""

    reason: str
    final: bool


def send_in_order(
    who: str,
    entries: Sequence[Entry[T]],
    send: Callable[[Sequence[T]], Sequence[Failure | None]],
    *,
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Send entries, ten in a request; `send` returns what became of each.

    A request has one entry of a run: had it several, one that failed would come after those that follow it. So a
    request is the fuller the more runs there are, and those with the most entries go first. An entry that failed is
    sent again, a few times, and holds up its own run only.

    Raises:
        EventRefusedError: One is too large, and then nothing is sent; or one was refused for good.
        SinkUnavailableError: Some are not taken now. Others may have been.
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
                f"{who} is too slow: {sum(map(len, waiting.values()))} events are left"
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
            failed = f"{who} did not take event {entry.name}: {failure.reason}"
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
