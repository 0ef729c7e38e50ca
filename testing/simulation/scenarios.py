"""What is simulated: code, what clients do, and where events go."""

from collections.abc import Callable, Mapping, Sequence

import attrs

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.execution.function_cache import FUNCTIONS_KEPT
from holdfast.kernel.authoring.calls import Definition
from holdfast.ports.records import Run
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.processes import Deed


@attrs.frozen(kw_only=True)
class Scenario:
    """Everything that a simulation is about, besides what goes wrong in it.

    Attributes:
        workflows: All the code that there is. Clients have it all.
        deploys: What code a worker may have at some time; by the time that faults have ceased they have all of it.
        clients: What each client does, in order.
        sinks: The names under which clients register sinks.
        expected: Called with a run that was completed, its input and its result (plain JSON), returns what is wrong
            with that; None if nothing is.
        missing: Given all rows, returns what an operator does for runs that wait for what nobody has brought them.
        at_end: Given all rows when all has ended, returns what is wrong with them.
    """

    workflows: Sequence[Definition[object]]
    deploys: Sequence[Sequence[Definition[object]]] = ()
    clients: Sequence[Sequence[Deed]] = ()
    sinks: Sequence[str] = ()
    expected: Callable[[Run, object, object], str | None] = lambda _, __, ___: None
    missing: Callable[[Tables], Sequence[Callable[[SyncEngine], object]]] = lambda _: ()
    at_end: Callable[[Tables], Sequence[str]] = lambda _: ()


@attrs.frozen(kw_only=True)
class Sizes:
    """How large a simulated world is, and how its hosts are set. Times in seconds.

    `faults_for` is how long faults last, and `faults_until` at least how many points must have been passed by then.
    """

    workers: int = 2
    functions: int = 0
    concurrency: int = 4
    lease: float = 10.0
    poll_interval: float = 1.0
    drain_grace: float = 5.0
    tick_interval: float = 10.0
    faults_for: float = 60.0
    faults_until: int = 600
    heals_for: float = 3_600.0
    queues: Mapping[str, int] = attrs.field(factory=dict[str, int])
    """As `Worker(queues=...)` takes them: how many bodies of each may run at once in a worker."""
    function_cache: int = FUNCTIONS_KEPT
