"""Commands on sessions, on what they leave behind, and on duties."""

from typing import ClassVar, Literal

from holdfast.kernel.commands.command import Command
from holdfast.ports.records import Micros
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class SessionOpened:
    """The session's id, and until when it lasts unless it is renewed."""

    session: str
    expires_at: Micros


@frozen(kw_only=True)
class SessionOpen(Command[SessionOpened]):
    """Begin a life that can hold leases. `host` names process and machine for people."""

    type: ClassVar[Literal["session.open"]] = "session.open"
    host: str
    lease: Micros


@frozen(kw_only=True)
class SessionRenewed:
    """Until when the session lasts now."""

    expires_at: Micros


@frozen(kw_only=True)
class SessionRenew(Command[SessionRenewed]):
    """Keep a session, and with it every lease that it holds. SessionLostError if it was declared dead."""

    type: ClassVar[Literal["session.renew"]] = "session.renew"
    session: str
    lease: Micros


@frozen(kw_only=True)
class SessionClose(Command[SessionRenewed]):
    """End a session at once: what it still holds is free for others at the next reap."""

    type: ClassVar[Literal["session.close"]] = "session.close"
    session: str


@frozen(kw_only=True)
class LeasesReaped:
    """How many sessions were declared dead, how many jobs were freed, and how many of those had no attempt left."""

    sessions: int
    freed: int
    dead: int


@frozen(kw_only=True)
class SessionReap(Command[LeasesReaped]):
    """Declare sessions dead that expired more than `grace` ago."""

    type: ClassVar[Literal["session.reap"]] = "session.reap"
    grace: Micros
    limit: int = 100


@frozen(kw_only=True)
class LeaseReapStale(Command[LeasesReaped]):
    """Free the jobs of dead sessions; end the runs of those whose attempts are used up."""

    type: ClassVar[Literal["lease.reap_stale"]] = "lease.reap_stale"
    limit: int = 500


@frozen(kw_only=True)
class LeaderAcquired:
    """Whether this session has the duty now, and until when whoever has it does."""

    taken: bool
    expires_at: Micros


@frozen(kw_only=True)
class LeaderAcquire(Command[LeaderAcquired]):
    """Ask to be the one who does a duty for the next `lease` microseconds."""

    type: ClassVar[Literal["leader.acquire"]] = "leader.acquire"
    name: str
    session: str
    lease: Micros
