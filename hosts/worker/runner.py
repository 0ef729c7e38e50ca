"""The host of a worker on an event loop: runs bodies there and in threads, and calls the store in threads."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from operator import add
from typing import Final, TypeVar

import anyio
import attrs
from anyio import CancelScope, CapacityLimiter, lowlevel
from anyio.abc import TaskGroup

from holdfast.hosts.execution.attempt_runtime import AttemptRuntime
from holdfast.hosts.execution.bodies import Body, Substitute, unchanged
from holdfast.hosts.execution.caught_calls import CaughtCall
from holdfast.hosts.execution.threads import make_in_thread, result_in_thread
from holdfast.hosts.wiring.registered_workflows import register_workflows
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.worker import machine_protocol as p
from holdfast.hosts.worker.session_renewal import Renewal
from holdfast.hosts.worker.settings import Settings
from holdfast.hosts.worker.shell import CallResult, WorkerShell
from holdfast.hosts.worker.store_calls import Counts
from holdfast.kernel.commands import Attempt, JobSettle
from holdfast.ports.events import EventSink

T = TypeVar("T")

LEAVE_SECONDS: Final = 5.0
"""Seconds that an ending worker waits for a store that may be down, before it leaves its jobs to the reaper."""
THREAD_GRACE: Final = 1.0
"""Seconds from its cancellation for which an ending worker waits for a sync body to clean up, as its thread may end
with the worker. `holdfast worker` has twice as long after its drain grace."""
_LOOK_SECONDS: Final = 0.01
"""Seconds between two looks at whether the threads of cancelled bodies have ended."""


class WorkerRunner:
    """Runs a worker machine in one event loop, for as long as `serve` runs, which is once. `lease` is in seconds.

    `before` has the counters of the worker's earlier runners.
    """

    def __init__(
        self,
        core: Core,
        settings: Settings,
        *,
        lease: float,
        sinks: Mapping[str, EventSink] | None = None,
        substitute: Substitute = unchanged,
        before: Counts | None = None,
    ) -> None:
        self._core = core
        self._before = before or Counts()
        self._shell = WorkerShell(core, settings, lease=lease, sinks=sinks or {}, substitute=substitute)
        self.machine, self.calls = self._shell.machine, self._shell.calls
        self._renewal = Renewal(
            core,
            lease=lease,
            sessions=lambda: self.calls.sessions,
            lost=lambda: self.post_from_thread(p.SessionLost()),
        )
        self._threads = CapacityLimiter(settings.concurrency)
        self._db_threads = CapacityLimiter(8)
        self._sink_threads = CapacityLimiter(max(1, len(sinks or ())))
        self._woken: anyio.Event | None = None
        self._scopes: dict[Attempt, CancelScope] = {}
        self._abandoned: dict[AttemptRuntime, float] = {}
        """Attempts that were abandoned while a thread ran their body, and until when to wait for it."""
        self._store_calls: set[CancelScope] = set()
        self._sink_calls: set[CancelScope] = set()
        self._leave_by = math.inf
        self._group: TaskGroup | None = None
        self._connecting: CancelScope | None = None
        self._is_leaving = False
        self._stopped = False

    @property
    def counts(self) -> Counts:
        """The counters of the worker since its first start. From any thread."""
        counts = Counts(*map(add, attrs.astuple(self._before), attrs.astuple(self.calls.counts)))
        counts.fenced += self.machine.late
        return counts

    async def serve(self, serving: Callable[[], None] = lambda: None) -> None:
        """Run in the current loop until the machine has finished. Calls `serving` once posted inputs are processed.

        Cancelling it cancels the running bodies and releases their jobs.
        """
        self._renewal.watch_loop()
        try:
            if not await self._connect():
                self._shell.post(p.Stop())
                self._shell.step(self._core.adapters.clock.monotonic())
                return
            ended = self._core.lifecycle.begin_worker()
            try:
                await self._serve(serving)
            finally:
                with CancelScope(shield=True):
                    await make_in_thread(ended)
        finally:
            with CancelScope(shield=True):
                await make_in_thread(self._shell.close)

    async def _connect(self) -> bool:
        """Connect to the store; return False if it was stopped before that.

        A call to a store that is down lasts for the patience of the engine. A worker that ends abandons it.
        """
        with CancelScope() as scope:
            self._connecting = scope
            if self._is_leaving:
                scope.cancel()
            await lowlevel.checkpoint_if_cancelled()
            await result_in_thread(self._core.connect)
            await result_in_thread(partial(register_workflows, self._core))
        self._connecting = None
        return not scope.cancelled_caught

    async def _serve(self, serving: Callable[[], None]) -> None:
        self._woken = anyio.Event()
        self._core.listener.add_worker(self._wake, self._notify)
        serving()
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                await self._drive()
        finally:
            self._core.listener.remove_worker(self._wake)
            self._renewal.stop()
            if not self._stopped:
                settles, attempts = self._shell.last(self._core.stores.clock.monotonic())
                with CancelScope(shield=True):
                    await self._in_thread(lambda: self.calls.leave(settles, attempts), LEAVE_SECONDS)
                    await self._wait_for_threads()

    @property
    def blocked_seconds(self) -> float:
        """For how long its event loop has been blocked. From any thread."""
        return self._renewal.blocked_seconds

    def drain(self) -> None:
        """Drain. From any thread, also before `serve` runs, which then returns at once."""
        self._leave(p.Drain())

    def stop(self) -> None:
        """Stop at once. From any thread, like `drain`."""
        self._stopped = True
        self._leave(p.Stop())

    def _leave(self, how: p.Input) -> None:
        def leave() -> None:
            if self._connecting is not None:
                self._connecting.cancel()
            self.post(how)

        self._is_leaving = True  # before the call: `serve` makes its loop known before it reads this
        self._renewal.in_loop(leave)

    def post(self, happened: p.Input) -> None:
        """Post an input to the machine. On the thread of the loop."""
        self._shell.post(happened)
        self._wake_loop()

    def post_from_thread(self, happened: p.Input) -> None:
        """Post an input to the machine. From any thread, while `serve` runs."""
        self._renewal.in_loop(lambda: self.post(happened))

    async def _drive(self) -> None:
        clock = self._core.stores.clock
        assert self._woken is not None
        while True:
            for action in self._shell.step(clock.monotonic()):
                if isinstance(action, p.Finish):
                    self._finish()
                    return
                self._carry_out(action)
            if self._shell.has_inputs:
                # Bodies that were just started run first, so that quick ones are settled together.
                await lowlevel.checkpoint()
                continue
            at = self.machine.next_step()
            with anyio.move_on_after(None if at is None else max(0.0, at - clock.monotonic())):
                await self._woken.wait()
            self._woken = anyio.Event()

    def _carry_out(self, action: p.Action) -> None:
        assert self._group is not None
        match action:
            case p.Start(attempt):
                body = self._shell.begin(attempt)
                self._scopes[attempt] = CancelScope()
                self._group.start_soon(self._run, body)
            case p.Cancel(attempt):
                self._cancel(attempt)
            case _:
                if (call := self._shell.call(action)) is not None:
                    self._group.start_soon(self._call, action, call)

    async def _call(self, action: p.Action, call: Callable[[], CallResult]) -> None:
        """Make the call of an action in a thread, and pass its result to the machine."""
        result: CallResult | None = None
        # A release may be the last call of this worker.
        with CancelScope(shield=isinstance(action, p.Release)):
            threads = self._sink_threads if isinstance(action, p.Flush) else None
            result = await self._in_thread(call, threads=threads)
        if result is None:
            return
        self._shell.answer(action, result)
        self._wake_loop()
        if isinstance(result[0], p.SessionReady):
            self._renewal.start()

    async def _run(self, body: Body) -> None:
        attempt = body.attempt
        settle: JobSettle | None = None
        scope = self._scopes[attempt]
        with scope:
            settle = await self._shell.attempts.run(body, self._threads)
        del self._scopes[attempt]
        self._abandon(body.runtime)
        self._shell.end(body, settle, cancelled=scope.cancel_called)
        self._wake_loop()

    def _abandon(self, runtime: AttemptRuntime) -> None:
        """Remember an attempt that has ended here while its body, which was cancelled, still runs in a thread."""
        if not runtime.is_in_thread:
            return
        now = anyio.current_time()
        for one, until in list(self._abandoned.items()):
            if until <= now or not one.is_in_thread:
                del self._abandoned[one]
        self._abandoned[runtime] = now + THREAD_GRACE

    async def _wait_for_threads(self) -> None:
        """Wait until the abandoned bodies have ended, for a second at most and not after `stop`.

        Their jobs are released already. A body that does not look at `ctx.cancelled` costs the worker that second.
        """
        while not self._stopped:
            now = anyio.current_time()
            if not any(one.is_in_thread and now < until for one, until in self._abandoned.items()):
                return
            await anyio.sleep(_LOOK_SECONDS)

    def _cancel(self, attempt: Attempt) -> None:
        if self._shell.cancel(attempt):
            self._scopes[attempt].cancel()

    def _finish(self) -> None:
        for attempt in list(self._scopes):
            self._cancel(attempt)
        assert self._group is not None
        self._group.cancel_scope.cancel()
        self._leave_by = anyio.current_time() + (0.0 if self._stopped else LEAVE_SECONDS)
        for scope in tuple(self._store_calls):
            scope.deadline = self._leave_by
        self.calls.stop_flushing()
        for scope in tuple(self._sink_calls):
            scope.deadline = -math.inf

    async def _in_thread(
        self, call: Callable[[], T], seconds: float | None = None, *, threads: CapacityLimiter | None = None
    ) -> T | None:
        """Run a call in a thread and wait for it, shielded from cancellation.

        A transaction that was sent must be awaited. An ending worker abandons the call after a while, or at once
        after `stop`, because the store may be down; then None is returned.
        """
        caught = CaughtCall(call)
        calls = self._store_calls if threads is None else self._sink_calls
        async with threads or self._db_threads:
            deadline = self._leave_by if seconds is None else anyio.current_time() + seconds
            with CancelScope(shield=True, deadline=deadline) as scope:
                calls.add(scope)
                try:
                    await make_in_thread(caught)
                finally:
                    calls.discard(scope)
        return caught.result() if caught.is_over else None

    def _wake_loop(self) -> None:
        if self._woken is not None:
            self._woken.set()

    def _wake(self) -> None:
        self.post_from_thread(p.Woken())

    def _notify(self, ended: frozenset[str], grew: frozenset[str]) -> None:
        for happened in self._shell.inputs_of_hints(tuple(self._scopes), ended, grew):
            self.post_from_thread(happened)
