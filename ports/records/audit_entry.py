"""Audit entries: administrative actions that are in no run's history."""

from typing import Final

from holdfast.ports.actors import Actor
from holdfast.ports.pagination import ListPlace
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen

AUDIT_KEPT: Final[Micros] = 400 * 86_400_000_000
"""How much longer than replies audit entries are kept."""


@frozen(kw_only=True)
class AuditEntry:
    """An operator's command that has changed something, stored in its transaction."""

    namespace: str
    """The namespace of the command."""
    at: Micros
    id: str
    actor_kind: str = ""
    """Who issued it: the parts of an `Actor`."""
    actor_id: str = ""
    actor_version: str = ""
    action: str
    """The type of the command, such as `run.remove`."""
    target: str
    """What it was about: the id of a run, the name of a limit or sink, the label of a credential."""
    request_id: str | None = None
    """The id of the request that carried it."""
    details: str
    """JSON text of an object: the other fields of the command that were given. Never a secret or its hash."""

    @property
    def place(self) -> ListPlace:
        """Its position in the list of its namespace."""
        return ListPlace(self.at, self.id)

    @property
    def actor(self) -> Actor | None:
        """Who issued the command; None if unknown."""
        actor = Actor(self.actor_kind, self.actor_id, self.actor_version)
        return actor if actor.text else None
