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
    namespace: str = "default"
    """The namespace that it was opened in. Never changes."""
    principal: str | None = None
    """Who opened it through a server; None: a program with access to the store. Never changes."""
    is_registered: int = 0
    """1: it has a `Registration`."""


@frozen(kw_only=True)
class Registration:
    """The row of an open session in the worker registry. A row of its own: claims and renewals do not read it."""

    session: str
    """The id of the session."""
    namespace: str
    about: str
    """The description of the worker, as JSON text."""
    lease: Micros
    """How long the session lasts from each renewal: so long before its end it was last renewed."""


@frozen(kw_only=True)
class LeaderLease:
    """The lease of a task that one session at a time does for all, such as maintenance."""

    name: str
    """The name of the task."""
    session: str
    """The id of the session that holds the lease."""
    expires_at: Micros
