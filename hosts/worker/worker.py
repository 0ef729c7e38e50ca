"""The long-running worker, and the ways to run it: as a process, in an existing event loop, beside a `with` block."""

import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Final, Self

import anyio
import attrs
from anyio import CancelScope
from anyio.abc import TaskGroup

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.execution.function_cache import FUNCTIONS_KEPT
from holdfast.hosts.execution.threads import in_thread, result_in_thread
from holdfast.hosts.maintenance.retention import checked_retention
from holdfast.hosts.worker.garbage_collection import collecting_seldom
from holdfast.hosts.worker.runner import WorkerRunner
from holdfast.hosts.worker.settings import MAINTENANCE_INTERVAL, Settings
from holdfast.hosts.worker.stop_signals import stop_signals
from holdfast.kernel.authoring.options import QUEUE_NAME
from holdfast.kernel.commands.names import NAME_MAX, text_fault
from holdfast.kernel.pipelines.plan import DEFAULT_QUEUE
from holdfast.ports.durations import NO_TIME, Duration
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.events import EventSink
from holdfast.ports.validation import SINK, Wanted, an, by_name, check, duration, integer, several

_ENDED: Final = "the worker stopped with an error; its jobs go to other workers when its lease expires"

ENGINE: Final = an("an Engine, as Engine.open(url, workflows=[...]) returns it", Engine, SyncEngine)
_NAME: Final = Wanted(
    f"a name of 1 to {NAME_MAX} characters",
    lambda value: isinstance(value, str) and text_fault(value, NAME_MAX, 1) is None,
)
_LEASE_MIN: Final = timedelta(seconds=1)

_log = logging.getLogger("holdfast.worker")


@attrs.frozen(kw_only=True)
class WorkerStats:
    """Counters of a worker since its first start, and its current state.

    Attributes:
        session: The id of its session; None after a start until one is open.
        phase: `running`, `draining`, `stopping` or `stopped`.
        running: Bodies that are running.
        unsettled: Bodies that have ended and whose result is not stored yet.
        claimed: Jobs that were claimed.
        started: Bodies that were started.
        settled: Results that were stored, failures included.
        failed: Attempts that failed.
        fenced: Results that came too late and were dropped, because the run had ended or the lease was lost.
        released: Attempts that were released.
        sessions_lost: Sessions that were lost.
        store_errors: Calls to the store that failed.
        commits: Claims that returned jobs, and batches of results that were stored.
        events: Events that sinks have accepted.
        dead_lettered: Streams that were dead-lettered: runs whose events a sink keeps refusing.
        blocked_seconds: For how long a body has blocked its event loop, in seconds; 0.0 if for less than a second.
    """

    session: str | None
    phase: str
    running: int
    unsettled: int
    claimed: int
    started: int
    settled: int
    failed: int
    fenced: int
    released: int
    sessions_lost: int
    store_errors: int
    commits: int
    events: int = 0
    dead_lettered: int = 0
    blocked_seconds: float = 0.0


