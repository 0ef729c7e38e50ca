"""Commands on worker sessions, on jobs that dead sessions leave behind, and on leader leases."""

from typing import ClassVar, Literal

import attrs

from holdfast.kernel.commands.command import Command
from holdfast.kernel.commands.worker_about import WorkerAbout, check_about
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class SessionOpened:
    """Reply to `SessionOpen`."""

    session: str
    """Id of the session."""
    expires_at: Micros
    """Instant at which it expires unless it is renewed."""


@frozen(kw_only=True)
class SessionOpen(Command[SessionOpened]):
    """Command to open a session, to which jobs can be leased."""

    type: ClassVar[Literal["session.open"]] = "session.open"
    host: str
    """Name of the process and machine, for people."""
    lease: Micros
    """Microseconds until the session expires."""
    about: WorkerAbout | None = attrs.field(default=None, validator=check_about)
    """What the worker registry shows of it; None: it is not in the registry."""
    principal: str | None = None
    """Who opens it, as the server has authenticated them; None: a program with access to the store."""


@frozen(kw_only=True)
class SessionRenewed:
    """Reply to `SessionRenew` and `SessionClose`."""

    expires_at: Micros
    """Instant at which the session expires now."""


@frozen(kw_only=True)
class SessionRenew(Command[SessionRenewed]):
    """Command to renew a session and with it all of its leases. Errors: SessionLostError if it was declared dead."""

    type: ClassVar[Literal["session.renew"]] = "session.renew"
    session: str
    lease: Micros
    """Microseconds from now until the session expires. An end that is later already stays."""
    about: WorkerAbout | None = attrs.field(default=None, validator=check_about)
    """What the worker registry shows from now on; None: as before."""


@frozen(kw_only=True)
class SessionClose(Command[SessionRenewed]):
    """Command to end a session at once. `LeaseReapStale` then frees its jobs. Errors: SessionLostError."""

    type: ClassVar[Literal["session.close"]] = "session.close"
    session: str


@frozen(kw_only=True)
class LeasesReaped:
    """Reply to `SessionReap` and `LeaseReapStale`."""

    sessions: int
    """How many sessions were declared dead."""
    freed: int
    """How many jobs were freed for other workers."""
    dead: int
    """How many jobs were given up: lost too often, or out of time."""


@frozen(kw_only=True)
class SessionReap(Command[LeasesReaped]):
    """Command to declare expired sessions dead. They can never be renewed again."""

    type: ClassVar[Literal["session.reap"]] = "session.reap"
    grace: Micros
    """Microseconds that must have passed since a session expired."""
    limit: int = 100
    """Most sessions that are read."""


@frozen(kw_only=True)
class LeaseReapStale(Command[LeasesReaped]):
    """Command to free the jobs of dead sessions, and to fail the stages and steps that were lost too often.

    Separate from `SessionReap`, so that no claim can slip in between (docs/decisions/0003).
    """

    type: ClassVar[Literal["lease.reap_stale"]] = "lease.reap_stale"
    limit: int = 500
    """Most jobs that are read."""


@frozen(kw_only=True)
class LeaderAcquired:
    """Reply to `LeaderAcquire`."""

    taken: bool
    """Whether the session holds the leader lease now."""
    expires_at: Micros
    """Instant at which the lease of its current holder expires."""


@frozen(kw_only=True)
class LeaderAcquire(Command[LeaderAcquired]):
    """Command to acquire or renew a leader lease. Errors: SessionLostError."""

    type: ClassVar[Literal["leader.acquire"]] = "leader.acquire"
    name: str
    """Name of the lease, such as `maintenance`."""
    session: str
    lease: Micros
    """Microseconds until the lease expires."""
