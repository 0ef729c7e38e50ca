"""Runs attempts from synchronous code, in an event loop that is kept between calls."""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias

import anyio
import attrs
from anyio import CancelScope, CapacityLimiter

from holdfast.hosts.execution.attempt_log import log_settled
from holdfast.hosts.execution.attempt_runner import AttemptRunner
from holdfast.hosts.execution.bodies import Body, Substitute, unchanged
from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.hosts.execution.event_loops import PersistentLoop
from holdfast.hosts.execution.function_cache import FunctionCache
from holdfast.hosts.execution.threads import result_in_thread
from holdfast.hosts.functions.function_runners import FUNCTION_RUNNERS
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import (
    Attempt,
    AttemptReport,
    JobExecuted,
    JobHeartbeat,
    JobSettle,
    JobSettled,
    combine_pass_over,
)
from holdfast.kernel.dispatch.job_execution import (
    BLOCKED_CLAIM,
    FENCED,
    UNKNOWN_CODE,
    UNKNOWN_CODE_DELAY,
    executed,
    ignored,
)
from holdfast.ports.errors import HoldfastError
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
        *,
        substitute: Substitute = unchanged,
        heartbeat_interval: float | None = None,
        drive_for: float | None = None,
        function_cache: int = 0,
    ) -> None:
        self._core = core
        self._dispatcher = Dispatcher(core)
        cache = core.own(FunctionCache(function_cache))
        limit = None if drive_for is None else round(drive_for * 1_000_000)
        self._runner = AttemptRunner(
            core,
            FUNCTION_RUNNERS,
            substitute=substitute,
            driving=lambda parts: attrs.evolve(parts, drive_for=limit, cache=cache),
        )
        self._loop = core.own(PersistentLoop())
        self._heartbeat_interval = heartbeat_interval
        self._inside: dict[tuple[str, int], Attempt] = {}

    @property
    def pass_over(self) -> PassOver:
        """Which lost jobs must not be claimed now, given the attempts that run in this process, in any thread."""
        return combine_pass_over(list(self._inside.values()))

    @contextmanager
    def _holding(self, attempts: Iterable[Attempt]) -> Generator[None]:
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

    def execute(self, attempt: Attempt, /) -> JobExecuted:
        """See `Executor.execute`."""
        became = self.execute_all((attempt,))[attempt.job]
        if isinstance(became, HoldfastError):
            raise became
        return became

    def execute_all(
        self,
        attempts: Sequence[Attempt],
        *,
        ends_at: Micros | None = None,
        is_fresh: bool = True,
        queues: Collection[str] | None = None,
        settles_together: bool = False,
    ) -> dict[str, JobExecuted | HoldfastError]:
        """Run attempts concurrently, and settle each when it has ended, together with others that ended meanwhile.

        Args:
            attempts: The claimed attempts.
            ends_at: When to stop bodies, in microseconds since 1970; None for never.
            is_fresh: Whether the process has its full time. If not, jobs that may need longer than the rest of it are
                released.
            queues: The queues to serve; jobs of others are released, as the queue in a message is not reliable. None
                for all.
            settles_together: Whether to settle all in one transaction, when the last has ended.

        Returns:
            The outcome of each attempt, by job; an error if it could not be stored. The job is then free when the
                session has expired.
        """
        with self._holding(attempts):
            prepared, unknown = self._runner.prepare(attempts)
            became: dict[str, JobExecuted | HoldfastError] = dict.fromkeys(
                (one.job for one in attempts), _BLOCKED
            )
            became |= dict.fromkeys((one.job for one in unknown), UNKNOWN_CODE)
            self._runner.release(unknown, UNKNOWN_CODE_DELAY)
            bodies: dict[str, Body] = {}
            late: list[Attempt] = []
            for body in (attrs.evolve(one, ends_at=ends_at) for one in prepared):
                is_served = queues is None or body.attempt.queue in queues
                if is_served and (is_fresh or not body.lacks_time):
                    bodies[body.attempt.job] = body
                else:
                    late.append(body.attempt)
            self._runner.release(late)
            became |= dict.fromkeys((one.job for one in late), _RELEASED)
            became |= dict.fromkeys(bodies, FENCED)

            def settle(settles: Sequence[JobSettle]) -> None:
                answers: Sequence[JobSettled | HoldfastError]
                try:
                    answers = self._core.kernel.dispatch_many(settles)
                except HoldfastError as error:
                    answers = [error] * len(settles)
                for one, answer in zip(settles, answers, strict=True):
                    became[one.job] = executed(one, answer)
                    if isinstance(answer, JobSettled) and answer.status == "settled":
                        log_settled(bodies[one.job], one, answer)
                self._dispatcher.follow_up(*answers)

            if bodies:
                settle(self._loop.run(lambda: self._run_all(bodies, None if settles_together else settle)))
            return became

    async def _run_all(self, bodies: Mapping[str, Body], settle: Settle | None) -> list[JobSettle]:
        """Run bodies, by job; return the settle commands of those that were not cancelled.

        With `settle`, bodies that end while others run are settled meanwhile, and only the remaining commands are
        returned.
        """
        settles: list[JobSettle] = []
        scopes = {job: CancelScope() for job in bodies}
        threads = CapacityLimiter(len(bodies))
        ended = [anyio.Event()]

        async def run(body: Body) -> None:
            with scopes[body.attempt.job]:
                settles.append(await self._runner.run(body, threads))
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
            for body in bodies.values():
                group.start_soon(run, body)
            if settle is not None and len(bodies) > 1:
                group.start_soon(settle_meanwhile, settle)
            with watching:
                await self._watch(bodies, scopes)
        return settles

    async def _watch(self, bodies: Mapping[str, Body], scopes: dict[str, CancelScope]) -> None:
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


_BLOCKED: Final = ignored(BLOCKED_CLAIM)
_RELEASED: Final = JobExecuted(status="ignored", reason="stale")
"""A released job is announced by a new message."""