class Worker:
    """Claims jobs of an engine's workflows, runs their bodies, settles their results.

    Once it has ended, it can be started again; it then has a new session. A start while it runs is refused with
    InvalidArgumentError.

    Args:
        engine: The engine whose workflows to run. Durations below are timedeltas or numbers of seconds.
        concurrency: How many bodies may run at once.
        queues: How many of these at most from single queues, by name. Stages and steps name their queues; the worker
            serves all queues that the engine's workflows name, and the default one.
        only_queues: Serve only these queues.
        lease: How long its session lasts without renewal, at least a second. Other workers take over the jobs of a lost
            worker after this time; a worker that cannot renew for so long loses its running attempts.
        poll_interval: How often an idle worker calls the store, approximately. Every second call claims jobs even
            without a hint; the calls between are renewal and maintenance.
        drain_grace: How long running bodies may finish when the worker is stopped.
        sinks: The sinks to deliver events to, by the names under which they are registered. Each is called in a thread
            of its own.
        retention: How long ended runs of the engine's namespace are kept, at least an hour; then they are removed, as
            by `remove` of their handles. None: until they are removed explicitly.
        function_cache: How many waiting durable functions stay in memory, so that they continue without a replay. If
            there are more, the one that has waited longest is evicted; it is replayed later.
        name: Its name in the worker registry, for people, such as that of its deployment; that of its machine if
            omitted.

    Raises:
        InvalidArgumentError: An argument is invalid.
    """

    def __init__(
        self,
        engine: Engine | SyncEngine,
        /,
        *,
        concurrency: int = 100,
        queues: Mapping[str, int] | None = None,
        only_queues: Iterable[str] | None = None,
        lease: Duration = 30.0,
        poll_interval: Duration = 1.0,
        drain_grace: Duration = 20.0,
        sinks: Mapping[str, EventSink] | None = None,
        retention: Duration | None = None,
        function_cache: int = FUNCTIONS_KEPT,
        name: str | None = None,
    ) -> None:
        check("Worker", ENGINE, engine=engine)
        check("Worker", integer(1), concurrency=concurrency)
        check("Worker", integer(0), function_cache=function_cache)
        check("Worker", _NAME.or_none, name=name)
        words = "a dict of limits by queue name, such as {'llm': 2}; only_queues takes only names"
        limits = by_name("Worker", "queues", queues or {}, words, integer(1))
        only = several("Worker", "only_queues", only_queues or (), "a list of queue names, such as ['llm']")
        for queue in (*limits, *only):
            check("Worker", QUEUE_NAME, queue=queue)
        lasts = duration("Worker", "lease", lease, _LEASE_MIN).total_seconds()
        poll = duration("Worker", "poll_interval", poll_interval).total_seconds()
        grace = duration("Worker", "drain_grace", drain_grace, NO_TIME).total_seconds()
        taken = by_name("Worker", "sinks", sinks or {}, "a dict of sinks by name", SINK)
        core = engine.core
        named = core.registry.queues(DEFAULT_QUEUE)
        served = only or tuple(dict.fromkeys((*named, *limits)))
        for queue in sorted({*served, *limits} - set(named)):
            _log.warning(
                "no stage or step of this engine names the queue %r: the worker finds jobs there only if runs are"
                " started with this queue",
                queue,
            )
        for function, child in core.registry.missing_children:
            _log.warning(
                "%s uses %s, which this engine does not have: its runs wait for a worker that has it; add it to"
                " Engine.open(..., workflows=[...]) if this worker should run it",
                function,
                child,
            )
        settings = Settings(
            definitions=core.registry.definitions,
            queues=served,
            concurrency=concurrency,
            limits=limits,
            poll_interval=poll,
            drain_grace=grace,
            maintenance_interval=min(MAINTENANCE_INTERVAL, lasts / 3),
            retention=None if retention is None else checked_retention("Worker", retention),
            function_cache=function_cache,
            name=name,
        )
        self._core = core
        self._new_runner = partial(
            WorkerRunner, core, settings, lease=lasts, sinks=taken, substitute=engine.substitute
        )
        self._driver = self._new_runner()
        self._was_started = False
        self._in_use = threading.Lock()
        self._background: TaskGroup | None = None
        self._ended: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None
        self._serving = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Own the process: event loop, SIGTERM, SIGINT and SIGHUP, drain. Returns when drained.

        The first signal drains; the second stops at once and releases nothing. SIGINT and SIGHUP stay ignored if they
        are, as under `nohup`. Python's garbage collector runs less often meanwhile, which saves a quarter of the
        processor time.
        """
        with self._use(), collecting_seldom():
            anyio.run(self._run_with_signals)

    async def serve(self) -> None:
        """Run in the current event loop until `drain` was called and everything has ended.

        Cancelling it cancels the running bodies and releases their jobs.
        """
        with self._use():
            await self._driver.serve()

    def drain(self) -> None:
        """Stop gracefully: claim no more jobs, let running bodies finish, release those that do not end in time.

        Safe from any thread. Before its first start: end as soon as it starts. After its end, this does nothing.
        """
        self._driver.drain()

    def stop(self) -> None:
        """Stop at once: cancel running bodies; their jobs are reaped when the session has expired.

        Safe from any thread. Before its first start and after its end, it does what `drain` does then.
        """
        self._driver.stop()

    def __enter__(self) -> Self:
        """Start the worker in a thread with its own event loop, beside the code in the `with` block.

        Raises the error that prevented the connection to the store.
        """
        self._begin()
        self._serving, self._failure = threading.Event(), None
        self._thread = threading.Thread(target=self._serve_in_thread, name="holdfast-worker")
        try:
            self._thread.start()
            self._serving.wait()
            if self._failure is not None:
                raise self._failure
        except BaseException:
            # It may be Ctrl-C: no `__exit__` would stop the thread, and the process would not end.
            self.drain()
            if self._thread.is_alive():
                self._thread.join()
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Drain. If the worker ended with an error and the block did not, raise that error in a group."""
        assert self._thread is not None
        self.drain()
        self._thread.join()
        self._end()
        if self._failure is not None and error is None:
            raise self._failure

    async def __aenter__(self) -> Self:
        """Start the worker beside the code in the `async with` block. Raises if it cannot connect."""
        self._begin()
        try:
            # The runner connects too, but its errors would cancel the block and be raised in a group after it.
            await result_in_thread(self._core.connect)
            self._ended = self._core.lifecycle.begin_worker()  # before the block begins
            self._background = anyio.create_task_group()
            await self._background.__aenter__()
        except BaseException:
            self._end()
            raise
        self._background.start_soon(self._serve_beside)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool | None:
        """Drain. An error that ended the worker cancels the block and is raised in a group."""
        assert self._background is not None
        self.drain()
        try:
            if isinstance(error, Exception):
                # The error of the block is raised as it is: the task group would wrap it. The worker's is logged.
                with suppress(Exception):
                    await self._background.__aexit__(None, None, None)
                return None
            return await self._background.__aexit__(kind, error, at)
        finally:
            with CancelScope(shield=True):
                await in_thread(self._ended)
            self._end()

    def stats(self) -> WorkerStats:
        """Return the counters of this worker. Safe from any thread."""
        runner = self._driver
        return WorkerStats(
            session=runner.calls.session,
            phase=runner.machine.phase,
            running=runner.machine.running,
            unsettled=runner.machine.unsettled,
            blocked_seconds=runner.blocked_seconds,
            **attrs.asdict(runner.counts),
        )

    @contextmanager
    def _use(self) -> Generator[None]:
        self._begin()
        try:
            yield
        finally:
            self._end()

    def _begin(self) -> None:
        """Begin a use of the worker, each with a runner of its own."""
        if not self._in_use.acquire(blocking=False):
            raise InvalidArgumentError(
                "worker",
                "this worker is already running: make another one, or start it again once it has ended",
            )
        try:
            if self._was_started:
                self._driver = self._new_runner(before=self._driver.counts)
            self._was_started = True
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        self._in_use.release()

    def _serve_in_thread(self) -> None:
        try:
            anyio.run(self._driver.serve, self._serving.set)
        except BaseException as error:  # noqa: BLE001  # raised again in the thread that started the worker
            self._failure = error
            if self._serving.is_set():
                _log.critical(_ENDED, exc_info=error)
        finally:
            self._serving.set()

    async def _serve_beside(self) -> None:
        try:
            await self._driver.serve()
        except Exception as error:
            _log.critical(_ENDED, exc_info=error)
            raise

    async def _run_with_signals(self) -> None:
        failure: Exception | None = None
        with anyio.open_signal_receiver(*stop_signals()) as signals:
            async with anyio.create_task_group() as group:
                group.start_soon(self._obey, signals)
                try:
                    await self._driver.serve()
                except Exception as error:  # noqa: BLE001  # raised below: the task group would wrap it
                    failure = error
                group.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _obey(self, signals: AsyncIterator[signal.Signals]) -> None:
        first = True
        async for number in signals:
            _log.warning(
                "%s: %s",
                signal.Signals(number).name,
                "draining: no new jobs are claimed, running attempts may end; a second signal stops at once"
                if first
                else "stopping at once",
            )
            if first:
                self.drain()
            else:
                self.stop()
            first = False
