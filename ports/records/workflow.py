"""Workflows that workers have registered, with the schemas of what they take."""

from typing import NamedTuple

from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


class WorkflowKey(NamedTuple):
    """One version of a workflow in a namespace."""

    namespace: str
    name: str
    version: str


@frozen(kw_only=True)
class WorkflowRow:
    """A workflow in one version, as the worker that started last with it has it."""

    namespace: str
    name: str
    version: str
    plan: str
    """The fingerprint of its plan."""
    schemas: str
    """JSON text of an object: `input`, `output` and `signals` as JSON Schema."""
    registered_at: Micros
    """When a worker that has it started last."""

    @property
    def key(self) -> WorkflowKey:
        """Its key."""
        return WorkflowKey(self.namespace, self.name, self.version)
