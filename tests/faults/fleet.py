"""A fleet of workers and serverless hosts on one in-memory store, in virtual time.

Each worker is the real state machine with real store calls and bodies. Only the shell differs: actions are carried out
at once, and then time jumps to the next timer. Each host has a clock of its own, which may be wrong; the store has the
true time.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import anyio
import attrs
from anyio import CapacityLimiter
from typing_extensions import TypeVar, override

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.adapters.memory.transport import MemoryTransport
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.wiring.stores import Stores
from holdfast.hosts.worker import machine_protocol as p
from holdfast.hosts.worker.session_renewal import Renewal
from holdfast.hosts.worker.settings import Settings
from holdfast.hosts.worker.shell import WorkerShell
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.commands import Attempt, JobSettle
from holdfast.kernel.invariants import check
from holdfast.ports.clock import micros
from holdfast.ports.events import EventSink
from holdfast.ports.persistence import Query
from holdfast.ports.queries.store import StoreTime
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Micros
from holdfast.testing.clock import ManualClock
from holdfast.testing.ids import SeededIds

R = TypeVar("R")

LEASE: Final = 180.0
POLL: Final = 60.0


class ClockedStore(MemoryPersistence):
    """A store with a clock of its own, as a database server has one."""

    def __init__(self, time: ManualClock) -> None:
        super().__init__()
        self._time = time

    @override
    def read(self, query: Query[R], /) -> R:
        if isinstance(query, StoreTime):
            now: R = micros(self._time.now())  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
            return now
        return super().read(query)


class HostClock:
    """The clock of one machine: it runs at the right speed but shows a wrong time."""

    def __init__(self, time: ManualClock, wrong_by: timedelta = timedelta()) -> None:
        self._time = time
        self.wrong_by = wrong_by

    def now(self) -> datetime:
        return self._time.now() + self.wrong_by

    def monotonic(self) -> float:
        return self._time.monotonic()

    def sleep(self, seconds: float, /) -> None:
        self._time.sleep(seconds)


class FleetWorker:
    """A worker: the real shell, with each call made at once."""

    def __init__(
        self,
        core: Core,
        clock: HostClock,
        lasts: Mapping[str, float],
        *,
        sinks: Mapping[str, EventSink],
        limits: Mapping[str, int],
    ) -> None:
        self.clock = clock
        self.cancelled = 0
        self._lasts = lasts
        settings = Settings(
            definitions=core.registry.definitions,
            queues=core.registry.queues("default"),
            limits=limits,
            poll_interval=POLL,
            heartbeat_interval=POLL,
            maintenance_interval=POLL,
        )
        self._hands = WorkerShell(core, settings, lease=LEASE, sinks=sinks)
        self.machine, self.calls = self._hands.machine, self._hands.calls
        self._renewal = Renewal(
            core,
            lease=LEASE,
            sessions=lambda: self.calls.sessions,
            lost=lambda: self._hands.post(p.SessionLost()),
        )
        self._renew_at = clock.monotonic() + self._renewal.interval
        self._runs: dict[Attempt, tuple[float, Body]] = {}
        core.connect()

    def next_event(self) -> float:
        """Return when it next has something to do."""
        at = self.machine.next_step()
        return min([self._renew_at, *(end for end, _ in self._runs.values()), *([] if at is None else [at])])

    def step(self) -> None:
        """Do what is due."""
        now = self.clock.monotonic()
        if now >= self._renew_at:
            self._renew_at = now + self._renewal.round()
        ended = [body for end, body in self._runs.values() if end <= now]
        settles = anyio.run(self._settles, ended) if ended else []
        for body, settle in zip(ended, settles, strict=True):
            del self._runs[body.attempt]
            self._hands.end(body, settle, cancelled=False)
        while True:
            for action in self._hands.step(now):
                self._carry_out(action)
            if not self._hands.has_inputs:
                return

    def _carry_out(self, action: p.Action) -> None:
        match action:
            case p.Start(attempt):
                ends_at = self.clock.monotonic() + self._lasts.get(attempt.node, 0.0)
                self._runs[attempt] = (ends_at, self._hands.begin(attempt))
            case p.Cancel(attempt):
                self.cancelled += 1
                self._hands.cancel(attempt)
                _, body = self._runs.pop(attempt)
                self._hands.end(body, None, cancelled=True)
            case _:
                if (call := self._hands.call(action)) is not None:
                    self._hands.answer(action, call())

    async def _settles(self, bodies: Sequence[Body]) -> list[JobSettle]:
        return [await self._hands.attempts.run(body, CapacityLimiter(1)) for body in bodies]


@attrs.define
class Fleet:
    """Hosts on one store, and the true time.

    `lasts` has the seconds that the bodies of a stage take; they act at their end. A store without a clock of its own
    uses the caller's, as a file does.
    """

    workflows: tuple[WorkflowDefinition[object], ...]
    lasts: Mapping[str, float] = attrs.field(factory=dict[str, float])
    has_clock: bool = True
    time: ManualClock = attrs.field(factory=ManualClock)
    workers: list[FleetWorker] = attrs.field(factory=list[FleetWorker])
    store: MemoryPersistence = attrs.field(init=False)
    engine: Engine = attrs.field(init=False)
    _opened: int = 0

    def __attrs_post_init__(self) -> None:
        self.store = ClockedStore(self.time) if self.has_clock else MemoryPersistence()
        self.engine = self.open(self.time)

    def open(self, clock: ManualClock | HostClock, *workflows: WorkflowDefinition[object]) -> Engine:
        """Return an engine of a separate process with this clock."""
        self._opened += 1
        stores = Stores(
            persistence=self.store,
            transport=MemoryTransport(),
            blobs=None,
            clock=clock,
            ids=SeededIds(self._opened, clock),
        )
        return Engine.on(stores, workflows=workflows or self.workflows)

    def worker(
        self,
        *workflows: WorkflowDefinition[object],
        wrong_by: timedelta = timedelta(),
        sinks: Mapping[str, EventSink] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> FleetWorker:
        """Start a worker on a machine whose clock is wrong by some seconds."""
        clock = HostClock(self.time, wrong_by)
        worker = FleetWorker(
            self.open(clock, *workflows).core, clock, self.lasts, sinks=sinks or {}, limits=limits or {}
        )
        self.workers.append(worker)
        return worker

    @property
    def now(self) -> Micros:
        """Return the true time."""
        return micros(self.time.now())

    def pass_time(self, span: timedelta, between: Callable[[], None] = lambda: None) -> None:
        """Let time pass from event to event; call `between` after each. The invariants are checked throughout."""
        until = self.time.monotonic() + span.total_seconds()
        while True:
            for worker in self.workers:
                worker.step()
            between()
            at = min([until, *(worker.next_event() for worker in self.workers)])
            now = self.time.monotonic()
            if at >= until:
                self.time.sleep(until - now)
                break
            self.time.sleep(max(at - now, 0.001))
        found = check(self.store.dump())
        assert not found, "\n".join(map(str, found))

    def rows(self, kind: str) -> list[HistoryRow]:
        """Return all rows of a type, of all runs."""
        return [row for history in self.store.dump().history.values() for row in history if row.type == kind]
