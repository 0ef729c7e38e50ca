"""Operations on workflows: those that the server has the code of, and those that workers have registered."""

from typing import Final

import attrs

from holdfast.hosts.http.operations import (
    NAMESPACE,
    Invocation,
    Nothing,
    Operation,
    PageQuery,
    Table,
    Wait,
    page_of,
)
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.inspection.workflows import WorkflowInfo, workflow_infos


@attrs.frozen(kw_only=True)
class WorkflowsQuery(PageQuery):
    """The query parameters of the list of workflows."""

    name: str = ""
    """Only the versions of this workflow."""


@attrs.frozen(kw_only=True)
class WorkflowPage:
    """A page of the list of workflows."""

    items: tuple[WorkflowInfo, ...]
    """The workflows, by name and version."""
    next: str | None
    """The `after` of the next page; null on the last one."""


def list_workflows(call: Invocation[WorkflowsQuery, Nothing]) -> WorkflowPage:
    """List the workflows that can be started: the server has their code, or a worker has registered them."""
    query = call.query
    found = workflow_infos(call.engine.core, query.name, query.after, query.limit + 1)
    items, last = page_of(found, query.limit)
    return WorkflowPage(items=items, next=None if last is None else f"{last.name}@{last.version}")


OPERATIONS: Final[Table] = (
    Operation(
        name="workflow.list",
        method="GET",
        path=f"{NAMESPACE}/workflows",
        scope=Scope.READ,
        query=WorkflowsQuery,
        reply=WorkflowPage,
        handler=list_workflows,
        wait=Wait.CHANGE,
    ),
)
