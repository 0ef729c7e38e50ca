"""One simulated execution of a user's workflows, and its outcome."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from itertools import chain
from random import Random
from typing import Any, Final, cast

import attrs
from greenlet import getcurrent

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.execution.function_cache import FUNCTIONS_KEPT
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.wiring.step_discovery import with_children
from holdfast.hosts.wiring.stores import Stores
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.functions.loop import Evicted
from holdfast.kernel.functions.machine import evict_all, in_memory
from holdfast.kernel.history import events
from holdfast.kernel.invariants import check
from holdfast.ports.changes import Change, Insert
from holdfast.ports.clock import instant
from holdfast.ports.errors import HoldfastError
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import ACTIVE, Run, RunName
from holdfast.ports.records.values import Micros
from holdfast.ports.working_set import Tables
from holdfast.testing.blobs import MemoryBlobStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.due_times import due_instants, lapses
from holdfast.testing.effects import Effects
from holdfast.testing.ids import SeededIds
from holdfast.testing.simulation.faults import BODY, FaultKind, Faults, FaultSchedule
from holdfast.testing.simulation.fibers import START, Fiber, Hub
from holdfast.testing.simulation.loops import run_virtually
from holdfast.testing.simulation.observer import SimulationObserver
from holdfast.testing.simulation.ports import HintNetwork
from holdfast.testing.simulation.process_life import FaultyProcess
from holdfast.testing.simulation.processes import Environment, connect
from holdfast.testing.simulation.step_records import StartedAttempt
from holdfast.testing.simulation.store import Commit, SharedStore
from holdfast.testing.simulation.trace import Trace
from holdfast.testing.stubs import Stubs
from holdfast.testing.transport import NullTransport

RUN_ID: Final = "simulated"
OUTSIDE: Final = "outside"
WORKERS: Final = 2

_SECOND: Final = 1_000_000
_SWITCHES_MAX: Final = 200_000
_POLL: Final = 1.0
_LOOK_MAX: Final = 3_600.0
_STAGGER: Final = 300_000


Meanwhile = Mapping[timedelta, Callable[[Sequence[SyncRunHandle[Any]]], object]]
"""Actions from outside, by the time after the start; each gets the handles of the started runs."""


@attrs.frozen(kw_only=True)
class SimulationInput:
    """The workflows to simulate, with stubs and actions."""

    calls: Sequence[Call[Any]]
    """The calls to start."""
    meanwhile: Meanwhile
    """Actions from outside."""
    stubs: Callable[[Stubs], object]
    """Sets up the stubs before each execution."""
    effects: Effects
    """The record of external effects."""
    besides: Sequence[WorkflowDefinition[Any]] = ()
    """Further workflows that the calls may start."""

    @property
    def ids(self) -> Sequence[str]:
        """The ids of the runs."""
        one = len(self.calls) == 1
        return [RUN_ID if one else f"{RUN_ID}-{number}" for number in range(1, len(self.calls) + 1)]

    @property
    def workflows(self) -> Sequence[WorkflowDefinition[Any]]:
        """The workflows of the calls, of their children, and the further ones."""
        all_ = with_children((*(call.definition for call in self.calls), *self.besides))
        return list({id(one): one for one in all_}.values())


@attrs.frozen(kw_only=True)
class Trial:
    """The outcome of one simulated execution.

    Attributes:
        started: The started runs at the end: their newest generations.
        runs: The newest generations of all runs, with children, by id.
        rows: Histories by run id, of all generations, one after the other.
        handles: Handles of the started runs.
        effects: The number of times that each effect happened.
        broken: Violated invariants of the engine.
        points: Number of points at which a fault could have happened.
        in_bodies: Number of these points that are within bodies.
        fired: Number of faults by kind.
        places: Processes and points of the faults.
        lines: The trace, line by line.
        seconds: Duration in virtual time.
        raised: The error of an action from outside; later actions were skipped.
    """

    started: Sequence[Run]
    runs: Mapping[str, Run]
    rows: Mapping[str, Sequence[HistoryRow]]
    handles: Sequence[SyncRunHandle[Any]]
    effects: Mapping[str, int]
    broken: Sequence[str]
    points: int
    in_bodies: int
    fired: Counter[FaultKind]
    places: Sequence[tuple[str, int]]
    lines: Sequence[str]
    seconds: float
    raised: Exception | None

    @cached_property
    def longest_body(self) -> float:
        """Duration of the longest body, in seconds."""
        took = [0.0]
        for row in chain.from_iterable(self.rows.values()):
            match events.event_of(row):
                case (
                    events.StageTested(started_at=int(started_at))
                    | events.StageSuspended(started_at=int(started_at))
                    | events.StageCompleted(started_at=int(started_at))
                    | events.StageRetrying(started_at=int(started_at))
                    | events.StageFailed(started_at=int(started_at))
                    | events.StageCancelled(started_at=int(started_at))
                    | events.StageCancelFailed(started_at=int(started_at))
                    | events.StepStarted(started_at=int(started_at))
                    | events.StepRetrying(started_at=int(started_at))
                    | events.StepCompleted(started_at=int(started_at))
                    | events.StepFailed(started_at=int(started_at))
                    | events.RunBlocked(started_at=int(started_at))
                ):
                    took.append((row.at - started_at) / _SECOND)
                case _:
                    pass
        return max(took)


class _Tracer:
    """Traces bodies and stored history rows. Without the checks of `SimulationObserver`, which take too long."""

    def __init__(self, trace: Trace, now: Callable[[], Micros]) -> None:
        self._trace = trace
        self._now = now

    def before(self, tables: Tables, commit: Commit) -> None:
        """Do nothing."""

    def apply(self, tables: Tables, change: Change) -> None:
        """Make a change."""
        tables.apply(change)

    def after(self, tables: Tables, commit: Commit) -> None:
        """Trace new history rows."""
        for change in commit.changes:
            if isinstance(change, Insert) and isinstance(change.record, HistoryRow):
                row = change.record
                where = (
                    "" if row.node is None else f" {row.node}" + ("" if row.item is None else f"[{row.item}]")
                )
                run = tables.runs[row.run].id
                self._trace.add(self._now(), commit.process, f"STORED {row.type}{where} of run {run}")

    def observe_dispatch(
        self, process: str, commands: Sequence[object], answers: Sequence[object], changed: int
    ) -> None:
        """Trace results that were refused because the lease was lost."""
        if any(getattr(answer, "status", None) == "fenced" for answer in answers):
            self._trace.add(self._now(), process, "FENCED: the job has a newer attempt")

    def observe_body_start(self, process: str, job: str, epoch: int, what: str) -> None:
        """Trace the start of a body."""
        self._trace.add(self._now(), process, f"BODY {what}")

    def observe_step_start(self, process: str, begun: StartedAttempt) -> None:
        """Trace the start of an attempt of a step."""
        self._trace.add(self._now(), process, f"STEP {begun.run_id} {begun.step}, attempt {begun.attempt}")


class SimulatedCluster:
    """A simulated database with two worker processes, which restart when they crash."""

    def __init__(
        self,
        seed: int,
        subject: SimulationInput,
        faults: Faults,
        *,
        lease: float,
        bound: float,
    ) -> None:
        """`lease` and `bound`, the time limit of the execution, are in seconds."""
        self._seed = seed
        self._subject = subject
        self._faults = faults
        self._lease = lease
        self._bound = START + round(bound * _SECOND)
        self._stubs = Stubs()
        self._is_left_alone = not subject.meanwhile
        self._raised: Exception | None = None
        self._hub = Hub(Random(f"{seed}/order"), run_virtually)  # noqa: S311  # to be foreseeable is the point
        self._trace = Trace()
        self._watch = _Tracer(self._trace, lambda: self._hub.now)
        self._inner = MemoryPersistence()
        self._store = SharedStore(self._inner, lambda: self._hub.now, self._watch)
        self._blobs = MemoryBlobStore()
        self._numbers: Counter[str] = Counter()
        self._known = -1
        self._is_over = False
        self._is_past = False
        self._around = Environment(
            store=self._store,
            blobs=self._blobs,
            wires=HintNetwork(),
            sinks={},
            watch=cast("SimulationObserver", self._watch),
        )

    def run(self) -> Trial:
        """Start the runs, and simulate until all have ended. Raises HostError if a host raises an unexpected error."""
        self._subject.stubs(self._stubs)
        handles = self._started()
        self._store.tables = self._inner.dump()
        effects = self._subject.effects
        effects.begin(self._point)
        for number in range(WORKERS):
            self._start(f"worker-{number}")
        if self._subject.meanwhile:
            self._start_outside()
        others = in_memory()
        try:
            self._hub.run(self._ended, self._bound)
        finally:
            self._is_past = True
            self._hub.close()
            evict_all(besides=others)  # functions cached by crashed processes, which nothing else would evict
            effects.end()
        tables = self._store.tables
        return Trial(
            started=[tables.runs[tables.newest[RunName("default", key)]] for key in self._subject.ids],
            runs={one.id: one for one in sorted(tables.runs.values(), key=lambda one: one.generation)},
            rows=_histories(tables),
            handles=handles,
            effects=effects.counts,
            broken=tuple(map(str, check(tables))),
            points=self._faults.points,
            in_bodies=self._faults.in_bodies,
            fired=self._faults.counts,
            places=tuple(one.location for one in self._faults.fired),
            lines=tuple(self._trace.lines),
            seconds=(self._hub.now - START) / _SECOND,
            raised=self._raised,
        )

    def _started(self) -> Sequence[SyncRunHandle[Any]]:
        clock = ManualClock(instant(START))
        stores = Stores(
            persistence=self._inner,
            transport=NullTransport(),
            blobs=self._blobs,
            clock=clock,
            ids=SeededIds(0, clock),
        )
        engine = Engine.on(stores, workflows=self._subject.workflows).sync
        subject = self._subject
        return [engine.start(call, id=key) for call, key in zip(subject.calls, subject.ids, strict=True)]

    def _point(self, what: str) -> None:
        """Pass a point within a body at which its process may crash."""
        if self._is_past:
            raise Evicted
        fiber = getcurrent()
        if isinstance(fiber, Fiber) and isinstance(fiber.process, FaultyProcess):
            fiber.process.log(what)
            fiber.process.reach_point(BODY)

    def _ended(self) -> bool:
        if self._hub.switches > _SWITCHES_MAX:
            return True
        if self._known != self._store.commits:
            self._known = self._store.commits
            tables = self._store.tables
            is_active = any(run.status in ACTIVE for run in tables.runs.values())
            self._is_over = not is_active and not any(job.outlives_run for job in tables.all_jobs())
        return self._is_over and self._is_left_alone

    # The processes --------------------------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        self._numbers[name] += 1
        number = self._numbers[name]
        life = FaultyProcess(
            self._hub,
            f"{name}#{number}",
            Random(f"{self._seed}/{name}/{number}"),  # noqa: S311  # to be foreseeable is the point
            faults=self._faults,
            trace=self._trace,
            lease=self._lease,
            crashed=lambda life: self._crashed(name, life),
        )
        life.log("starts")
        engine = self._around.engine(life, self._subject.workflows, self._stubs.substituted)
        life.spawn(lambda: self._work(life, engine))

    def _start_outside(self) -> None:
        """Start a process without faults that performs the actions from outside."""
        life = FaultyProcess(
            self._hub,
            OUTSIDE,
            Random(f"{self._seed}/{OUTSIDE}"),  # noqa: S311  # to be foreseeable is the point
            faults=Faults({}, FaultSchedule(), START),
            trace=self._trace,
            lease=self._lease,
            crashed=lambda _: None,
        )
        engine = self._around.engine(life, self._subject.workflows).sync
        life.spawn(lambda: self._meddle(life, engine))

    def _meddle(self, life: FaultyProcess, engine: SyncEngine) -> None:
        subject = self._subject
        connect(life, engine.core)
        runs = [
            engine.handle(call.definition, key) for call, key in zip(subject.calls, subject.ids, strict=True)
        ]
        try:
            for after, do in sorted(subject.meanwhile.items()):
                life.hub.sleep(max(0, START + after // timedelta(microseconds=1) - life.hub.now))
                life.log(f"runs the outside action at {after}")
                do(runs)
        except Exception as error:  # noqa: BLE001  # `simulate` raises it again
            life.log(f"failed: {type(error).__name__}: {error}")
            self._raised = error
        self._is_left_alone = True

    def _crashed(self, name: str, life: FaultyProcess) -> None:
        wait = life.random.randrange(100_000, round(self._lease * _SECOND))
        self._hub.at(self._hub.now + wait, lambda: self._start(name))

    def _work(self, life: FaultyProcess, engine: Engine) -> None:
        """Do maintenance and run jobs when they are due, in an endless loop."""
        connect(life, engine.core)
        keeps = Random(f"{self._seed}/{life.name}/keeps").choice((0, FUNCTIONS_KEPT))  # noqa: S311  # as above
        host = ServerlessHost(
            engine,
            time_limit=self._lease,
            heartbeat_interval=self._lease / 30,
            function_cache=keeps,
        )
        idle = 0
        while True:
            try:
                if self._due() <= self._hub.now:
                    # Usually one process does it. Both at once do no harm, but cost twice as much.
                    life.hub.sleep(life.random.randrange(_STAGGER))
                    if self._due() <= self._hub.now:
                        host.run_maintenance_tick(keep_on=lambda: False)
                # A claim costs a simulation more than a look at the tables.
                is_queued = self._is_queued()
                if is_queued and host.process_available_jobs(max_jobs=1, concurrency=1).processed:
                    idle = 0
                    continue
                idle += 1
            except HoldfastError as error:
                life.log(f"failed: {type(error).__name__}")
                life.hub.sleep(life.random.randrange(100_000, _SECOND))
                continue
            due = self._due()
            is_left = due <= self._hub.now or self._is_queued()
            # A hint ends the wait. If it was lost, polling finds the job.
            look = min(_POLL * 2.0**idle, _LOOK_MAX) if is_left else math.inf
            engine.core.stores.transport.receive(
                100, min(look, max(0.0, (due - self._hub.now) / _SECOND) or look)
            )

    def _is_queued(self) -> bool:
        return any(job.state is JobState.QUEUED for job in self._store.tables.all_jobs())

    def _due(self) -> Micros:
        """Return the next instant at which maintenance has work."""
        tables = self._store.tables
        grace = round(self._lease / 5 * _SECOND)
        held = (ends + grace for ends in lapses(tables))
        return min((*due_instants(tables), *held), default=self._bound)


def _histories(tables: Tables) -> Mapping[str, Sequence[HistoryRow]]:
    """Return the histories of all runs by id, generation after generation."""
    found: dict[str, tuple[HistoryRow, ...]] = {}
    for run in sorted(tables.runs.values(), key=lambda run: run.generation):
        found[run.id] = (*found.get(run.id, ()), *tables.history[run.key])
    return found
