"""The input of a simulation: workflows, actions of clients, sinks, and the sizes of the world."""

from collections.abc import Callable, Mapping, Sequence

import attrs

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.execution.function_cache import FUNCTIONS_KEPT
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.commands.topics import DELIVER_LIMIT
from holdfast.ports.records.run import Run
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.processes import ClientAction
from holdfast.testing.simulation.schedule_zones import ZoneRelease
from holdfast.testing.simulation.topic_ledger import TopicLedger


@attrs.frozen(kw_only=True)
class ScheduleScenario:
    """What happens around schedules. Times are microseconds since the start.

    Attributes:
        releases: The releases of zone data that hosts may have, oldest first. In the healing phase all have the last.
        downtimes: When all hosts are down, and for how long.
        clock_jumps: When the store's clock is set, and by how much.
        has_timer: Whether a maintenance tick fires schedules, too.
    """

    releases: Sequence[ZoneRelease]
    downtimes: Sequence[tuple[int, int]] = ()
    clock_jumps: Sequence[tuple[int, int]] = ()
    has_timer: bool = False


@attrs.frozen(kw_only=True)
class Scenario:
    """The input of a simulation besides its faults and sizes.

    Attributes:
        workflows: All definitions. Clients have them all.
        deploys: The sets of definitions that a worker may have. In the healing phase every worker has all definitions.
        clients: The actions of each client, in order.
        sinks: The names under which clients register sinks.
        expected: Called with a completed run, its input and its result (plain JSON); returns what is wrong with the
            result, or None.
        missing: Called with all rows; returns calls that an operator makes for runs that would wait for ever.
        at_end: Called with all rows when everything has ended; returns what is wrong with them,
            each text after the name of an invariant and a colon, or without a name for L1.
        schedules: What happens around schedules; None if there are none.
        topics: Checks the messages of topics at each commit; None if there are none.
    """

    workflows: Sequence[WorkflowDefinition[object]]
    deploys: Sequence[Sequence[WorkflowDefinition[object]]] = ()
    clients: Sequence[Sequence[ClientAction]] = ()
    sinks: Sequence[str] = ()
    expected: Callable[[Run, object, object], str | None] = lambda _, __, ___: None
    missing: Callable[[Tables], Sequence[Callable[[SyncEngine], object]]] = lambda _: ()
    at_end: Callable[[Tables], Sequence[str]] = lambda _: ()
    schedules: ScheduleScenario | None = None
    topics: TopicLedger | None = None


@attrs.frozen(kw_only=True)
class Sizes:
    """The numbers of hosts in a simulated world, and their settings. Times are in seconds."""

    workers: int = 2
    functions: int = 0
    """The number of serverless hosts."""
    concurrency: int = 4
    lease: float = 10.0
    poll_interval: float = 1.0
    maintenance_interval: float | None = None
    """The interval of maintenance in a worker; None for that of real workers."""
    hint_wait: float = 0.0
    """Seconds for which a process waits for hints at once, if that is longer than in real processes."""
    drain_grace: float = 5.0
    tick_interval: float = 10.0
    """The interval of the serverless maintenance tick."""
    faults_for: float = 60.0
    """The least duration of the fault phase."""
    faults_until: int = 600
    """The least number of points that the fault phase passes."""
    heals_for: float = 3_600.0
    """The time in which everything must end in the healing phase."""
    queues: Mapping[str, int] = attrs.field(factory=dict[str, int])
    """As in `Worker(queues=...)`: the most bodies of each queue that run at once in a worker."""
    function_cache: int = FUNCTIONS_KEPT
    topic_deliveries: int = DELIVER_LIMIT
    """Most deliveries of messages of topics in one transaction."""
