"""Queries about the store itself: its clock, its tables, its counts."""

from enum import StrEnum

from holdfast.ports.persistence import Query
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


@frozen
class StoreTime(Query[Micros | None]):
    """The current time of the store's own clock; None if the store is on this machine."""


@frozen
class SchemaVersion(Query[str | None]):
    """The version of the tables; None without tables."""


class DueKind(StrEnum):
    """A kind of work that maintenance does at a given instant."""

    SLEEP = "sleep"
    """A sleeping job wakes."""
    START = "start"
    """A run that was to start later starts."""
    DEADLINE = "deadline"
    """A run has taken too long, and fails."""


@frozen
class EarliestDue(Query[dict[DueKind, Micros]]):
    """The earliest instant for which each kind of work is due in the whole store, past or future; no kind without any.

    Its cost does not depend on how much there is.
    """


@frozen(kw_only=True)
class StoreCounts:
    """Numbers of runs by status, and of jobs by state."""

    runs: dict[str, int]
    jobs: dict[str, int]


@frozen
class CountAll(Query[StoreCounts]):
    """The number of runs of each status and of jobs of each state in a namespace."""

    namespace: str
