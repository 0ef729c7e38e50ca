"""What operations about the server itself need of it."""

from typing import TYPE_CHECKING, Final

import attrs

from holdfast.hosts.client.start_batcher import GroupCommit
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.events.sink_reads import SinkSweeps
from holdfast.hosts.wiring.cached_read import CachedRead
from holdfast.ports.process_forks import renew_in_forks
from holdfast.ports.queries.store import StoreTime

if TYPE_CHECKING:
    from holdfast.hosts.http.authentication.browser_sessions import BrowserSessions
    from holdfast.hosts.http.authentication.single_sign_on import CodeFlow
    from holdfast.hosts.metrics.metrics import Metrics

READY_AGE_SECONDS: Final = 1.0
"""For how long a check of the store is used before it is made again."""
READY_WAIT_SECONDS: Final = 2.0
"""How long a check of the store may take."""


@attrs.frozen
class ServerParts:
    """The parts of a server that its operations use."""

    readiness: CachedRead[None]
    """The check whether the store answers."""
    metrics: "Metrics | None"
    sessions: "BrowserSessions | None"
    """The browser sessions; None if an application authenticates requests."""
    settles: GroupCommit
    """Stores outcomes of tasks. Those that arrive at the same time share a transaction: often they are of one run."""
    sign_on: "CodeFlow | None" = None
    """Single sign-on; None: people sign in with keys and tokens."""
    read_only: bool = False
    """Whether the server only reads."""
    sweeps: SinkSweeps = attrs.field(factory=SinkSweeps)
    """The sweeps for the events of sinks that clients read."""


def server_parts(
    engine: SyncEngine,
    metrics: "Metrics | None",
    sessions: "BrowserSessions | None",
    *,
    sign_on: "CodeFlow | None" = None,
    read_only: bool = False,
) -> ServerParts:
    """Return the parts of a server of this engine."""
    core = engine.core

    def check() -> None:
        core.connect()
        core.stores.persistence.read(StoreTime())

    readiness = CachedRead(
        check,
        age_max=READY_AGE_SECONDS,
        wait_max=READY_WAIT_SECONDS,
        monotonic=core.adapters.clock.monotonic,
    )
    settles = GroupCommit(core.kernel.dispatch_many)
    renew_in_forks(settles)
    return ServerParts(readiness, metrics, sessions, settles, sign_on, read_only)
