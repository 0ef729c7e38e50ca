"""What all hosts share: adapters, kernel, registry of code, clock, and when they are open.

`Core` runs nothing itself. Whoever runs something (a client, a worker, a serverless host) makes its own parts from a
`Core`, and hands those to `own` that hold threads, event loops or functions in memory: they are renewed in a forked
child and closed with the engine.
"""

import _thread
import math
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from copy import copy
from functools import cached_property
from typing import Any, Final, Protocol, Self, TypeVar, runtime_checkable

from holdfast.hosts.wiring.ai_settings import AiSettings
from holdfast.hosts.wiring.hint_listener import HintListener, ThreadedHintListener
from holdfast.hosts.wiring.history_watch import RunListeners
from holdfast.hosts.wiring.input_loader import InputLoader
from holdfast.hosts.wiring.interceptors import Interceptor, around_dispatch, check_interceptors
from holdfast.hosts.wiring.lifecycle import Lifecycle
from holdfast.hosts.wiring.payloads import Payloads
from holdfast.hosts.wiring.registry import Registry
from holdfast.hosts.wiring.run_log import log_blocked
from holdfast.hosts.wiring.safe_logs import escape_logs
from holdfast.hosts.wiring.store_clock import StoreClock
from holdfast.hosts.wiring.stores import Stores, check_schema, host_name
from holdfast.hosts.wiring.wake_ups import WakeUps
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands.topics import DELIVER_LIMIT
from holdfast.kernel.dispatch.kernel import Executor, Kernel
from holdfast.kernel.dispatch.unreadable_runs import BlockedRun
from holdfast.kernel.pipelines.plan import Plan
from holdfast.ports.blobs import is_blob_key_part
from holdfast.ports.changes import Change
from holdfast.ports.clock import micros
from holdfast.ports.errors import STORE_ERRORS, EngineClosedError, InvalidNamespaceError
from holdfast.ports.process_forks import Renewable, renew_in_forks
from holdfast.ports.queries.store import StoreTime
from holdfast.ports.records.values import Micros
from holdfast.ports.transport import Reopenable
from holdfast.ports.validation import TEXT, TRUTH, an, check

T = TypeVar("T")

CLOCK_AGE_MAX: Final = 10.0
"""Seconds after which the store's time is read again before a decision depends on it."""

CLOCK_BEHIND_MAX: Final = 0.25
"""The maximum lag, in seconds, of a host's clock behind the store's after a sync that was answered in time."""

CLOCK_READS_MAX: Final = 3
"""How often the time is read from a store that answers slowly. A host must not wait for its clock only."""


@runtime_checkable
class Closable(Protocol):
    """A part that is closed with its engine."""

    def close(self) -> None:
        """Release what the part holds."""
        ...


NO_TRIGGERS_KNOWN: Final[tuple[frozenset[str], float]] = (frozenset(), -math.inf)
"""Which topics have triggers is to be looked up."""


