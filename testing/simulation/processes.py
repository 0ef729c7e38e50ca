"""The processes of a simulation: real hosts on simulated ports, with fibers in place of event loops and threads."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import attrs
from anyio import CancelScope, CapacityLimiter

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.execution.bodies import Body, Substitute, unchanged
from holdfast.hosts.serverless.host import JobOutcome, ServerlessHost
from holdfast.hosts.wiring.hint_listener import ThreadedHintListener
from holdfast.hosts.wiring.interceptors import BodyCall, CommandBatch
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.wiring.stores import Stores
from holdfast.hosts.worker import machine_protocol as p
from holdfast.hosts.worker.runner import LEAVE_SECONDS
from holdfast.hosts.worker.session_renewal import Renewal
from holdfast.hosts.worker.settings import Settings
from holdfast.hosts.worker.shell import CallResult, WorkerShell
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.commands import Attempt, JobSettle
from holdfast.kernel.commands.topics import DELIVER_LIMIT
from holdfast.ports.errors import HoldfastError, UnavailableError
from holdfast.ports.events import EventSink
from holdfast.ports.records.job import JobKind
from holdfast.ports.transport import Hint, JobHint
from holdfast.ports.zones import ZoneTables
from holdfast.testing.blobs import MemoryBlobStore
from holdfast.testing.ids import SeededIds
from holdfast.testing.simulation.fibers import START, Hub, WakeSignal, current
from holdfast.testing.simulation.guessed_last_steps import GuessedLastSteps
from holdfast.testing.simulation.loops import VirtualLoop, virtual_loop
from holdfast.testing.simulation.observer import SimulationObserver
from holdfast.testing.simulation.ports import (
    HintNetwork,
    SharedSink,
    SimulatedBlobs,
    SimulatedClock,
    SimulatedPersistence,
    SimulatedSink,
    SimulatedTransport,
)
from holdfast.testing.simulation.process_life import FaultyProcess
from holdfast.testing.simulation.step_behaviour import driven_run
from holdfast.testing.simulation.step_records import StartedAttempt
from holdfast.testing.simulation.store import SharedStore
from holdfast.testing.simulation.virtual_waits import VirtualListener
from holdfast.testing.step_stubs import AnyStep, noting

_RETRY: Final = 500_000
_EXTRA: Final = 0.15
_AGAIN: Final = 0.3


class ObservingInterceptor:
    """An interceptor that reports every dispatch and every start of a body or step to the `SimulationObserver`."""

    def __init__(self, life: FaultyProcess, watch: SimulationObserver) -> None:
        self._life = life
        self._watch = watch

    @contextmanager
    def dispatch(self, batch: CommandBatch, /) -> Generator[None]:
        """Record the commands on the fiber, for the checks at the commit."""
        fiber = current()
        former, fiber.commands = fiber.commands, batch.commands
        commits = fiber.commits
        try:
            yield
        finally:
            fiber.commands = former
        self._watch.observe_dispatch(self._life.name, batch.commands, batch.answers, fiber.commits - commits)

    @contextmanager
    def body(self, call: BodyCall, /) -> Generator[None]:
        """Report the start of a body. Steps are reported with more detail by `observed`."""
        if call.step is not None:
            yield
            return
        item = "" if call.item is None else f"[{call.item}]"
        self._watch.observe_body_start(
            self._life.name, call.job, call.epoch, f"{call.run_id} {call.stage}{item}"
        )
        yield

    def observed(self, body: Body) -> Body:
        """Return the body; if it drives a function or runs a step, its steps report their starts."""
        if body.attempt.kind not in (JobKind.WORKFLOW, JobKind.STEP):
            return body
        attempt, inner = body.attempt, body.parts.step

        def seen(step: AnyStep) -> AnyStep:
            made = inner(step)

            def note(args: tuple[object, ...], kwargs: dict[str, object]) -> None:
                context = step_context()
                driven_run.set(attempt.run)
                begun = StartedAttempt(
                    job=attempt.job,
                    epoch=attempt.epoch,
                    run=attempt.run,
                    run_id=context.run_id,
                    call=context.idempotency_key.rpartition("/")[2],
                    step=step.name,
                    attempt=context.attempt,
                    arguments=step.form.encode(args, kwargs),
                    is_queued=attempt.kind is JobKind.STEP,
                )
                self._watch.observe_step_start(self._life.name, begun)

            return attrs.evolve(made, body=noting(made, note))

        guesses = GuessedLastSteps(f"{attempt.job}/{attempt.epoch}")
        return attrs.evolve(body, parts=attrs.evolve(body.parts, step=seen, last_steps=guesses))


@attrs.frozen(kw_only=True)
class Environment:
    """The environment that all processes of a simulation share."""

    store: SharedStore
    blobs: MemoryBlobStore
    wires: HintNetwork
    sinks: Mapping[str, SharedSink]
    watch: SimulationObserver
    hint_wait: float = 0.0
    topic_deliveries: int = DELIVER_LIMIT

    def engine(
        self,
        life: FaultyProcess,
        workflows: Sequence[WorkflowDefinition[object]],
        stubs: Substitute = unchanged,
        zones: ZoneTables | None = None,
    ) -> Engine:
        """Return the engine of one process, with this code and zone data. `stubs` replaces bodies."""
        clock = SimulatedClock(life)
        stores = Stores(
            persistence=SimulatedPersistence(life, self.store),
            transport=SimulatedTransport(life, self.wires, self.hint_wait),
            blobs=SimulatedBlobs(life, self.blobs),
            clock=clock,
            ids=SeededIds(life.random.getrandbits(64), clock),
            zones=zones,
        )
        observer = ObservingInterceptor(life, self.watch)
        core = Core(
            stores,
            workflows,
            namespace="default",
            migrate=True,
            interceptors=(observer,),
            listener=VirtualListener(stores),
        )
        core.host = life.name
        core.topic_deliveries = self.topic_deliveries
        return Engine(core, substitute=lambda body: observer.observed(stubs(body)))

    def sinks_of(self, life: FaultyProcess) -> dict[str, EventSink]:
        """Return the sinks for one process, by name."""
        return {name: SimulatedSink(life, sink) for name, sink in self.sinks.items()}


def connect(life: FaultyProcess, core: Core) -> None:
    """Connect to the store, with retries until it succeeds."""
    while True:
        try:
            core.connect()
        except HoldfastError:
            life.hub.sleep(_RETRY)
        else:
            return


@attrs.define
class _Running:
    """A running body with its event loop and, once it has started, its cancel scope."""

    loop: VirtualLoop
    scope: CancelScope | None = None
    is_cancelled: bool = False


class SimulatedWorker:
    """A worker: the real state machine and shell, with bodies in fibers."""

    def __init__(
        self,
        life: FaultyProcess,
        engine: Engine,
        settings: Settings,
        *,
        lease: float,
        sinks: Mapping[str, EventSink],
    ):
        self._life = life
        self._core = core = engine.core
        self._clock = core.stores.clock
        self.shell = WorkerShell(core, settings, lease=lease, sinks=sinks, substitute=engine.substitute)
        self._renewal = Renewal(
            core,
            lease=lease,
            sessions=lambda: self.shell.calls.sessions,
            lost=lambda: self._post(p.SessionLost()),
        )
        self._woken = WakeSignal(life.hub)
        self._running: dict[Attempt, _Running] = {}
        self._calls = 0
        self._renews = False
        self._drains = False

    def run(self) -> None:
        """Run until drained."""
        connect(self._life, self._core)
        stores = self._core.stores
        listener = ThreadedHintListener(
            stores.persistence, stores.transport, monotonic=self._clock.monotonic, starts=False
        )
        listener.add_worker(lambda: self._post(p.Woken()), self._notify)
        self._life.spawn(lambda: self._listen(listener))
        while True:
            if self._life.wants_to_end and not self._drains:
                self._drains = True
                self._post(p.Drain())
            for action in self.shell.step(self._clock.monotonic()):
                if isinstance(action, p.Finish):
                    self._leave()
                    return
                self._carry_out(action)
            if self.shell.has_inputs:
                self._life.hub.sleep(0)
                continue
            at = self.shell.machine.next_step()
            left = None if at is None else max(0.0, at - self._clock.monotonic())
            self._woken.wait(None if left is None else self._life.true_seconds(left))
            self._life.reach_idle_point()

    def _post(self, happened: p.Input) -> None:
        self.shell.post(happened)
        self._woken.set()

    def _notify(self, ended: frozenset[str], grew: frozenset[str]) -> None:
        for happened in self.shell.inputs_of_hints(self._running, ended, grew):
            self._post(happened)

    def _listen(self, listener: ThreadedHintListener) -> None:
        while True:
            if delay := listener.listen_once():
                self._life.hub.sleep(round(delay * 1_000_000))

    def _renew(self) -> None:
        wait = self._renewal.interval
        while True:
            self._clock.sleep(wait)
            wait = self._renewal.round()

    def _carry_out(self, action: p.Action) -> None:
        match action:
            case p.Start(attempt):
                body = self.shell.begin(attempt)
                running = self._running[attempt] = _Running(virtual_loop(self._life))
                self._life.spawn(lambda: running.loop.run_until_complete(self._run_body(body, running)))
            case p.Cancel(attempt):
                self._cancel(attempt)
            case _:
                if (call := self.shell.call(action)) is not None:
                    self._life.spawn(lambda: self._call(action, call))

    def _call(self, action: p.Action, call: Callable[[], CallResult]) -> None:
        self._calls += 1
        try:
            answer = call()
        finally:
            self._calls -= 1
        self.shell.answer(action, answer)
        self._woken.set()
        if isinstance(answer[0], p.SessionReady) and not self._renews:
            self._renews = True
            self._life.spawn(self._renew)

    async def _run_body(self, body: Body, running: _Running) -> None:
        settle: JobSettle | None = None
        scope = running.scope = CancelScope()
        if running.is_cancelled:
            scope.cancel()
        with scope:
            settle = await self.shell.attempts.run(body, CapacityLimiter(1))
        del self._running[body.attempt]
        self.shell.end(body, settle, cancelled=scope.cancel_called)
        self._woken.set()

    def _cancel(self, attempt: Attempt) -> None:
        if not self.shell.cancel(attempt):
            return
        running = self._running[attempt]
        running.is_cancelled = True
        if running.scope is not None:
            running.loop.call_soon_threadsafe(running.scope.cancel)

    def _leave(self) -> None:
        """Leave as a drained worker does, with a grace period for calls and bodies that still run."""
        for attempt in list(self._running):
            self._cancel(attempt)
        self.shell.calls.stop_flushing()
        until = self._clock.monotonic() + LEAVE_SECONDS
        while (self._calls or self._running) and self._clock.monotonic() < until:
            self._life.hub.sleep(100_000)
        settles, attempts = self.shell.last(self._clock.monotonic())
        self.shell.calls.leave(settles, attempts)
        self.shell.close()


class SimulatedFunction:
    """A serverless function that handles job messages from a queue one at a time, and is frozen in between."""

    def __init__(
        self,
        life: FaultyProcess,
        engine: Engine,
        queue: "MessageQueue",
        *,
        time_limit: float,
        function_cache: int,
    ) -> None:
        self._life = life
        self._queue = queue
        self._host = ServerlessHost(engine, time_limit=time_limit, function_cache=function_cache)

    def run(self) -> None:
        """Handle messages until the process is to end."""
        while not self._life.wants_to_end:
            message = self._queue.take(self._life)
            if message is None:
                self._life.reach_idle_point()
                continue
            self._life.log(
                f"MESSAGE {message.hint.job[-8:]} e{message.hint.epoch}, {message.deliveries} deliveries"
            )
            try:
                outcome = self._host.handle_job({"job_id": message.hint.job, "epoch": message.hint.epoch})
            except HoldfastError as error:
                self._life.log(f"MESSAGE failed: {type(error).__name__}")
                continue  # the message is redelivered after its visibility timeout
            self._dealt_with(message, outcome)
            if self._life.random.random() < _EXTRA:
                try:
                    self._host.process_available_jobs(max_jobs=3, concurrency=2)
                except HoldfastError as error:
                    self._life.log(f"PROCESSING failed: {type(error).__name__}")

    def _dealt_with(self, message: "QueuedMessage", outcome: JobOutcome) -> None:
        self._life.log(f"MESSAGE {outcome.status} {outcome.reason} again in {outcome.retry_after}")
        if outcome.acknowledge:
            self._queue.remove(message)
        elif outcome.retry_after is not None:
            self._queue.show_in(message, outcome.retry_after)


class SimulatedTimer:
    """A cron trigger that runs the maintenance tick of a serverless host every `interval` seconds."""

    def __init__(
        self,
        life: FaultyProcess,
        engine: Engine,
        *,
        time_limit: float,
        interval: float,
        sinks: Mapping[str, EventSink],
    ) -> None:
        self._life = life
        self._interval = interval
        self._host = ServerlessHost(engine, time_limit=time_limit, sinks=sinks)

    def run(self) -> None:
        """Tick until the process is to end."""
        while not self._life.wants_to_end:
            try:
                self._host.run_maintenance_tick()
            except HoldfastError as error:
                self._life.log(f"TICK failed: {type(error).__name__}")
            self._life.hub.sleep(round(self._interval * 1_000_000))


@attrs.define
class QueuedMessage:
    """A job hint in the queue; it is redelivered unless it is removed."""

    hint: JobHint
    visible_at: int
    deliveries: int = 0


class MessageQueue:
    """A message queue like SQS: at-least-once delivery, unordered, and messages are dropped after some deliveries."""

    def __init__(self, hub: Hub, *, visibility: float, deliveries_max: int) -> None:
        self._hub = hub
        self._visibility = round(visibility * 1_000_000)
        self._deliveries_max = deliveries_max
        self._messages: list[QueuedMessage] = []
        self._arrived = WakeSignal(hub)

    def put(self, hint: Hint) -> None:
        """Add a message for a job hint; ignore other hints."""
        if isinstance(hint, JobHint):
            self._messages.append(QueuedMessage(hint, self._hub.now))
            self._arrived.set()

    def take(self, life: FaultyProcess) -> QueuedMessage | None:
        """Return a random visible message. Without one, wait up to 5 s and return None."""
        life.check()
        self._messages = [one for one in self._messages if one.deliveries < self._deliveries_max]
        now = self._hub.now
        visible = [one for one in self._messages if one.visible_at <= now]
        if not visible:
            self._arrived.wait(5.0)
            return None
        message = life.random.choice(visible)
        message.deliveries += 1
        message.visible_at = now + self._visibility
        return message

    def remove(self, message: QueuedMessage) -> None:
        """Delete a message."""
        self._messages = [one for one in self._messages if one is not message]

    def show_in(self, message: QueuedMessage, seconds: float) -> None:
        """Make a message visible again after some seconds, without counting the delivery."""
        message.deliveries -= 1
        message.visible_at = self._hub.now + round(seconds * 1_000_000)


@attrs.frozen(kw_only=True)
class ClientAction:
    """An action of a client, `at` microseconds after the start of the simulation. `what` is its unique name.

    A client repeats it while the store is unavailable. If `is_keyed`, the action uses an idempotency key: some are
    repeated after a reply, and the reply must be the same. Other errors count as replies.
    """

    at: int
    what: str
    do: Callable[[SyncEngine], object]
    is_keyed: bool = False


class SimulatedClient:
    """A client that does its deeds in order. The deeds done are kept in the `Book`, which survives a crash."""

    def __init__(
        self, life: FaultyProcess, engine: Engine, deeds: Sequence[ClientAction], book: "ReplyLog"
    ) -> None:
        self._life = life
        self._engine = engine.sync
        self._core = engine.core
        self._deeds = deeds
        self._book = book

    def run(self) -> None:
        """Do the remaining deeds."""
        connect(self._life, self._core)
        for deed in self._deeds:
            if deed.what in self._book.done:
                continue
            wait = START + deed.at - self._life.hub.now
            if wait > 0:
                self._life.hub.sleep(wait)
            self._do(deed)
            if deed.is_keyed and self._life.random.random() < _AGAIN:
                self._do(deed)
            self._book.done.add(deed.what)

    def _do(self, deed: ClientAction) -> None:
        while True:
            try:
                answer, is_kept = str(deed.do(self._engine)), True
            except UnavailableError:
                self._life.hub.sleep(self._life.random.randrange(100_000, 3_000_000))
                continue
            except HoldfastError as error:
                answer, is_kept = f"{type(error).__name__}", False
            break
        self._life.log(f"DID {deed.what}: {answer}")
        self._book.answered(deed, answer, is_kept=is_kept)


class ReplyLog:
    """The deeds that clients have done, with the replies."""

    def __init__(self, watch: SimulationObserver) -> None:
        self.done: set[str] = set()
        self._watch = watch
        self._answers: dict[str, str] = {}

    def answered(self, deed: ClientAction, answer: str, *, is_kept: bool) -> None:
        """Check that a repeated deed with an idempotency key gets the same reply (I1, I2). Errors are not kept."""
        if not deed.is_keyed:
            return
        known = self._answers.get(deed.what, answer)
        if is_kept:
            self._answers[deed.what] = answer
        if known != answer:
            self._watch.report_violation(
                "I1", deed.what, f"expected the earlier reply, {known}, got {answer}"
            )
