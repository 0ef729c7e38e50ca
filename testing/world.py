"""An engine in memory for tests, whose time passes without waiting when a test advances it."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Literal, ParamSpec, Self, Unpack, overload

import attrs
from typing_extensions import TypeVar

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.schedules import check_schedules
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.inspection.run_info import RunEvent, event_of
from holdfast.hosts.wiring.interceptors import Interceptor, check_interceptors
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.wiring.step_discovery import with_children
from holdfast.hosts.wiring.stores import Stores
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.external import ExternalStage, NotReady, Suspended
from holdfast.kernel.authoring.options import StartOptions
from holdfast.kernel.authoring.schedules import Schedule
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import StagesWoken
from holdfast.ports.blobs import BlobStore
from holdfast.ports.clock import instant
from holdfast.ports.durations import Duration
from holdfast.ports.events import USER_EVENTS, EventSink
from holdfast.ports.records.job import JobKind, JobState, step_of
from holdfast.ports.records.run import RunStatus
from holdfast.ports.validation import AWARE, SINK, TEXT, an, by_name, check, duration, several, with_methods
from holdfast.testing.async_world import AsyncWorld
from holdfast.testing.blobs import MemoryBlobStore
from holdfast.testing.body_runner import InlineBodyRunner
from holdfast.testing.clock import DEFAULT_START, ManualClock
from holdfast.testing.ids import SeededIds
from holdfast.testing.manual_driver import Driver
from holdfast.testing.step_stubs import StepCall, StepStub
from holdfast.testing.stubs import StageCall, Stub, Stubs
from holdfast.testing.time_travel import HORIZON, TimeAdvancer, TimeAdvancingListener, time_to_pass
from holdfast.testing.transport import NullTransport

A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S")
P = ParamSpec("P")

_BLOBS: Final = with_methods("a blob store, with `put`, `get` and so on", "put", "get", "exists").or_none


_WHY: Final[Mapping[JobKind, Literal["check", "timer"]]] = {JobKind.POLL: "check", JobKind.WORKFLOW: "timer"}


@attrs.frozen(kw_only=True)
class Asleep:
    """A sleeping job or run, and when it continues.

    Attributes:
        run_id: The run.
        stage: The stage or queued step; None if the run has not started.
        item: The index of the item if the stage is mapped.
        until: When it continues.
        why: `start`: the run has a `start_at`. `check`: a suspended stage is checked. `retry`: the next attempt.
            `timer`: a durable function sleeps, waits for a timeout, or retries a step.
    """

    run_id: str
    stage: str | None
    item: int | None
    until: datetime
    why: Literal["start", "check", "retry", "timer"]


class World:
    """An engine in memory with a manual clock, which also does the work of workers.

    Nothing happens until `work`, `advance` or `run_until_quiet` is called, or until a test waits for a result: then
    jobs run one after the other, in this thread, as workers run them. Waiting takes no real time. The fixture `world`
    is one. Close it, or use it as a context manager.

    Args:
        workflows: Workflows that code under test may start by name. Those passed to `start` and `run` need not be
            listed, nor the children that a durable function mentions by name.
        schedules: Schedules, which fire as time passes. Their workflows need not be listed.
        start: The initial time of the clock. Aware.
        horizon: Maximum time that may pass while a run is awaited: a timedelta, or a number of seconds.
        sinks: Event sinks by the names under which they are registered.
        blobs: The store of large values; by default one in memory.
        interceptors: Interceptors of command dispatch and of bodies.
        namespace: The namespace of the runs.
        ids: The seed of the generated ids, which makes them reproducible.

    Raises:
        InvalidArgumentError: An argument has the wrong type.
    """

    def __init__(
        self,
        workflows: Iterable[WorkflowDefinition[object]] = (),
        *,
        schedules: Iterable[Schedule[object]] = (),
        start: datetime = DEFAULT_START,
        horizon: Duration = HORIZON,
        sinks: Mapping[str, EventSink] | None = None,
        blobs: BlobStore | None = None,
        interceptors: Iterable[Interceptor] = (),
        namespace: str = "default",
        ids: int = 0,
    ) -> None:
        check("World", AWARE, start=start)
        check("World", TEXT, namespace=namespace)
        check("World", an("an integer", int), ids=ids)
        check("World", _BLOBS, blobs=blobs)
        self.clock = ManualClock(start)
        self.store = MemoryPersistence()
        self.blobs = blobs or MemoryBlobStore()
        self._horizon = duration("World", "horizon", horizon)
        self._sinks = by_name("World", "sinks", sinks or {}, "a dict of sinks by name", SINK)
        self._interceptors = check_interceptors(interceptors)
        self._namespace = namespace
        self._stubs = Stubs()
        self._bodies = InlineBodyRunner(self.clock)
        self._stores = Stores(
            persistence=self.store,
            transport=NullTransport(),
            blobs=self.blobs,
            clock=self.clock,
            ids=SeededIds(ids, self.clock),
        )
        self._workflows: dict[int, WorkflowDefinition[object]] = {}
        listed = several("World", "workflows", workflows, "a list of workflows, such as [my_pipeline]")
        self._schedules = check_schedules(schedules)
        self._know([*listed, *(schedule.call.definition for schedule in self._schedules)])

    def __enter__(self) -> Self:
        """Return the world itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Close the world."""
        self.close()

    def close(self) -> None:
        """Cancel tasks that bodies have left on their event loop, and evict cached functions."""
        self._engine.client.replays.close()
        self._bodies.close()

    @property
    def engine(self) -> Engine:
        """The engine, for code under test. It knows the workflows passed to the world so far.

        Waiting for one of its runs advances time.
        """
        return self._engine

    @property
    def now(self) -> datetime:
        """The clock's time. Aware, in UTC."""
        return self.clock.now()

    @property
    def aio(self) -> AsyncWorld:
        """The async methods, for tests whose bodies should run on the test's event loop."""
        return AsyncWorld(self.start, lambda: self.passing)

    # Runs.

    def start(self, call: Call[R], /, **options: Unpack[StartOptions]) -> SyncRunHandle[R]:
        """Start a run. No job of it runs yet. Raises the same errors as `SyncEngine.start`."""
        if isinstance(call, Call):  # pyright: ignore[reportUnnecessaryIsInstance]  # the engine refuses anything else
            self._know((call.definition,))
        return self._engine.sync.start(call, **options)

    def run(self, call: Call[R], /, **options: Unpack[StartOptions]) -> R:
        """Start a run, advance time until it ends, and return its result.

        Raises:
            RunFailedError: It failed.
            RunStuckError: It waits for something that the passing of time does not bring.
        """
        return self.start(call, **options).result()

    def wake(self, key: str, /) -> StagesWoken:
        """Check external work now, by the key passed to `suspend`. See `SyncEngine.wake`."""
        return self._engine.sync.wake(key)

    # Time.

    def work(self) -> None:
        """Run every job that is due now. The clock stands still, except for sleeps in async bodies."""
        self._bodies.run(self.passing.by(timedelta()))

    def advance(
        self,
        by: Duration | None = None,
        /,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        """Advance time, and run each job at the time at which it becomes due.

        `by` is a timedelta, or a number of seconds; the other arguments are added to it.
        """
        self._bodies.run(self.passing.by(time_to_pass(by, days, hours, minutes, seconds)))

    def run_until_quiet(self, *, within: Duration | None = None) -> None:
        """Advance time until no job or timer is left. Schedules fire meanwhile, and do not count as left.

        Raises:
            RunStuckError: There is still work after `within`, or after the world's horizon.
        """
        self._bodies.run(self.passing.until_quiet(within))

    # Stubs.

    @overload
    def stub(self, stage: ExternalStage[A, R, Any, S], /) -> Stub[A, R | Suspended[S, R]]: ...
    @overload
    def stub(self, stage: Stage[A, R], /) -> Stub[A, R]: ...
    @overload
    def stub(self, step: Step[P, R], /) -> StepStub[P, R]: ...
    def stub(self, body: Stage[Any, Any] | Step[P, R], /) -> Stub[Any, Any] | StepStub[P, R]:
        """Replace a stage, or a step of durable functions: see `Stub`, `StepStub`.

        Stages and steps are identified by name and function. The result of an external stage's stub is the result of
        its work, unless it is a `suspend(...)`.
        """
        return self._stubs.steps.add(body) if isinstance(body, Step) else self._stubs.add(body, "body")

    def stub_check(self, stage: ExternalStage[Any, R, Any, S], /) -> Stub[S, R | NotReady]:
        """Replace the check of an external stage."""
        return self._stubs.add(stage, "check")

    def stub_cancel(self, stage: ExternalStage[Any, Any, Any, S], /) -> Stub[S, None]:
        """Replace the cancel function of an external stage."""
        return self._stubs.add(stage, "cancel")

    # What happened, and what is scheduled.

    @overload
    def calls(self, stage: Stage[A, Any], /) -> tuple[StageCall[A], ...]: ...
    @overload
    def calls(self, step: Step[..., Any], /) -> tuple[StepCall, ...]: ...
    def calls(
        self, body: Stage[A, Any] | Step[..., Any], /
    ) -> tuple[StageCall[A], ...] | tuple[StepCall, ...]:
        """Return the started bodies of a stage or a step, with their inputs, times and attempts."""
        if isinstance(body, Step):
            return self._stubs.steps.calls(body)
        return self._stubs.calls(body, "body")

    def checks(self, stage: ExternalStage[Any, Any, Any, S], /) -> tuple[StageCall[S], ...]:
        """Return the checks of an external stage; their `input` is the state of its suspension."""
        return self._stubs.calls(stage, "check")

    def cancels(self, stage: ExternalStage[Any, Any, Any, S], /) -> tuple[StageCall[S], ...]:
        """Return the cancel calls of an external stage; their `input` is the state of its suspension.

        They follow the end of the run: call `work` first.
        """
        return self._stubs.calls(stage, "cancel")

    def asleep(self, run: SyncRunHandle[object] | None = None, /) -> tuple[Asleep, ...]:
        """Return sleeping jobs and runs, of one run or of all, sorted by the time at which they continue."""
        check("asleep", an("the handle of a run", SyncRunHandle).or_none, run=run)
        tables = self.store.dump()
        found: list[Asleep] = []
        for one in tables.runs.values():
            if run is not None and one.id != run.id:
                continue
            if one.status is RunStatus.PENDING and one.start_at is not None:
                until = instant(one.start_at)
                found.append(Asleep(run_id=one.id, stage=None, item=None, until=until, why="start"))
            found += (
                Asleep(
                    run_id=one.id,
                    stage=step_of(job.definition) or job.node,
                    item=job.item,
                    until=instant(job.wake_at),
                    why=_WHY.get(job.kind, "retry"),
                )
                for job in tables.jobs.get(one.key, {}).values()
                if job.state is JobState.SLEEPING and job.wake_at is not None
            )
        return tuple(sorted(found, key=lambda one: (one.until, one.run_id, one.stage or "", one.item or 0)))

    def published(self, type: str | None = None, /) -> tuple[RunEvent, ...]:
        """Return the events that stages have published, of one type or of all, in the order of storage."""
        check("published", TEXT.or_none, type=type)
        tables = self.store.dump()
        rows = [
            (row.at, run.place, row)
            for run in tables.runs.values()
            for row in tables.history[run.key]
            if row.type.startswith(USER_EVENTS)
            and type in (None, row.type, row.type.removeprefix(USER_EVENTS))
        ]
        return tuple(event_of(row) for _, _, row in sorted(rows, key=lambda one: (*one[:2], one[2].number)))

    def _know(self, workflows: Iterable[WorkflowDefinition[object]]) -> None:
        """Rebuild the engine if a workflow is new. The store and the time stay.

        Children that a durable function mentions are added with it.
        """
        known = len(self._workflows)
        all_known = with_children((*workflows, *self._workflows.values()))
        self._workflows.update({id(workflow): workflow for workflow in all_known})
        if known and len(self._workflows) == known:
            return
        patience = TimeAdvancingListener(self._bodies)
        core = Core(
            self._stores,
            self._workflows.values(),
            namespace=self._namespace,
            migrate=True,
            interceptors=self._interceptors,
            listener=patience,
        )
        core.host = "world"
        driver = Driver(core, self.store, self.clock, self._stubs, self._sinks)
        self.passing = patience.passing = TimeAdvancer(driver, core, self.clock, self._horizon)
        self._engine = Engine(core, schedules=self._schedules)
