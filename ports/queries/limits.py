"""Queries for limits and queues: what was changed, what is under way, and what waits."""

from collections.abc import Collection
from typing import Final

import attrs

from holdfast.ports.persistence import Query
from holdfast.ports.records.limits import LimitRow
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import SlotPlace, Waiting
from holdfast.ports.structs import frozen

COUNTED_MAX: Final = 10_000
"""The most waiting runs or jobs of a line, or jobs of a queue, that are counted."""


@frozen(kw_only=True)
class ListLimits(Query[tuple[LimitRow, ...]]):
    """The next changed limits of a namespace after the name `after`, by name. Those that were cleared are included."""

    namespace: str
    after: str = ""
    limit: int = 100


@frozen(kw_only=True)
class RateLines(Query[tuple[str, ...]]):
    """The names of rate limits, which are concurrency keys, that begin with `start` and end with `end`, ascending."""

    namespace: str
    start: str
    end: str
    limit: int = 1_000


@attrs.frozen
class LineState:
    """What is under way and what waits under one concurrency key."""

    place: SlotPlace
    used: int
    """How many slots are taken."""
    waiting: int
    """How many wait, at most `COUNTED_MAX`."""
    since: Micros | None
    """Since when the first of them waits; None if none does."""
    limit: int | None
    """The concurrency limit that the first waiter has from its plan, else the highest of those under way."""
    rate_limit: int | None = None
    rate_period: Micros | None = None


@frozen
class LineStates(Query[tuple[LineState, ...]]):
    """The states of these concurrency keys, ascending. One without waiters and holders has nothing but zeros.

    Runs also count at the outer levels of their key.
    """

    waiting: Waiting
    places: Collection[SlotPlace]


BEFORE_MAX: Final = 1_000
"""The most runs that are counted before one that waits."""


@attrs.frozen
class LevelState:
    """One level of the concurrency key of a run that waits: what is under way within it, and what waits before it."""

    key: str
    used: int
    """How many slots are taken."""
    before: int
    """How many runs that wait within it have a lower rank, at most one more than `BEFORE_MAX`."""
    holders: tuple[str, ...]
    """The keys of the oldest runs under way, by creation, without those that are ending."""


@frozen(kw_only=True)
class LevelStates(Query[tuple[LevelState, ...]]):
    """The levels of a concurrency key, the outermost first, as a run with this rank and key finds them."""

    place: SlotPlace
    position: Micros
    run: str
    holders: int = 3
    """How many holders are named of each level."""


@attrs.frozen
class QueueState:
    """What is queued and leased of one queue."""

    queue: str
    queued: int
    """At most `COUNTED_MAX`."""
    leased: int
    """At most `COUNTED_MAX`."""
    since: Micros | None
    """Since when the first of the queued jobs waits."""


@frozen
class QueueStates(Query[tuple[QueueState, ...]]):
    """The states of these queues of a namespace, ascending."""

    namespace: str
    queues: Collection[str]
