"""Answers to the queries and searches about registered workflows, from plain dictionaries."""

from collections.abc import Sequence

from holdfast.ports.queries.workflows import ListWorkflows, StoredWorkflow
from holdfast.ports.records.values import Micros
from holdfast.ports.records.workflow import WorkflowKey
from holdfast.ports.searches import WorkflowsOfNamespace
from holdfast.ports.working_set import Tables


def workflows_listed(tables: Tables, query: ListWorkflows) -> tuple[StoredWorkflow, ...]:
    """Answer `ListWorkflows`."""
    after = ("", "") if query.after is None else query.after
    found = (
        StoredWorkflow(row, tables.plans[row.plan].body)
        for key, row in sorted(tables.workflows.items())
        if key.namespace == query.namespace and query.name in {"", key.name} and row.plan in tables.plans
    )
    return tuple(one for one in found if one.place > after)[: max(0, query.limit)]


def workflows_of_namespace(
    tables: Tables, search: WorkflowsOfNamespace
) -> Sequence[tuple[WorkflowKey, Micros]]:
    """Make the search `WorkflowsOfNamespace`."""
    return [
        (key, row.registered_at)
        for key, row in sorted(tables.workflows.items())
        if key.namespace == search.namespace
    ]