class Core:
    """The stores, the kernel and the code of one engine. Synchronous. Connects at the first use."""

    def __init__(
        self,
        stores: Stores,
        workflows: Iterable[WorkflowDefinition[object]],
        *,
        steps: Iterable[Step[..., Any]] = (),
        namespace: str,
        migrate: bool,
        retry: Retry | None = None,
        ai: AiSettings | None = None,
        interceptors: Iterable[Interceptor] = (),
        listener: HintListener | None = None,
    ) -> None:
        check("Engine", TEXT, namespace=namespace)
        check("Engine", TRUTH, migrate=migrate)
        check("Engine", an("a Retry(...)", Retry).or_none, retry=retry)
        if not is_blob_key_part(namespace):
            raise InvalidNamespaceError(namespace)
        escape_logs()
        self.adapters = stores
        """The adapters, whether the engine is open or not."""
        self.namespace = namespace
        self.registry = Registry(workflows, steps, retry=retry)
        self.clock = StoreClock(stores.clock)
        self.payloads = Payloads(stores.blobs)
        self.inputs = InputLoader(stores.persistence, self.payloads)
        self.host = host_name()
        self.ai = ai or AiSettings()
        self.interceptors = check_interceptors(interceptors)
        self.run_notifier = RunListeners()
        """Notifies the functions that are driven in this process of new rows in their histories."""
        self._migrate = migrate
        self.applies_declarations = True
        """Whether the engine applies what its code declares when it connects. Off in commands that only use it."""
        self._on_connect: list[Callable[[], object]] = []
        self.topic_deliveries = DELIVER_LIMIT
        """Most deliveries of messages of topics in one transaction."""
        self.known_triggers = NO_TRIGGERS_KNOWN
        """The topics with triggers of this engine's workflows, and until when that is assumed, by its clock."""
        self._listener = listener
        self._ready = False
        self.lifecycle = Lifecycle(reopen=self._reopen, close=self._close)
        self._parts: list[object] = []
        self._lock = threading.Lock()
        self._wake_ups = None if stores.scheduler is None else WakeUps(stores.scheduler, self.clock.now)
        self._kernel = self.kernel_with(None)
        renew_in_forks(self)

    def own(self, part: T) -> T:
        """Return a part of a host, which from here on is renewed, reopened and closed with this engine."""
        self._parts.append(part)
        return part

    def disown(self, part: object) -> None:
        """Forget a part of a host that has ended and closed it: an engine may outlive many workers."""
        with suppress(ValueError):
            self._parts.remove(part)

    def renew(self) -> None:
        """Start anew in a forked child: threads, sessions and functions in memory are those of the parent."""
        self._lock = threading.Lock()
        self.host = host_name()
        self.run_notifier = RunListeners()
        parts = (self.lifecycle, self.clock, *self._parts, self._wake_ups, self.__dict__.get("listener"))
        for part in parts:
            if isinstance(part, Renewable):
                part.renew()

    @property
    def stores(self) -> Stores:
        """The adapters of an open engine. EngineClosedError."""
        self.lifecycle.check_open()
        return self.adapters

    @property
    def kernel(self) -> Kernel:
        """The kernel, once the store is ready."""
        self.connect()
        return self._kernel

    def with_plans(self, plans: Iterable[Plan]) -> Self:
        """Return these services with a kernel that starts runs of these plans, and of no others."""
        self.connect()
        core = copy(self)
        core._kernel = self._kernel_of(plans, None)
        return core

    def kernel_with(self, executor: Executor | None) -> Kernel:
        """Return a kernel on these stores that runs `job.execute` with this executor."""
        return self._kernel_of(self.registry.plans, executor)

    def _kernel_of(self, plans: Iterable[Plan], executor: Executor | None) -> Kernel:
        return Kernel(
            persistence=self.stores.persistence,
            clock=self.clock,
            ids=self.stores.ids,
            transport=self.stores.transport,
            plans=plans,
            zones=self.stores.zones,
            executor=executor,
            around=around_dispatch(self.interceptors),
            before_hints=self._resolve_waits,
            after=None if self._wake_ups is None else self._wake_ups.follow,
            blocked=_log_unreadable,
        )

    def _resolve_waits(self, changes: Sequence[Change]) -> None:
        """Resolve the waits of this process for the runs that a commit has changed.

        Waits of other processes are resolved by the hints of the commit, or within a second. This comes before the
        hints are sent, as this process receives them too, and would read what it knows.
        """
        listener = self.__dict__.get("listener")
        if isinstance(listener, ThreadedHintListener):
            listener.note(changes)

    @cached_property
    def listener(self) -> HintListener:
        """The listener for hints of the transport, or what replaces it."""
        return self._listener or ThreadedHintListener(self.adapters.persistence, self.adapters.transport)

    def in_namespace(self, namespace: str) -> Self:
        """Return these services for another namespace of the store. They share connections, and close with these.

        Raises InvalidNamespaceError.
        """
        if not is_blob_key_part(namespace):
            raise InvalidNamespaceError(namespace)
        if namespace == self.namespace:
            return self
        self.connect()
        assert self.listener is not None  # it is made once, for all namespaces
        core = copy(self)
        core.namespace, core.known_triggers = namespace, NO_TRIGGERS_KNOWN
        return core

    def observe(self, interceptor: Interceptor) -> None:
        """Wrap all further dispatches, and the bodies of workers that are made from here on, in one more interceptor.

        It is the outermost. Unlike those of the engine, it sees starts of several threads as the batches that they
        share. Not for engines that are in use.
        """
        self.interceptors = (*check_interceptors((interceptor,)), *self.interceptors)
        self._kernel = self.kernel_with(None)

    def open(self) -> None:
        """Connect; also after `close`. Each `open` needs a `close`."""
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
        if isinstance(self.listener, Renewable):
            self.listener.renew()
        for part in tuple(self._parts):
            if isinstance(part, Reopenable):
                part.reopen()

    def when_connected(self, function: Callable[[], object]) -> None:
        """Call a function once after the engine has connected and set up the tables; never with `migrate=False`."""
        if self._migrate:
            self._on_connect.append(function)

    def connect(self) -> None:
        """Make the store ready, once: its tables, its time, and what is declared. EngineClosedError."""
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
        # Outside of the lock: these functions use the engine. One that fails is called at the next connection again.
        while (function := self._next_on_connect()) is not None:
            try:
                function()
            except BaseException:
                self._on_connect.insert(0, function)
                self._ready = False
                raise

    def _next_on_connect(self) -> Callable[[], object] | None:
        with self._lock:
            return self._on_connect.pop(0) if self._on_connect and self.applies_declarations else None

    def sync_clock(self) -> None:
        """Read the store's time; up to `CLOCK_READS_MAX` times if the answer is too slow to be precise.

        A machine that stands still meanwhile has a monotonic clock that stands still, too; its wall clock does not.
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
        """Read the store's time if that was not done for `age_max` seconds, or the machine slept since."""
        if not self.clock.is_trusted(age_max):
            self.sync_clock()

    def trusted_now(self) -> Micros:
        """Return the time of a clock that has not stood still since its last sync. Not for an event loop's thread.

        A function that starts to sleep by another clock sleeps too short. If the store is away, the host's clock
        stands in.
        """
        with suppress(*STORE_ERRORS):
            self.trust_clock(2 * CLOCK_AGE_MAX)
        return micros(self.clock.now())

    def close(self) -> None:
        """Close all connections, once every opener has closed the engine and its workers have ended.

        Later uses raise EngineClosedError until the engine is opened again.
        """
        self.lifecycle.close()

    def close_when_dropped(self, *, closes_transport: bool) -> None:
        """Close the connections, too, once nothing holds this engine or a copy of it. For a store that is its own.

        The threads of the store, the transport and the listener do not hold the engine.
        """
        listener = self.listener
        assert isinstance(listener, ThreadedHintListener)
        stop = listener.close if closes_transport else listener.stop
        # All copies of the engine share the lifecycle.
        dropped = weakref.finalize(
            self.lifecycle, _close_in_thread, listener, stop, self.adapters.persistence.close
        )
        dropped.atexit = False

    def _close(self) -> None:
        self._ready = False
        for part in tuple(self._parts):
            if isinstance(part, Closable):
                part.close()
        self.listener.close()
        self.adapters.transport.close()
        self.adapters.persistence.close()


def _log_unreadable(blocked: BlockedRun) -> None:
    run = blocked.run
    named = run if run.id else run._replace(id=run.key)  # the id may be what can't be read
    log_blocked(named, blocked.error.code, str(blocked.error))


def _close_in_thread(listener: ThreadedHintListener, *closings: Callable[[], None]) -> None:
    """Call functions in a thread, unless the listener is closed. For the garbage collector, which interrupts any code.

    So it waits for nothing and takes no lock, not even those that the start of a `threading.Thread` takes.
    """

    def close() -> None:
        with ExitStack() as stack:  # calls all, whatever one of them raises
            for function in reversed(closings):
                stack.callback(function)

    def start() -> None:
        # Only a `Thread` leaves no trace in `threading.enumerate()`.
        with suppress(RuntimeError):
            threading.Thread(target=close, name="holdfast-closing", daemon=True).start()

    if not listener.is_closed:
        with suppress(RuntimeError):  # the interpreter ends
            _thread.start_new_thread(start, ())
