"""Answers to the queries about registered workflows."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from typing import Final

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import Link
from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.rows import is_askable
from holdfast.adapters.sql.schema.columns import COLUMNS
from holdfast.ports.queries.workflows import ListWorkflows, StoredWorkflow
from holdfast.ports.records.workflow import WorkflowRow

_COLUMNS: Final = COLUMNS[WorkflowRow].columns
_LISTED: Final = (
    f"SELECT {', '.join(f'w.{name}' for name in _COLUMNS)}, p.body FROM holdfast_workflows AS w "
    "JOIN holdfast_plans AS p ON p.fingerprint = w.plan WHERE w.namespace = :namespace "
    "AND (CAST(:name AS text) = '' OR w.name = :name) AND (w.name, w.version) > (:after_name, :after_version) "
    "ORDER BY w.name, w.version LIMIT :limit"
)


def list_workflows(link: Link, dialect: Dialect, query: ListWorkflows) -> tuple[StoredWorkflow, ...]:
    """Answer `ListWorkflows`."""
    after = ("", "") if query.after is None else query.after
    if query.limit <= 0 or not all(map(is_askable, (query.namespace, query.name, *after))):
        return ()
    parameters = {
        "namespace": query.namespace,
        "name": query.name,
        "after_name": after[0],
        "after_version": after[1],
        "limit": query.limit,
    }
    row_from = rows.record_of(WorkflowRow)
    found = link.query(dialect.bound(_LISTED), parameters)
    return tuple(StoredWorkflow(row_from(tuple(row)), body) for *row, body in found)
