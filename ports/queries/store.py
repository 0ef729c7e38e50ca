"""Queries about the store itself: its clock, its tables, its counts."""

from holdfast.ports.persistence import Query
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


@frozen
class StoreTime(Query[Micros | None]):
    """The current time of the store's own clock; None if the store is on this machine."""


@frozen
class SchemaVersion(Query[str | None]):
    """The version of the tables; None without tables."""


@frozen(kw_only=True)
class StoreCounts:
    """Numbers of runs by status, and of jobs by state."""

    runs: dict[str, int]
    jobs: dict[str, int]


@frozen
class CountAll(Query[StoreCounts]):
    """The number of runs of each status and of jobs of each state in a namespace."""

    namespace: str
