"""What every host is made of: the stores, the kernel, the code, and the thread that listens."""

import hashlib
import logging
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, TypeVar, cast

from holdfast.hosts.client.start_batcher import GroupCommit
from holdfast.hosts.client.start_commands import Starting, check_call
from holdfast.hosts.execution.ai_call_log import AiSettings
from holdfast.hosts.execution.attempt_log import log_unreadable
from holdfast.hosts.execution.event_loops import KeptLoop
from holdfast.hosts.execution.function_cache import FunctionCache
from holdfast.hosts.execution.off_loop import drive_away
from holdfast.hosts.execution.prepared_attempts import Bodies
from holdfast.hosts.execution.threads import starts
from holdfast.hosts.functions.replay_cache import Followers
from holdfast.hosts.maintenance.child_results import Endings
from holdfast.hosts.wiring.hint_listener import Listener, Listening
from holdfast.hosts.wiring.input_loader import Inputs
from holdfast.hosts.wiring.interceptors import (
    Interceptor,
    around_bodies,
    around_dispatch,
    check_interceptors,
)
from holdfast.hosts.wiring.lifecycle import Lifecycle
from holdfast.hosts.wiring.payloads import Payloads, Place
from holdfast.hosts.wiring.registry import Registry
from holdfast.hosts.wiring.safe_logs import escape_logs
from holdfast.hosts.wiring.store_clock import StoreClock
from holdfast.hosts.wiring.stores import Stores, check_schema, host_name
from holdfast.hosts.wiring.wake_ups import WakeUps
from holdfast.kernel.authoring.calls import Call, Definition
from holdfast.kernel.authoring.options import StartAllOptions, StartOptions, check_options
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import ChannelMessage, Command, JobsAdmitted, RunCreate, RunRemoved
from holdfast.kernel.dispatch.kernel import Executor, Kernel
from holdfast.ports.blobs import is_blob_key_part
from holdfast.ports.clock import micros
from holdfast.ports.errors import (
    STORE_ERRORS,
    CommandError,
    EngineClosedError,
    HoldfastError,
    InvalidNamespaceError,
    RunNotFoundError,
    UnknownWorkflowError,
)
from holdfast.ports.persistence import FindRun, StoreTime
from holdfast.ports.process_forks import Renewable, renew_in_forks
from holdfast.ports.records import TERMINAL, Micros, Payload, RunName
from holdfast.ports.transport import Reopenable
from holdfast.ports.validation import TEXT, TRUTH, check

R = TypeVar("R")

_log = logging.getLogger("holdfast.engine")

CLOCK_AGE_MAX: Final = 10.0
"""Seconds after which the store's time is asked for again before anything is decided by it."""

CLOCK_BEHIND_MAX: Final = 0.25
"""Seconds by which a host's clock may be behind the store's after it was synced, if the store answers in time."""

CLOCK_READS_MAX: Final = 3
"""How often a store is asked that is slow to answer: hosts must not wait for their clocks only."""


