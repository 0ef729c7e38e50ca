"""Queries for the workflows that workers have registered."""

from typing import NamedTuple

import attrs

from holdfast.ports.persistence import Query
from holdfast.ports.records.workflow import WorkflowRow
from holdfast.ports.structs import frozen


class WorkflowPlace(NamedTuple):
    """The position of a workflow in their list."""

    name: str
    version: str


@attrs.frozen
class StoredWorkflow:
    """A registered workflow with its plan."""

    row: WorkflowRow
    plan: str
    """The JSON text of its plan."""

    @property
    def place(self) -> WorkflowPlace:
        """Its position in their list."""
        return WorkflowPlace(self.row.name, self.row.version)


@frozen(kw_only=True)
class ListWorkflows(Query[tuple[StoredWorkflow, ...]]):
    """The next registered workflows of a namespace after a position, by name and version; with `name`, only these."""

    namespace: str
    name: str = ""
    after: WorkflowPlace | None = None
    limit: int = 100
