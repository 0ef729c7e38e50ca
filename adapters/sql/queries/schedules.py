"""Answers to the queries about schedules."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from typing import Final

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import Link
from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.rows import is_askable
from holdfast.ports.queries.schedules import FindSchedule, ListSchedules, NextScheduleNamespace
from holdfast.ports.records.schedule import ScheduleRow

_SCHEDULES: Final = f"SELECT {', '.join(rows.SCHEDULE)} FROM holdfast_schedules WHERE namespace = :namespace"


def find_schedule(link: Link, dialect: Dialect, query: FindSchedule) -> ScheduleRow | None:
    """Answer `FindSchedule`."""
    if not all(map(is_askable, query.name)):
        return None
    found = link.query(dialect.bound(f"{_SCHEDULES} AND name = :name"), query.name._asdict())
    return rows.schedule_from(found[0]) if found else None


def list_schedules(link: Link, dialect: Dialect, query: ListSchedules) -> tuple[ScheduleRow, ...]:
    """Answer `ListSchedules`."""
    if query.limit <= 0 or not is_askable(query.namespace) or not is_askable(query.after):
        return ()
    sql = f"{_SCHEDULES} AND name > :after"
    parameters: dict[str, object] = {
        "namespace": query.namespace,
        "after": query.after,
        "limit": query.limit,
    }
    if query.due_before is not None:
        sql += " AND next_at < :due_before"
        parameters["due_before"] = query.due_before
    if query.declared:
        sql += " AND declared IS NOT NULL"
    found = link.query(dialect.bound(f"{sql} ORDER BY name LIMIT :limit"), parameters)
    return tuple(map(rows.schedule_from, found))


def next_schedule_namespace(link: Link, dialect: Dialect, query: NextScheduleNamespace) -> str | None:
    """Answer `NextScheduleNamespace`."""
    if not is_askable(query.after):
        return None
    sql = "SELECT MIN(namespace) FROM holdfast_schedules WHERE namespace > :after"
    ((found,),) = link.query(dialect.bound(sql), {"after": query.after})
    return None if found is None else str(found)