class Core:
    """Wires stores, kernel and code together. Sync; used by every host. Connects when it is first used."""

    def __init__(
        self,
        stores: Stores,
        workflows: Iterable[Definition[object]],
        *,
        steps: Iterable[Step[..., Any]] = (),
        namespace: str,
        migrate: bool,
        ai: AiSettings | None = None,
        interceptors: Iterable[Interceptor] = (),
        listener: Listening | None = None,
    ) -> None:
        check("Engine", TEXT, namespace=namespace)
        check("Engine", TRUTH, migrate=migrate)
        if not is_blob_key_part(namespace):
            raise InvalidNamespaceError(namespace)
        escape_logs()
        self.adapters = stores
        """What it was made of, whether it is open or not."""
        self.namespace = namespace
        self.registry = Registry(workflows, steps)
        self.clock = StoreClock(stores.clock)
        self.payloads = Payloads(stores.blobs)
        self.inputs = Inputs(stores.persistence, self.payloads)
        self.host = host_name()
        self._ai = ai or AiSettings()
        self._interceptors = check_interceptors(interceptors)
        self._migrate = migrate
        self._listener = listener
        self._ready = False
        self.lifecycle = Lifecycle(reopen=self._reopen, close=self._close)
        self._caches: list[FunctionCache] = []
        self.followers = Followers()
        """The functions that were replayed to be looked at."""
        self._loops: list[KeptLoop] = []
        self._lock = threading.Lock()
        self._wake_ups = None if stores.scheduler is None else WakeUps(stores.scheduler, self.clock.now)
        self._kernel = self.kernel_with(None)
        self._starting = Starting(namespace, self.registry, self.stored)
        self._has_around = around_dispatch(self._interceptors) is not None
        self._starts = GroupCommit(self._kernel.dispatch_many)
        renew_in_forks(self)

    def renew(self) -> None:
        """Begin anew in a forked child, whose parent has the threads, the sessions and the functions in memory."""
        self._lock = threading.Lock()
        self.host = host_name()
        self.__dict__.pop("bodies", None)
        parts = (self.lifecycle, self._starts, self.clock, self.followers, *self._caches, *self._loops)
        for part in (*parts, self._wake_ups, self.__dict__.get("listener")):
            if part is not None and isinstance(part, Renewable):
                part.renew()

    @property
    def stores(self) -> Stores:
        """The adapters, for what uses them. EngineClosedError."""
        self.lifecycle.check_open()
        return self.adapters

    @property
    def kernel(self) -> Kernel:
        """The kernel, of a store that is ready."""
        self.connect()
        return self._kernel

    def kernel_with(self, executor: Executor | None) -> Kernel:
        """Return a kernel on these stores that carries out job.execute with this executor."""
        return Kernel(
            persistence=self.stores.persistence,
            clock=self.clock,
            ids=self.stores.ids,
            transport=self.stores.transport,
            plans=self.registry.plans,
            executor=executor,
            around=around_dispatch(self._interceptors),
            after=None if self._wake_ups is None else self._wake_ups.follow,
            blocked=log_unreadable,
        )

    @cached_property
    def listener(self) -> Listening:
        """The thread that hears what the transport says, or what stands in for it."""
        return self._listener or Listener(self.adapters.persistence, self.adapters.transport)

    @cached_property
    def bodies(self) -> Bodies:
        """What runs attempts."""
        return Bodies(
            registry=self.registry,
            persistence=self.stores.persistence,
            inputs=self.inputs,
            payloads=self.payloads,
            clock=self.clock,
            trusted_now=self.trusted_now,
            host=self.host,
            interceptors=around_bodies(self._interceptors),
            ai=self._ai,
            kernel=self._kernel,
        )

    @cached_property
    def endings(self) -> Endings:
        """What tells runs of the ends of others."""
        return Endings(self.inputs, self.payloads)

    def deliver_ends(self) -> int:
        """Tell runs of the ends of others that they wait for, or are children of; return how many ends."""
        return self.endings.deliver_all(self.kernel)

    def open(self) -> None:
        """Connect; also again, after `close`. It is to be closed as often as it was opened."""
        self.lifecycle.open()
        try:
            self.connect()
        except BaseException:
            self.close()
            raise

    def _reopen(self) -> None:
        transport = self.adapters.transport
        if not isinstance(transport, Reopenable):
            what = f"the engine is closed, and {transport!r} can't be opened again"
            raise EngineClosedError(what, "open another one with `Engine.on`")
        transport.reopen()
        for part in (self.listener, self.followers, *self._caches):
            if isinstance(part, Renewable):
                part.renew()

    def connect(self) -> None:
        """Make the store ready, once: its tables, and its time. EngineClosedError."""
        if self._ready:
            return
        with self._lock:
            if not self._ready:
                if self._migrate:
                    self.stores.persistence.setup()
                else:
                    check_schema(self.stores)
                self.sync_clock()
                self._ready = True

    def sync_clock(self) -> None:
        """Ask the store what time it is; again, but not for ever, if the answer took so long that it says little.

        A machine that stands still meanwhile has a monotonic clock that does so, too; its wall clock goes on.
        """
        machine = self.stores.clock
        for _ in range(CLOCK_READS_MAX):
            read_at, wall_at = machine.monotonic(), machine.now()
            time = self.stores.persistence.read(StoreTime())
            took = max(machine.monotonic() - read_at, (machine.now() - wall_at).total_seconds())
            self.clock.sync(time, took=took)
            if self.clock.behind_by <= CLOCK_BEHIND_MAX:
                return

    def trust_clock(self, age_max: float) -> None:
        """Ask the store what time it is, if that was not done for so many seconds, or the machine slept since."""
        if not self.clock.is_trusted(age_max):
            self.sync_clock()

    def trusted_now(self) -> Micros:
        """Return what time it is, by a clock that has not stood still since it was synced. Not where a loop runs.

        A function that begins to sleep by another sleeps too short. If the store is away, nothing better is known.
        """
        with suppress(*STORE_ERRORS):
            self.trust_clock(2 * CLOCK_AGE_MAX)
        return micros(self.clock.now())

    def create(self, call: Call[object], options: StartOptions) -> RunCreate:
        """Return the command that starts a call. Bad options and values are refused here, before anything is stored."""
        check_call(call)
        check_options(cast("dict[str, object]", options), StartOptions, "start")
        (command,) = self._starting.commands(((call, options.get("idempotency_key")),), options)
        return command

    def create_all(self, calls: Iterable[Call[object]], options: StartAllOptions) -> list[RunCreate]:
        """Return the commands that start calls, as `create`, with options that were checked.

        With an idempotency key the n-th has that with `/n`.
        """
        key = options.get("idempotency_key")
        keyed = ((call, None if key is None else f"{key}/{number}") for number, call in enumerate(calls))
        return self._starting.commands(keyed, cast("StartOptions", options))

    def dispatch(self, command: Command[R]) -> R:
        """Carry out a command, and what follows from it. Raises what `Kernel.dispatch` does."""
        self.trust_clock(CLOCK_AGE_MAX)
        reply = self._dispatched(command)
        self.follow_up(reply)
        return reply

    def _dispatched(self, command: Command[R]) -> R:
        # What starts a run waits for nobody, so it can go with others. What is put around dispatches, by tracing say,
        # is to see each in the context of whoever asked for it.
        goes_along = _is_start(command) and not self._has_around and starts.get() is None
        kernel = self.kernel
        return self._starts.dispatch(command) if goes_along else kernel.dispatch(command)

    def dispatch_all(self, commands: Sequence[Command[R]]) -> list[R]:
        """Carry out commands as `Kernel.dispatch_many` does, and what follows. The first refusal is raised."""
        self.trust_clock(CLOCK_AGE_MAX)
        replies: list[R] = []
        refused: list[CommandError] = []
        for answer in self.kernel.dispatch_many(commands):
            if isinstance(answer, CommandError):
                refused.append(answer)
            else:
                replies.append(answer)
        self.follow_up(*replies)
        if refused:
            raise refused[0]
        return replies

    def follow_up(self, *replies: object) -> tuple[Micros, ...]:
        """Let in what may be let in after these replies, tell of ends, and forget the blobs of runs that are no more.

        That fails quietly: what was asked for is done, and maintenance does the same. Returns when jobs wake that wait
        under rate limits, for whoever can wake them in time: maintenance does it somewhat later.
        """
        wakes_at: tuple[Micros, ...] = ()
        try:
            admitted = self.kernel.admit(self.namespace, replies)
            wakes_at = tuple(
                at for reply in admitted if isinstance(reply, JobsAdmitted) for at in reply.wakes_at
            )
            if any(getattr(reply, "has_deliveries", False) for reply in replies):
                self.deliver_ends()
        except HoldfastError as error:
            _log.warning("what follows from a command is left to maintenance: %s", error)
        for reply in replies:
            if isinstance(reply, RunRemoved):
                self._forget(reply)
        return wakes_at

    def _forget(self, removed: RunRemoved) -> None:
        try:
            self.payloads.forget(self.namespace, removed.runs, removed.inputs)
        except Exception as error:  # noqa: BLE001  # whatever a blob store raises: the run is removed
            _log.warning("blobs of removed runs %s are left: %s", ", ".join(removed.runs), error)

    def pipeline(self, workflow: str, version: str | None) -> Any:  # its types are the user's
        """Return a pipeline by name. UnknownWorkflowError."""
        pipeline = self.registry.pipeline(workflow, version)
        if pipeline is None:
            raise UnknownWorkflowError(workflow, version)
        return pipeline

    def function_cache(self, size: int) -> FunctionCache:
        """Return what keeps so many functions in memory, for one host. It is closed when this is, at the latest."""
        self._caches.append(FunctionCache(size))
        return self._caches[-1]

    def kept_loop(self) -> KeptLoop:
        """Return an event loop that stays, for one host. It is closed when this is."""
        self._loops.append(KeptLoop())
        return self._loops[-1]

    def close(self) -> None:
        """Give up all connections, once all have closed it that opened it, and its workers have ended.

        Whatever uses it then raises EngineClosedError, until it is opened again.
        """
        self.lifecycle.close()

    def _close(self) -> None:
        """Stop listening, take functions out of memory, and give up all connections."""
        self._ready = False
        for cache in self._caches:
            cache.close()
        drive_away(self.followers.close)
        for loop in self._loops:
            loop.close()
        self.listener.close()
        self.adapters.transport.close()
        self.adapters.persistence.close()

    def sent(self, signal: Signal, idempotency_key: str | None, run_id: str) -> ChannelMessage:
        """Return what is to be stored of a message for a run. It is checked where the code of the run is known.

        SignalRefusedError, InvalidValueError, RunNotFoundError.
        """
        return self._starting.sent(signal, idempotency_key, run_id, lambda: self._code_of(run_id))

    def _code_of(self, run_id: str) -> Definition[object] | None:
        self.connect()
        run = self.stores.persistence.read(FindRun(RunName(self.namespace, run_id)))
        if run is None:
            raise RunNotFoundError(run_id)
        return None if run.status in TERMINAL else self.registry.pipeline(run.workflow, run.version)

    def stored(self, text: str, what: str, idempotency_key: str | None) -> Payload:
        """Return the payload of what a run is given: `what` it is, in a word."""
        if self.payloads.stay_inline(text):
            return Payload(inline=text)
        # Starting, or sending, again with the same key must be the same command, blob and all.
        run = _digest(idempotency_key) if idempotency_key else self.stores.ids.new()
        place = Place(namespace=self.namespace, run=run, stage=what, epoch=0)
        return self.payloads.put(text, place)


def _is_start(command: object) -> bool:
    return isinstance(command, RunCreate)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
