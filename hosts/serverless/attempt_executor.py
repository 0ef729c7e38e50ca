"""Runs attempts from synchronous code, in an event loop that is kept between calls."""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias

import anyio
import attrs
from anyio import CancelScope, CapacityLimiter

from holdfast.hosts.execution.attempt_log import log_settled
from holdfast.hosts.execution.bodies import Bodies, Body
from holdfast.hosts.execution.body_preparation import UNKNOWN_CODE_DELAY, prepare
from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.hosts.execution.event_loops import PersistentLoop
from holdfast.hosts.execution.function_cache import FunctionCache
from holdfast.hosts.execution.threads import result_in_thread
from holdfast.hosts.functions.attempt_runner import run_attempt
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import (
    Attempt,
    AttemptReport,
    Failed,
    Failure,
    JobExecuted,
    JobHeartbeat,
    JobRelease,
    JobSettle,
    JobSettled,
    QueuedStepFailed,
    combine_pass_over,
)
from holdfast.kernel.dispatch.job_execution import BLOCKED_CLAIM, executed, ignored
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.ports.errors import CommandError, HoldfastError, UnreadableRowError
from holdfast.ports.records.job import PassOver
from holdfast.ports.records.values import Micros

HEARTBEAT_INTERVAL: Final = 2.0
"""Seconds between two heartbeats, by default."""

Settle: TypeAlias = Callable[[Sequence[JobSettle]], None]


