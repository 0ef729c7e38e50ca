"""Runs bodies from sync code: each call has an event loop of its own, for as long as it lasts."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import anyio
import attrs
from anyio import CancelScope, CapacityLimiter

from holdfast.hosts.bodies import Body
from holdfast.hosts.core import Core
from holdfast.hosts.loops import run_in_loop
from holdfast.hosts.process.running import run_body
from holdfast.hosts.process.threads import result_in_thread
from holdfast.kernel.commands import Attempt, Failed, Failure, Held, JobHeartbeat, JobRelease, JobSettle
from holdfast.kernel.kernel import Kernel
from holdfast.ports.errors import CommandError, HoldfastError
from holdfast.ports.records import Micros

HEARTBEAT_INTERVAL: Final = 2.0
UNKNOWN_CODE_DELAY: Final[Micros] = 5_000_000


class AttemptExecutor:
    """See `Executor`. Functions are driven for `drive_for` seconds at a time, if that is set.

    Up to `function_cache` of them stay in memory while they rest.
    """

    def __init__(
        self,
        core: Core,
        *,
        heartbeat_interval: float | None = None,
        drive_for: float | None = None,
        function_cache: int = 0,
    ) -> None:
        self._core = core
        self._cache = core.function_cache(function_cache)
        self._heartbeat_interval = heartbeat_interval
        self._drive_for = None if drive_for is None else round(drive_for * 1_000_000)

    def definitions(self) -> tuple[str, ...]:
        """See `Executor.definitions`."""
        return self._core.registry.definitions

    def execute(self, attempt: Attempt, /) -> JobSettle | None:
        """See `Executor.execute`."""
        bodies, _ = self._core.bodies.prepare((attempt,))
        if not bodies:
            return None
        settles = run_in_loop(lambda: self._run_all(bodies))
        return settles[0] if settles else _lost(self._core, attempt)

    def execute_many(self, attempts: Sequence[Attempt], kernel: Kernel) -> list[str]:
        """Run attempts at once and settle them together; return what became of each."""
        bodies, unknown = self._core.bodies.prepare(attempts)
        if unknown:
            released = kernel.dispatch_many(
                [
                    JobRelease(
                        namespace=self._core.namespace,
                        job=back.job,
                        epoch=back.epoch,
                        delay=UNKNOWN_CODE_DELAY,
                    )
                    for back in unknown
                ]
            )
            self._core.follow_up(*released)
        settles = run_in_loop(lambda: self._run_all(bodies)) if bodies else []
        statuses = ["ignored"] * len(unknown) + ["fenced"] * (len(bodies) - len(settles))
        answers = kernel.dispatch_many(settles)
        self._core.follow_up(*answers)
        for settle, answer in zip(settles, answers, strict=True):
            if isinstance(answer, CommandError):
                raise answer
            failed = isinstance(settle.outcome, Failed)
            statuses.append("fenced" if answer.status == "fenced" else "failed" if failed else "completed")
        return statuses

    async def _run_all(self, prepared: Sequence[Body]) -> list[JobSettle]:
        """Run bodies; return what settles those that were not cancelled on the way."""
        bodies = [
            attrs.evolve(body, parts=attrs.evolve(body.parts, drive_for=self._drive_for, cache=self._cache))
            for body in prepared
        ]
        settles: list[JobSettle] = []
        scopes = {body.attempt.job: CancelScope() for body in bodies}
        threads = CapacityLimiter(max(1, len(bodies)))

        async def run(body: Body) -> None:
            with scopes[body.attempt.job]:
                settles.append(body.settle(await run_body(body, threads)))
            del scopes[body.attempt.job]
            if not scopes:
                watching.cancel()

        watching = CancelScope()
        async with anyio.create_task_group() as group:
            for body in bodies:
                group.start_soon(run, body)
            with watching:
                await self._watch({body.attempt.job: body for body in bodies}, scopes)
        return settles

    async def _watch(self, bodies: dict[str, Body], scopes: dict[str, CancelScope]) -> None:
        """Cancel bodies that are no longer held, and pass on what they say."""
        while True:
            await anyio.sleep(self._heartbeat_interval or HEARTBEAT_INTERVAL)
            held = tuple(
                Held(job=job, epoch=bodies[job].attempt.epoch, said=bodies[job].runtime.take_said())
                for job in list(scopes)
            )
            command = JobHeartbeat(namespace=self._core.namespace, attempts=held)
            try:
                answer = await result_in_thread(partial(self._core.kernel.dispatch, command))
            except HoldfastError:
                for asked in held:
                    bodies[asked.job].runtime.put_back(asked.said)
                continue
            for job in answer.lost:
                bodies[job].runtime.cancel()
                if job in scopes:
                    scopes[job].cancel()


def _lost(core: Core, attempt: Attempt) -> JobSettle:
    """Return the settle of a body that was cancelled because it was lost: it will be fenced, and so counted."""
    failure = Failure(code="cancelled", message="the attempt was lost while it ran")
    return JobSettle(
        namespace=core.namespace, job=attempt.job, epoch=attempt.epoch, outcome=Failed(failure=failure)
    )
