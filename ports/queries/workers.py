"""Queries for the worker registry, and for what is in each queue. Bounded, and without locks."""

from collections.abc import Collection
from typing import Final

import attrs

from holdfast.ports.persistence import Query
from holdfast.ports.queries.limits import COUNTED_MAX
from holdfast.ports.records.job import Job
from holdfast.ports.records.session import Registration, Session
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen

LINES_MAX: Final = 1_000
"""The most pairs of queue and definition that are counted, in each state."""

__all__ = [
    "COUNTED_MAX",
    "LINES_MAX",
    "HeldJob",
    "HeldJobs",
    "ListWorkers",
    "QueueContents",
    "QueueLine",
    "QueueLines",
    "RegisteredSession",
]


@attrs.frozen
class RegisteredSession:
    """An open session with its row in the worker registry."""

    session: Session
    row: Registration


@frozen(kw_only=True)
class ListWorkers(Query[tuple[RegisteredSession, ...]]):
    """The next open sessions of a namespace in the worker registry, by id. Expired ones stay until they are dead."""

    namespace: str
    after: str = ""
    """The id of the last session of the page before."""
    limit: int = 100


@attrs.frozen
class HeldJob:
    """A job that a session holds, with the name of its run."""

    job: Job
    run_id: str
    generation: int


@frozen(kw_only=True)
class HeldJobs(Query[tuple[HeldJob, ...]]):
    """The jobs that these sessions hold: of each session the first `limit` by run and number, ordered by session."""

    sessions: Collection[str]
    limit: int = 100


@attrs.frozen(kw_only=True)
class QueueLine:
    """The jobs of one queue that need the same code."""

    queue: str
    definition: str
    """`<workflow>@<version>`, or `step:<name>`."""
    queued: int = 0
    """How many wait for a worker, at most `COUNTED_MAX`."""
    running: int = 0
    """How many are leased."""
    sleeping: int = 0
    """How many wait for an instant or an event, at most `COUNTED_MAX`."""
    since: Micros | None = None
    """Since when the first in the line waits; None if none does."""


@attrs.frozen(kw_only=True)
class QueueContents:
    """What is in the queues of a namespace."""

    lines: tuple[QueueLine, ...]
    """By queue and definition."""
    is_partial: bool = False
    """Whether a bound was reached: there are more lines, or more jobs run in the whole store, than are counted."""


@frozen(kw_only=True)
class QueueLines(Query[QueueContents]):
    """What is queued, leased and asleep in the queues of a namespace.

    In each state at most `limit` lines are counted. Of leased jobs, `COUNTED_MAX` of the whole store are looked at.
    """

    namespace: str
    limit: int = LINES_MAX