class AttemptExecutor:
    """An `Executor` for serverless hosts.

    A durable function is driven for at most `drive_for` seconds at a time, if that is set. Up to `function_cache`
    waiting functions stay in memory.
    """

    def __init__(
        self,
        core: Core,
        bodies: Bodies,
        *,
        heartbeat_interval: float | None = None,
        drive_for: float | None = None,
        function_cache: int = 0,
    ) -> None:
        self._core = core
        self._bodies = bodies
        self._dispatcher = Dispatcher(core)
        self._cache = core.own(FunctionCache(function_cache))
        self._loop = core.own(PersistentLoop())
        self._heartbeat_interval = heartbeat_interval
        self._inside: dict[tuple[str, int], Attempt] = {}
        self._drive_for = None if drive_for is None else round(drive_for * 1_000_000)

    @property
    def pass_over(self) -> PassOver:
        """Which lost jobs must not be claimed now, given the attempts that run in this process, in any thread."""
        return combine_pass_over(list(self._inside.values()))

    @contextmanager
    def holding(self, attempts: Iterable[Attempt]) -> Generator[None]:
        """Count these attempts as running while the context is open."""
        names = {(one.job, one.epoch): one for one in attempts if one.lost_attempts}
        self._inside |= names
        try:
            yield
        finally:
            for name in names:
                self._inside.pop(name, None)

    def definitions(self) -> tuple[str, ...]:
        """See `Executor.definitions`."""
        return self._core.registry.definitions

    def execute(self, attempt: Attempt, /) -> JobSettle | None:
        """See `Executor.execute`."""
        bodies, _ = prepare(self._core, self._bodies, (attempt,))
        if not bodies:
            return None
        with self.holding((attempt,)):
            settles = self._loop.run(lambda: self._run_all(bodies))
        return settles[0] if settles else _lost(self._core, attempt)

    def execute_each(
        self,
        attempts: Sequence[Attempt],
        kernel: Kernel,
        *,
        ends_at: Micros | None,
        is_fresh: bool,
        queues: Collection[str] | None = None,
    ) -> dict[str, JobExecuted | HoldfastError]:
        """Run attempts concurrently, and settle each when it has ended, together with others that ended meanwhile.

        Args:
            attempts: The claimed attempts.
            kernel: Where to settle them.
            ends_at: When to stop bodies, in microseconds since 1970; None for never.
            is_fresh: Whether the process has its full time. If not, jobs that may need longer than the rest of it are
                released.
            queues: The queues to serve; jobs of others are released, as the queue in a message is not reliable. None
                for all.

        Returns:
            The outcome of each attempt, by job; an error if it could not be stored. The job is then free when the
                session has expired.
        """
        bodies, unknown = prepare(self._core, self._bodies, attempts)
        bodies = [attrs.evolve(body, ends_at=ends_at) for body in bodies]
        late = [body for body in bodies if not is_fresh and body.lacks_time]
        if queues is not None:
            late += [body for body in bodies if body.attempt.queue not in queues and body not in late]
        became: dict[str, JobExecuted | HoldfastError] = {}
        by_job = {body.attempt.job: body for body in bodies}

        def settle(settles: Sequence[JobSettle]) -> None:
            try:
                answers: Sequence[object] = kernel.dispatch_many(settles)
            except HoldfastError as error:
                answers = [error] * len(settles)
            for one, answer in zip(settles, answers, strict=True):
                assert isinstance(answer, JobSettled | HoldfastError)
                if isinstance(answer, JobSettled):
                    became[one.job] = executed(one, answer)
                else:
                    became[one.job] = _BLOCKED if isinstance(answer, UnreadableRowError) else answer
                if isinstance(answer, JobSettled) and answer.status == "settled":
                    log_settled(by_job[one.job], one, answer)
            self._dispatcher.follow_up(*answers)

        self._release(unknown, kernel, UNKNOWN_CODE_DELAY)
        for attempt in unknown:
            became[attempt.job] = _UNKNOWN_CODE
        self._release([body.attempt for body in late], kernel)
        for body in late:
            became[body.attempt.job] = _RELEASED
        blocked = [one for one in attempts if one.job not in by_job and one not in unknown]
        became.update((one.job, _BLOCKED) for one in blocked)
        timely = [body for body in bodies if body not in late]
        if timely:
            left = self._loop.run(lambda: self._run_all(timely, settle))
            known = {*became, *(one.job for one in left)}
            lost = [_lost(self._core, one.attempt) for one in timely if one.attempt.job not in known]
            settle([*left, *lost])
        return became

    def execute_many(self, attempts: Sequence[Attempt], kernel: Kernel) -> list[str]:
        """Run attempts concurrently and settle them together. Return the status of each."""
        bodies, unknown = prepare(self._core, self._bodies, attempts)
        self._release(unknown, kernel, UNKNOWN_CODE_DELAY)
        by_job = {body.attempt.job: body for body in bodies}
        settles = self._loop.run(lambda: self._run_all(bodies)) if bodies else []
        statuses = ["ignored"] * (len(attempts) - len(bodies)) + ["fenced"] * (len(bodies) - len(settles))
        answers = kernel.dispatch_many(settles)
        self._dispatcher.follow_up(*answers)
        for settle, answer in zip(settles, answers, strict=True):
            if isinstance(answer, UnreadableRowError):
                statuses.append("fenced")
                continue
            if isinstance(answer, CommandError):
                raise answer
            if answer.status == "settled":
                log_settled(by_job[settle.job], settle, answer)
            failed = isinstance(settle.outcome, Failed | QueuedStepFailed)
            statuses.append("fenced" if answer.status == "fenced" else "failed" if failed else "completed")
        return statuses

    def _release(self, attempts: Sequence[Attempt], kernel: Kernel, delay: Micros = 0) -> None:
        if not attempts:
            return
        released = kernel.dispatch_many(
            [
                JobRelease(namespace=self._core.namespace, job=one.job, epoch=one.epoch, delay=delay)
                for one in attempts
            ]
        )
        self._dispatcher.follow_up(*released)

    async def _run_all(self, prepared: Sequence[Body], settle: Settle | None = None) -> list[JobSettle]:
        """Run bodies; return the settle commands of those that were not cancelled.

        With `settle`, bodies that end while others run are settled meanwhile, and only the remaining commands are
        returned.
        """
        bodies = [
            attrs.evolve(body, parts=attrs.evolve(body.parts, drive_for=self._drive_for, cache=self._cache))
            for body in prepared
        ]
        settles: list[JobSettle] = []
        scopes = {body.attempt.job: CancelScope() for body in bodies}
        threads = CapacityLimiter(max(1, len(bodies)))
        ended = [anyio.Event()]

        async def run(body: Body) -> None:
            with scopes[body.attempt.job]:
                settles.append(body.settle(await run_attempt(body, threads)))
            del scopes[body.attempt.job]
            ended[0].set()
            if not scopes:
                watching.cancel()

        async def settle_meanwhile(settle: Settle) -> None:
            while scopes:
                await ended[0].wait()
                ended[0] = anyio.Event()
                if scopes and settles:
                    done = settles.copy()
                    settles.clear()
                    await result_in_thread(partial(settle, done))

        watching = CancelScope()
        async with anyio.create_task_group() as group:
            for body in bodies:
                group.start_soon(run, body)
            if settle is not None and len(bodies) > 1:
                group.start_soon(settle_meanwhile, settle)
            with watching:
                await self._watch({body.attempt.job: body for body in bodies}, scopes)
        return settles

    async def _watch(self, bodies: dict[str, Body], scopes: dict[str, CancelScope]) -> None:
        """Send heartbeats with the outputs of bodies, and cancel bodies that have lost their jobs."""
        while True:
            await anyio.sleep(self._heartbeat_interval or HEARTBEAT_INTERVAL)
            held = tuple(
                AttemptReport(
                    job=job, epoch=bodies[job].attempt.epoch, outputs=bodies[job].runtime.take_outputs()
                )
                for job in list(scopes)
            )
            command = JobHeartbeat(namespace=self._core.namespace, attempts=held)
            try:
                answer = await result_in_thread(partial(self._core.kernel.dispatch, command))
            except HoldfastError:
                for held_attempt in held:
                    bodies[held_attempt.job].runtime.put_back(held_attempt.outputs)
                continue
            for job in answer.lost:
                bodies[job].runtime.cancel()
                if job in scopes:
                    scopes[job].cancel()


def _lost(core: Core, attempt: Attempt) -> JobSettle:
    """Return the settle command of a body that was cancelled because it lost its job. The kernel fences it."""
    failure = Failure(code="cancelled", message="the attempt was lost while it ran")
    return JobSettle(
        namespace=core.namespace, job=attempt.job, epoch=attempt.epoch, outcome=Failed(failure=failure)
    )


_UNKNOWN_CODE: Final = JobExecuted(
    status="ignored", reason="unknown_code", acknowledge=False, retry_after=UNKNOWN_CODE_DELAY
)
_BLOCKED: Final = ignored(BLOCKED_CLAIM)
_RELEASED: Final = JobExecuted(status="ignored", reason="stale")
"""A released job is announced by a new message."""
