"""A world: the processes of one simulation, their shared environment, and their restarts."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, cast

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.settings import MAINTENANCE_INTERVAL, Settings
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import RunResume, RunTerminate, ScheduleRemove
from holdfast.kernel.pipelines.plan import DEFAULT_QUEUE
from holdfast.ports.errors import HoldfastError
from holdfast.ports.persistence import Persistence
from holdfast.ports.records.outbox import Sink, StreamKey, StreamState
from holdfast.ports.records.run import ACTIVE, Run, RunStatus
from holdfast.ports.working_set import Tables
from holdfast.ports.zones import ZoneTables
from holdfast.testing.blobs import MemoryBlobStore
from holdfast.testing.simulation.faults import FaultKind, Faults
from holdfast.testing.simulation.fibers import START, Hub, WakeSignal
from holdfast.testing.simulation.loops import run_virtually
from holdfast.testing.simulation.observer import SimulationObserver
from holdfast.testing.simulation.ports import HintNetwork, SharedSink
from holdfast.testing.simulation.process_life import SKEW_MAX, FaultyProcess
from holdfast.testing.simulation.processes import (
    Environment,
    MessageQueue,
    ReplyLog,
    SimulatedClient,
    SimulatedFunction,
    SimulatedTimer,
    SimulatedWorker,
    connect,
)
from holdfast.testing.simulation.scenarios import Scenario, ScheduleScenario, Sizes
from holdfast.testing.simulation.schedule_ledger import OVERDUE_AFTER, ScheduleLedger
from holdfast.testing.simulation.store import SharedStore
from holdfast.testing.simulation.store_time import StoreTimeline
from holdfast.testing.simulation.trace import Trace
from holdfast.testing.simulation.trigger_ledger import behind

_SECOND: Final = 1_000_000
_OPERATOR_INTERVAL: Final = 5 * _SECOND
_QUEUES_FOR: Final = 86_400 * _SECOND
"""How long the runs of removed schedules may wait for each other."""


class World:
    """The simulated world of one seed."""

    def __init__(
        self,
        seed: int,
        scenario: Scenario,
        sizes: Sizes,
        faults: Faults,
        *,
        persistence: Persistence | None = None,
    ) -> None:
        self.scenario = scenario
        self.sizes = sizes
        self.faults = faults
        self.trace = Trace()
        self.hub = Hub(Random(f"{seed}/order"), run_virtually)
        jumps = () if scenario.schedules is None else scenario.schedules.clock_jumps
        self.timeline = StoreTimeline(lambda: self.hub.now, [(START + at, by) for at, by in jumps])
        self.watch = SimulationObserver(self.trace, self.timeline.latest if jumps else lambda: self.hub.now)
        self.store = SharedStore(persistence or MemoryPersistence(), lambda: self.hub.now, self.watch)
        self.store.clock = self.timeline.now
        self.book = ReplyLog(self.watch)
        self.lives: dict[str, FaultyProcess] = {}
        self._seed = seed
        self._numbers: dict[str, int] = {}
        self._starts: dict[str, Callable[[FaultyProcess], Callable[[], None]]] = {}
        self._queue: MessageQueue | None = None
        if sizes.functions:
            self._queue = MessageQueue(self.hub, visibility=2 * sizes.lease, deliveries_max=5)
        self.blobs = MemoryBlobStore()
        self.watch.has_blob = self.blobs.exists
        self.watch.was_stopped = self.faults.has_stopped
        self.watch.may_be_early = lambda process: self.lives[process.partition("#")[0]].early_tolerance
        self._around = Environment(
            store=self.store,
            blobs=self.blobs,
            wires=HintNetwork(None if self._queue is None else self._queue.put),
            sinks={name: SharedSink(name, self.watch.observe_event) for name in scenario.sinks},
            watch=self.watch,
            hint_wait=sizes.hint_wait,
            topic_deliveries=sizes.topic_deliveries,
        )
        self.watch.topics = scenario.topics
        self._down_until = 0
        if scenario.schedules is not None:
            self._prepare_schedules(scenario.schedules)
        for number in range(sizes.workers):
            self._add(f"worker-{number}", self._worker)
        for number in range(sizes.functions):
            self._add(f"function-{number}", self._function)
        if self._has_remote_stages:
            self._add("remote-0", self._remote_worker)
        if sizes.functions or (scenario.schedules is not None and scenario.schedules.has_timer):
            self._add("timer", self._timer)
        for number in range(len(scenario.clients)):
            self._add(f"client-{number}", partial(self._client, number))

    def _prepare_schedules(self, schedules: ScheduleScenario) -> None:
        """Check schedules, and let all hosts be down at times."""
        self.watch.schedules = ScheduleLedger(schedules.releases, self.timeline, self.watch.may_be_early)
        for at, length in schedules.downtimes:
            self.hub.at(START + at, partial(self._go_down, START + at + length))

    def _go_down(self, until: int) -> None:
        """Crash all hosts; they start again later."""
        if not self.faults.is_on:
            return
        self._down_until = until
        for name, life in tuple(self.lives.items()):
            if name.startswith(("worker", "timer")) and not life.is_crashed:
                life.log("DOWN")
                self._crashed(name, life)
                self.hub.crash(life)

    def _add(self, name: str, start: Callable[[FaultyProcess], Callable[[], None]]) -> None:
        self._starts[name] = start
        self._start(name)

    def _start(self, name: str) -> None:
        """Start a new life of a process."""
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        random = Random(f"{self._seed}/{name}/{number}")
        life = FaultyProcess(
            self.hub,
            f"{name}#{number}",
            random,
            faults=self.faults,
            trace=self.trace,
            lease=self.sizes.lease,
            crashed=lambda life: self._crashed(name, life),
        )
        if self.faults.strengths.get(FaultKind.CLOCK_JUMP):
            life.skew = random.randrange(-SKEW_MAX, SKEW_MAX)
        life.draw_drift(Random(f"{self._seed}/{name}/{number}/drift"))
        self.lives[name] = life
        run = self._starts[name](life)
        life.log("starts")
        life.spawn(lambda: self._live(name, life, run))

    def _live(self, name: str, life: FaultyProcess, run: Callable[[], None]) -> None:
        run()
        life.log("ends")
        self._crashed(name, life)
        self.hub.crash(life)  # ends the fibers that it left running

    def _crashed(self, name: str, life: FaultyProcess) -> None:
        if name.startswith("client-") and all(
            deed.what in self.book.done for deed in self.scenario.clients[int(name.removeprefix("client-"))]
        ):
            return
        wait = life.random.randrange(100_000, 20 * _SECOND)
        if not name.startswith("client-"):
            wait += max(0, self._down_until - self.hub.now)
        self.hub.at(self.hub.now + wait, lambda: self._start(name))

    # What the processes run -----------------------------------------------------------------------------------------

    def _code(self, life: FaultyProcess) -> Sequence[WorkflowDefinition[object]]:
        """Return the workflows of a worker that starts now; with deploys, perhaps not all."""
        deploys = self.scenario.deploys
        if not self.faults.is_on or not deploys or not self.faults.strengths.get(FaultKind.DEPLOY):
            return self.scenario.workflows
        code = life.random.choice(deploys)
        life.has_all_code = len(code) == len(self.scenario.workflows)
        return code

    def _zones(self, life: FaultyProcess) -> ZoneTables | None:
        """Return the zone data of a host that starts now, perhaps an older release."""
        schedules = self.scenario.schedules
        if schedules is None:
            return None
        zones = schedules.releases[-1]
        if self.faults.is_on:
            zones = Random(f"{self._seed}/{life.name}/zones").choice(schedules.releases)
            life.has_all_code = life.has_all_code and zones is schedules.releases[-1]
        return zones

    @property
    def _has_remote_stages(self) -> bool:
        return any(
            stage.remote
            for one in self.scenario.workflows
            if isinstance(one, Pipeline)
            for stage in cast("Pipeline[Any, object]", one).bodies.values()
        )

    def _worker(self, life: FaultyProcess) -> Callable[[], None]:
        engine = self._around.engine(life, self._code(life), zones=self._zones(life))
        registry = engine.core.registry
        return self._running(life, engine, registry.definitions, registry.queues(DEFAULT_QUEUE))

    def _remote_worker(self, life: FaultyProcess) -> Callable[[], None]:
        """Run the bodies of remote stages, and nothing else."""
        engine = self._around.engine(life, self.scenario.workflows)
        stages = engine.core.registry.remote_stages
        queues = dict.fromkeys((DEFAULT_QUEUE, *(stage.queue for stage in stages.values() if stage.queue)))
        return self._running(life, engine, tuple(stages), tuple(queues))

    def _running(
        self, life: FaultyProcess, engine: Engine, definitions: tuple[str, ...], queues: tuple[str, ...]
    ) -> Callable[[], None]:
        sizes = self.sizes
        settings = Settings(
            definitions=definitions,
            queues=tuple(dict.fromkeys((*queues, *sizes.queues))),
            concurrency=sizes.concurrency,
            limits=sizes.queues,
            poll_interval=sizes.poll_interval,
            drain_grace=sizes.drain_grace,
            maintenance_interval=sizes.maintenance_interval or min(MAINTENANCE_INTERVAL, sizes.lease / 3),
            function_cache=sizes.function_cache,
        )
        sinks = self._around.sinks_of(life)
        return SimulatedWorker(life, engine, settings, lease=sizes.lease, sinks=sinks).run

    def _function(self, life: FaultyProcess) -> Callable[[], None]:
        assert self._queue is not None
        engine = self._around.engine(life, self._code(life))
        sizes = self.sizes
        return SimulatedFunction(
            life, engine, self._queue, time_limit=sizes.lease, function_cache=sizes.function_cache
        ).run

    def _timer(self, life: FaultyProcess) -> Callable[[], None]:
        sizes = self.sizes
        engine = self._around.engine(life, self.scenario.workflows, zones=self._zones(life))
        return SimulatedTimer(
            life,
            engine,
            time_limit=sizes.lease,
            interval=sizes.tick_interval,
            sinks=self._around.sinks_of(life),
        ).run

    def _client(self, number: int, life: FaultyProcess) -> Callable[[], None]:
        engine = self._around.engine(life, self.scenario.workflows)
        return SimulatedClient(life, engine, self.scenario.clients[number], self.book).run

    def _operator(self, life: FaultyProcess) -> Callable[[], None]:
        """Act as the operator: resume paused runs, replay dead letters, send the messages that runs wait for."""
        engine = self._around.engine(life, self.scenario.workflows).sync

        def run() -> None:
            connect(life, engine.core)
            while True:
                tables = self.store.tables  # read directly: the operator needs no query to see the state
                try:
                    if any(run.status is RunStatus.PAUSED for run in tables.runs.values()):
                        engine.resume_all()
                    for run in tuple(tables.runs.values()):  # a copy: other processes change the rows
                        if run.status is RunStatus.BLOCKED:
                            engine.client.dispatch(RunResume(namespace=run.namespace, run_id=run.id))
                    for bring in self.scenario.missing(tables):
                        bring(engine)
                    if any(stream.state is StreamState.DEAD_LETTERED for stream in tables.streams.values()):
                        for name in self.scenario.sinks:
                            engine.replay_dead_letters(sink=name, reason="it is repaired")
                except HoldfastError as error:
                    life.log(f"OPERATOR failed: {type(error).__name__}")
                life.hub.sleep(_OPERATOR_INTERVAL)

        return run

    def _closer(self, life: FaultyProcess) -> Callable[[], None]:
        """Let the schedules fire for a while without faults, check that nothing is overdue, and remove them.

        Runs that still wait for each other a day later are terminated: a schedule may have queued months of them.
        """
        engine = self._around.engine(life, self.scenario.workflows)

        def run() -> None:
            connect(life, engine.core)
            while any(line.startswith("client") for line in self.unfinished()):
                life.hub.sleep(60 * _SECOND)
            life.hub.sleep(2 * OVERDUE_AFTER)
            assert self.watch.schedules is not None
            for violation in self.watch.schedules.overdue(self.store.tables):
                self.watch.report_violation(violation.invariant, violation.where, violation.what)
            for row in tuple(self.store.tables.schedules.values()):
                engine.sync.client.dispatch(ScheduleRemove(namespace=row.namespace, schedule=row.name))
            life.hub.sleep(_QUEUES_FOR)
            for run in tuple(self.store.tables.runs.values()):
                if run.status in ACTIVE:
                    command = RunTerminate(namespace=run.namespace, run_id=run.id, reason="the queue is long")
                    engine.sync.client.dispatch(command)
            WakeSignal(life.hub).wait()  # it has no more to do

        return run

    # The phases -----------------------------------------------------------------------------------------------------

    def run_faults(self) -> None:
        """Run the fault phase until both its time and its number of points are reached."""
        until = START + round(self.sizes.faults_for * _SECOND)

        def is_over() -> bool:
            enough = self.faults.points >= self.sizes.faults_until and self.hub.now >= until
            return bool(self.watch.violations) or enough

        self.hub.run(is_over, until + round(self.sizes.heals_for * _SECOND))

    def heal(self) -> bool:
        """Run the healing phase, without faults; return whether everything ended within the bound."""
        self.faults.is_on = False
        self.trace.add(self.hub.now, "-", "HEALING")
        for sink in self._around.sinks.values():
            sink.repair()
        for name, life in tuple(self.lives.items()):
            if (
                name.startswith(("worker", "function", "timer"))
                and not life.is_crashed
                and not life.has_all_code
            ):
                life.wants_to_end = True  # it restarts with all workflows
        self._add("operator", self._operator)
        if self.scenario.schedules is not None:
            self._add("closer", self._closer)
        return self.finish()

    def run_faultless(self) -> bool:
        """Run everything without faults; return whether everything ended within the bound."""
        self._add("operator", self._operator)
        if self.scenario.schedules is not None:
            self._add("closer", self._closer)
        return self.finish()

    def finish(self) -> bool:
        """Run until everything has ended, or to the bound; return whether everything has."""
        checks = [0]

        def is_over() -> bool:
            if self.watch.violations:
                return True
            checks[0] += 1
            return checks[0] % 16 == 0 and not self._goes_on()

        bound = self.hub.now + round(self.sizes.heals_for * _SECOND)
        self.hub.run(is_over, bound)
        return not self.unfinished()

    def _goes_on(self) -> bool:
        """Return whether anything has not ended. Checks runs first, which is cheap."""
        tables = self.store.tables
        return any(run.status in ACTIVE for run in tables.runs.values()) or bool(self.unfinished())

    def unfinished(self) -> list[str]:
        """Describe the runs, jobs, clients and deliveries that have not ended, one line each."""
        left = [
            f"client {number} has not done {deed.what}"
            for number, deeds in enumerate(self.scenario.clients)
            for deed in deeds[-1:]
            if deed.what not in self.book.done
        ]
        tables = self.store.tables
        left += [f"schedule {row.name} is not removed" for row in tables.schedules.values()]
        left += [
            f"run {run.id}.{run.generation} is {run.status}"
            for run in tables.runs.values()
            if run.status in ACTIVE
        ]
        left += [
            f"job {job.key.text} is still to be delivered or cancelled"
            for job in tables.all_jobs()
            if job.outlives_run
        ]
        left += [
            f"message {message.id} of topic {message.topic} has no number"
            for message in tables.topic_messages.values()
            if message.number is None
        ]
        left += [
            f"message {topic.last + 1} of topic {topic.name} is delivered to some subscribers only"
            for topic in tables.topics.values()
            if topic.after_subscription is not None
        ]
        left += [
            f"trigger {row.name} has not handled {number} messages"
            for row in tables.triggers.values()
            if row.paused is None and (number := behind(tables, row))
        ]
        left += [
            f"sink {sink.name} has {delivered} of {run.last_row} events of {run.id}.{run.generation}"
            for sink in tables.sinks.values()
            for run in tables.runs.values()
            if (delivered := _delivered(tables, sink, run)) < run.last_row
        ]
        return left


def _delivered(tables: Tables, sink: Sink, run: Run) -> int:
    """Return the number of the last event of a run that a sink has received; the last row if it is to get none."""
    if run.updated_at < sink.since:
        return run.last_row
    stream = tables.streams.get(StreamKey(sink.key, run.key))
    return 0 if stream is None else stream.delivered
