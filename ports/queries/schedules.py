"""Queries for schedules."""

from holdfast.ports.persistence import Query
from holdfast.ports.records.schedule import ScheduleName, ScheduleRow
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


@frozen
class FindSchedule(Query[ScheduleRow | None]):
    """A schedule by name."""

    name: ScheduleName


@frozen(kw_only=True)
class ListSchedules(Query[tuple[ScheduleRow, ...]]):
    """The next schedules of a namespace after the name `after`, by name."""

    namespace: str
    after: str = ""
    limit: int = 100
    due_before: Micros | None = None
    """Only those whose `next_at` is earlier than this."""
    declared: bool = False
    """Only those that code declares."""


@frozen
class NextScheduleNamespace(Query[str | None]):
    """The first namespace after this one that has schedules; None if there is no other."""

    after: str = ""
