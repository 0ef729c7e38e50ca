"""The long-running worker: carries out what its machine decides, with an event loop and threads."""

import logging
import math
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio
import attrs
from anyio import CancelScope, CapacityLimiter, lowlevel, to_thread
from anyio.abc import TaskGroup

from holdfast.hosts.bodies import Body
from holdfast.hosts.engine import Engine, SyncEngine
from holdfast.hosts.process import protocol as p
from holdfast.hosts.process.calls import StoreCalls
from holdfast.hosts.process.machine import WorkerMachine
from holdfast.hosts.process.renewal import Renewal
from holdfast.hosts.process.running import run_body
from holdfast.hosts.process.settings import MAINTENANCE_INTERVAL, Settings
from holdfast.hosts.process.threads import make_in_thread
from holdfast.kernel.commands import Attempt, JobSettle
from holdfast.kernel.plan import DEFAULT_QUEUE

T = TypeVar("T")

LEAVE_SECONDS: Final = 5.0
"""How long a worker that ends waits for the store, which may be away, before it leaves its jobs to the reaper."""

_ENDED: Final = "an error has ended the worker; what it held is given to others when its lease has run out"

_log = logging.getLogger("holdfast.worker")


@attrs.frozen(kw_only=True)
class WorkerStats:
    """What a worker has done since it began, and what it does now.

    `fenced` counts the results that came too late and were not taken: its run had ended, or its attempt was lost.
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


class Worker:
    """Claims jobs of an engine's workflows, runs their bodies, settles their results.

    Args:
        engine: Whose workflows to run.
        concurrency: How many bodies may run at once.
        queues: How many of these at most from single queues. Stages name their queues; all that the engine's
            workflows name are served, and the default one.
        only_queues: Serve just these queues.
        lease: Seconds that its session lasts without renewal, at least 1. A worker that is lost is noticed after
            that; one that can't renew for so long loses what it runs.
        poll_interval: Seconds in which an idle worker calls the store about once. Every second time it asks for work,
            though nothing told it of any; between them come renewal and maintenance.
        drain_grace: Seconds that running bodies are given to end when the worker is told to stop.
    """

    def __init__(
        self,
        engine: Engine | SyncEngine,
        /,
        *,
        concurrency: int = 100,
        queues: Mapping[str, int] | None = None,
        only_queues: tuple[str, ...] | None = None,
        lease: float = 30.0,
        poll_interval: float = 1.0,
        drain_grace: float = 20.0,
    ) -> None:
        if concurrency < 1 or any(limit < 1 for limit in (queues or {}).values()):
            raise ValueError("concurrency and the limits of queues are at least 1")
        if not (math.isfinite(lease) and lease >= 1 and poll_interval > 0 and drain_grace >= 0):
            raise ValueError("lease is at least 1 s, poll_interval more than 0, drain_grace not negative")
        core = engine.core
        served = only_queues or tuple(dict.fromkeys((*core.registry.queues(DEFAULT_QUEUE), *(queues or {}))))
        settings = Settings(
            definitions=core.registry.definitions,
            queues=served,
            concurrency=concurrency,
            limits=dict(queues or {}),
            poll_interval=poll_interval,
            drain_grace=drain_grace,
            maintenance_interval=min(MAINTENANCE_INTERVAL, lease / 3),
        )
        self._core = core
        self._machine = WorkerMachine(settings)
        self._calls = StoreCalls(core, lease=lease)
        self._renewal = Renewal(
            core,
            lease=lease,
            sessions=lambda: self._calls.sessions,
            lost=lambda: self._post_from_thread(p.SessionLost()),
        )
        self._threads = CapacityLimiter(concurrency)
        self._db_threads = CapacityLimiter(8)
        self._inputs: list[p.Input] = []
        self._woken: anyio.Event | None = None
        self._bodies: dict[Attempt, Body] = {}
        self._ended: dict[tuple[str, int], Body] = {}
        self._scopes: dict[Attempt, CancelScope] = {}
        self._store_calls: set[CancelScope] = set()
        self._leave_by = math.inf
        self._group: TaskGroup | None = None
        self._background: TaskGroup | None = None
        self._thread: threading.Thread | None = None
        self._serving = threading.Event()
        self._failure: BaseException | None = None
        self._stopped = False

    # Running ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Own the process: event loop, SIGTERM and SIGINT, drain. Returns when drained.

        The first signal drains; the second stops at once, without giving anything back.
        """
        anyio.run(self._run_with_signals)

    async def serve(self) -> None:
        """Work in a loop that is someone else's, until `drain` has been called and all is done.

        Cancelling it cancels what runs, and gives it back.
        """
        await to_thread.run_sync(self._core.connect)
        self._woken = anyio.Event()
        self._renewal.watch_loop()
        self._core.listener.add_worker(self._wake, self._doubt)
        self._serving.set()
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                await self._drive()
        finally:
            self._core.listener.remove_worker(self._wake)
            self._renewal.stop()
            if not self._stopped:
                # What has happened since the machine was last asked: bodies have ended, a claim has come back.
                last = self._machine.step(self._core.stores.clock.monotonic(), self._inputs)
                settles, attempts = self._machine.leave()
                attempts += tuple(
                    attempt for action in last if isinstance(action, p.Release) for attempt in action.attempts
                )
                with CancelScope(shield=True):
                    await self._in_thread(lambda: self._calls.leave(settles, attempts), LEAVE_SECONDS)

    def drain(self) -> None:
        """Stop gently: take no new work, let what runs end, give back what does not end in time."""
        self._post(p.Drain())

    def stop(self) -> None:
        """Stop at once: cancel what runs; the reaper will give it to others."""
        self._stopped = True
        self._post(p.Stop())

    def __enter__(self) -> Self:
        """Work in a thread, with an event loop of its own, beside the code in the `with` block.

        Raises what keeps it from connecting.
        """
        self._thread = threading.Thread(target=self._serve_in_thread, name="holdfast-worker")
        self._thread.start()
        self._serving.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Drain. If an error has ended the worker, and there was none in the block, raise it in a group."""
        assert self._thread is not None
        self._post_from_thread(p.Drain())
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    async def __aenter__(self) -> Self:
        """Work beside the code in the `async with` block. Raises what keeps it from connecting."""
        # `serve` does it too, but in the group, which would cancel the block and raise a group of errors after it.
        await to_thread.run_sync(self._core.connect)
        self._background = anyio.create_task_group()
        await self._background.__aenter__()
        self._background.start_soon(self._serve_beside)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool | None:
        """Drain. An error that has ended the worker cancels the block, and is raised in a group."""
        assert self._background is not None
        self.drain()
        if isinstance(error, Exception):
            # It is none of the worker's, and goes on as it is: the task group would wrap it. The worker's is logged.
            with suppress(Exception):
                await self._background.__aexit__(None, None, None)
            return None
        return await self._background.__aexit__(kind, error, at)

    def stats(self) -> WorkerStats:
        """Return counts of what this worker has done. Safe from any thread."""
        counts = self._calls.counts
        return WorkerStats(
            session=self._calls.session,
            phase=self._machine.phase,
            running=self._machine.running,
            unsettled=self._machine.unsettled,
            claimed=counts.claimed,
            started=counts.started,
            settled=counts.settled,
            failed=counts.failed,
            fenced=counts.fenced + self._machine.late,
            released=counts.released,
            sessions_lost=counts.sessions_lost,
            store_errors=counts.store_errors,
            commits=counts.commits,
        )

    def _serve_in_thread(self) -> None:
        try:
            anyio.run(self.serve)
        except BaseException as error:  # noqa: BLE001  # it is raised again in the thread of whoever began it
            self._failure = error
            if self._serving.is_set():
                _log.critical(_ENDED, exc_info=error)
        finally:
            self._serving.set()

    async def _serve_beside(self) -> None:
        try:
            await self.serve()
        except Exception as error:
            _log.critical(_ENDED, exc_info=error)
            raise

    async def _run_with_signals(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._obey_signals)
            await self.serve()
            group.cancel_scope.cancel()

    async def _obey_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            first = True
            async for number in signals:
                _log.warning(
                    "%s: %s", signal.Signals(number).name, "draining" if first else "stopping at once"
                )
                if first:
                    self.drain()
                else:
                    self.stop()
                first = False

    # The machine ------------------------------------------------------------------------------------------------

    async def _drive(self) -> None:
        clock = self._core.stores.clock
        assert self._woken is not None
        while True:
            inputs, self._inputs = self._inputs, []
            for action in self._machine.step(clock.monotonic(), inputs):
                if isinstance(action, p.Finish):
                    self._finish()
                    return
                self._carry_out(action)
            if self._inputs:
                # Bodies that were just started run before the next decision: so their ends are settled together.
                await lowlevel.checkpoint()
                continue
            at = self._machine.next_step()
            with anyio.move_on_after(None if at is None else max(0.0, at - clock.monotonic())):
                await self._woken.wait()
            self._woken = anyio.Event()

    def _carry_out(self, action: p.Action) -> None:
        assert self._group is not None
        match action:
            case p.Start(attempt):
                body = self._bodies.pop(attempt)
                self._calls.counts.started += 1
                self._calls.said[attempt] = body.runtime
                self._scopes[attempt] = CancelScope()
                self._group.start_soon(self._run, body)
            case p.Cancel(attempt):
                self._cancel(attempt)
            case p.Finish():
                pass
            case _:
                self._group.start_soon(self._call, action)

    async def _call(self, action: p.Action) -> None:
        """Do what an action asks of the store, in a thread, and tell the machine what came of it."""
        match action:
            case p.OpenSession():
                happened = await self._in_thread(self._calls.open_session)
            case p.Claim():
                claimed = await self._in_thread(lambda: self._calls.claim(action))
                if claimed is None:
                    return
                happened, bodies = claimed
                self._bodies.update((body.attempt, body) for body in bodies)
            case p.Settle(settles):
                ended = {key: self._ended[key] for key in map(_key, settles) if key in self._ended}
                settled = await self._in_thread(lambda: self._calls.settle(action, ended))
                if settled is None:
                    return
                happened, bodies = settled
                self._bodies.update((body.attempt, body) for body in bodies)
                if isinstance(happened, p.Settled):
                    for key in ended:
                        del self._ended[key]
            case p.Heartbeat(attempts):
                happened = await self._in_thread(lambda: self._calls.heartbeat(action, attempts))
            case p.Sweep():
                happened = await self._in_thread(lambda: self._calls.sweep(action))
            case p.WakeDue():
                happened = await self._in_thread(lambda: self._calls.wake_due(action))
            case p.Release(attempts):
                with CancelScope(shield=True):  # it may be the last thing that this worker does
                    await self._in_thread(lambda: self._calls.release(attempts))
                return
            case _:
                return
        if happened is None:
            return
        if isinstance(happened, p.SessionReady):
            self._renewal.start()
        self._post(happened)

    async def _run(self, body: Body) -> None:
        attempt = body.attempt
        settle: JobSettle | None = None
        scope = self._scopes[attempt]
        with scope:
            settle = body.settle(await run_body(body, self._threads))
        del self._scopes[attempt], self._calls.said[attempt]
        if settle is not None and not scope.cancel_called:
            self._ended[_key(settle)] = body
        self._post(p.Ended(attempt, settle))

    def _cancel(self, attempt: Attempt) -> None:
        self._ended.pop(_key(attempt), None)
        if attempt in self._scopes:
            self._calls.said[attempt].cancel()
            self._scopes[attempt].cancel()

    def _finish(self) -> None:
        for attempt in list(self._scopes):
            self._cancel(attempt)
        assert self._group is not None
        self._group.cancel_scope.cancel()
        self._leave_by = anyio.current_time() + (0.0 if self._stopped else LEAVE_SECONDS)
        for scope in tuple(self._store_calls):
            scope.deadline = self._leave_by

    async def _in_thread(self, call: Callable[[], T], seconds: float | None = None) -> T | None:
        """Run a call in a thread. Once it runs it is waited for whatever happens: so is a transaction that was sent.

        Only when the worker ends the call is left behind after a while, and at once if it was told to stop at once: the
        store may be away. Then there is no result, and None is returned.
        """
        results: list[T] = []
        errors: list[BaseException] = []

        def make() -> None:
            try:
                results.append(call())
            except BaseException as error:  # noqa: BLE001  # it is raised again where the call is awaited
                errors.append(error)

        async with self._db_threads:
            deadline = self._leave_by if seconds is None else anyio.current_time() + seconds
            with CancelScope(shield=True, deadline=deadline) as scope:
                self._store_calls.add(scope)
                try:
                    await make_in_thread(make)
                finally:
                    self._store_calls.discard(scope)
        if errors:
            raise errors[0]
        return results[0] if results else None

    # Inputs -----------------------------------------------------------------------------------------------------

    def _post(self, happened: p.Input) -> None:
        self._inputs.append(happened)
        if self._woken is not None:
            self._woken.set()

    def _wake(self) -> None:
        self._post_from_thread(p.Woken())

    def _doubt(self, runs: frozenset[str]) -> None:
        # Most runs that end are none of this worker's, and cost its loop nothing.
        if any(attempt.run in runs for attempt in tuple(self._scopes)):
            self._post_from_thread(p.RunsEnded(runs))

    def _post_from_thread(self, happened: p.Input) -> None:
        self._renewal.in_loop(lambda: self._post(happened))


def _key(one: JobSettle | Attempt) -> tuple[str, int]:
    return one.job, one.epoch
