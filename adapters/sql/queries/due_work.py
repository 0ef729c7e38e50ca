"""The answer to the query for what is due first."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from typing import Final

from holdfast.adapters.sql.database import Link
from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.schema.tables import ENDED
from holdfast.ports.queries.store import DueKind
from holdfast.ports.records.values import Micros

_WHERE: Final = {
    DueKind.SLEEP: ("wake_at", "holdfast_jobs", "state = 'sleeping' AND wake_at IS NOT NULL"),
    DueKind.START: ("start_at", "holdfast_runs", "status = 'pending' AND start_at IS NOT NULL"),
    DueKind.DEADLINE: (
        "deadline",
        "holdfast_runs",
        f"status NOT IN {ENDED} AND deadline IS NOT NULL AND error IS NULL",
    ),
}
"""Column, table and condition of each kind. An index has each in order."""
_FIRSTS: Final = ", ".join(
    f"(SELECT {column} FROM {table} WHERE {condition} ORDER BY {column} LIMIT 1)"
    for column, table, condition in _WHERE.values()
)
EARLIEST_DUE: Final = f"SELECT {_FIRSTS}"
"""For `EarliestDue`."""


def earliest_due(link: Link, dialect: Dialect) -> dict[DueKind, Micros]:
    """Answer `EarliestDue`."""
    return {
        kind: at
        for row in link.query(dialect.bound(EARLIEST_DUE), {})
        for kind, at in zip(_WHERE, row, strict=True)
        if at is not None
    }
