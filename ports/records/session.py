"""Sessions of workers, and leases of leaders."""

from enum import StrEnum

from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


class SessionState(StrEnum):
    """The state of a session. A dead one is never renewed, and its jobs go to other sessions."""

    OPEN = "open"
    DEAD = "dead"


@frozen(kw_only=True)
class Session:
    """One life of a worker process or serverless function, to which jobs are leased."""

    id: str
    host: str
    """Where it runs."""
    state: SessionState
    opened_at: Micros
    expires_at: Micros
    """It may be declared dead after this, unless it was renewed."""


@frozen(kw_only=True)
class LeaderLease:
    """The lease of a task that one session at a time does for all, such as maintenance."""

    name: str
    """The name of the task."""
    session: str
    """The id of the session that holds the lease."""
    expires_at: Micros
