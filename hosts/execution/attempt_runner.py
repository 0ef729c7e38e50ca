"""Runs claimed attempts of every kind: prepares their bodies, and runs each to the command that settles it.

Worker, serverless host, `job.execute` and test tools all run attempts here. What differs stays with them: how jobs are
claimed, loops and threads, heartbeats, cancellation, and when results are stored.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from anyio import CapacityLimiter

from holdfast.hosts.execution.bodies import Bodies, Body, Driving, Substitute, unchanged
from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.hosts.execution.logging_bridge import current_attempt
from holdfast.hosts.execution.stage_runner import run_stage
from holdfast.hosts.wiring.input_loader import NOTHING_PRELOADED, Preloaded
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import Attempt, JobRelease, JobReleased, JobSettle, Outcome
from holdfast.kernel.dispatch.unreadable_runs import unreadable_of
from holdfast.ports.errors import CommandError, UnknownPlanError, UnreadableRowError
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.values import Micros
from holdfast.ports.unreadable import PARSE_ERRORS

BodyRunner: TypeAlias = Callable[[Body, CapacityLimiter], Awaitable[Outcome]]
"""Runs a body to its outcome; sync functions in threads. Raises only the cancellation of the caller."""


class AttemptRunner:
    """The runner of one host.

    Args:
        core: The services of the process.
        functions: The runners of what belongs to durable functions, by kind of job. Jobs of other kinds run as stages.
        substitute: Replaces bodies, for tests that stub them.
        driving: Changes how this host drives durable functions.
    """

    def __init__(
        self,
        core: Core,
        functions: Mapping[JobKind, BodyRunner],
        *,
        substitute: Substitute = unchanged,
        driving: Driving = lambda parts: parts,
    ) -> None:
        self._core = core
        self._functions = functions
        self._bodies = Bodies(core, substitute=substitute, driving=driving)
        self._dispatcher = Dispatcher(core)

    def prepare(
        self, attempts: Sequence[Attempt], known: Preloaded = NOTHING_PRELOADED
    ) -> tuple[list[Body], list[Attempt]]:
        """Return the bodies of attempts, and the attempts for which this process has no code, to be released.

        A run with rows that cannot be read is blocked; its attempts are in neither list, and the others proceed.
        """
        try:
            ready, without_code = self._bodies.prepare(attempts, known)
        except (UnreadableRowError, UnknownPlanError, *PARSE_ERRORS) as error:
            if len(attempts) == 1:
                self._block(attempts[0], error)
                return [], []
        else:
            return ready, [attempt for attempt in without_code if self._may_have_code(attempt)]
        prepared: list[Body] = []
        unknown: list[Attempt] = []
        for attempt in attempts:
            some, others = self.prepare((attempt,), known)
            prepared += some
            unknown += others
        return prepared, unknown

    async def run(self, body: Body, threads: CapacityLimiter) -> JobSettle:
        """Run a body and return the command that settles its attempt. Raises only the cancellation of the caller."""
        return body.settle(await self.outcome(body, threads))

    async def outcome(self, body: Body, threads: CapacityLimiter) -> Outcome:
        """Run a body and return its outcome. Raises only the cancellation of the caller."""
        if body.is_out_of_time:
            return body.out_of_time()
        current_attempt.set(body.runtime)  # each body has its own task, and so its own context
        return await self._functions.get(body.attempt.kind, run_stage)(body, threads)

    def release(self, attempts: Sequence[Attempt], delay: Micros = 0) -> Sequence[JobReleased | CommandError]:
        """Give back attempts that did not run; return the answers. Their jobs can be claimed after the delay."""
        if not attempts:
            return ()
        released = self._core.kernel.dispatch_many(
            [
                JobRelease(namespace=self._core.namespace, job=one.job, epoch=one.epoch, delay=delay)
                for one in attempts
            ]
        )
        self._dispatcher.follow_up(*released)
        return released

    def _may_have_code(self, attempt: Attempt) -> bool:
        """Return whether another process may have the code of an attempt. Blocks the run if its plan lacks the stage.

        Plans do not list queued steps and cancellations of external work: their code may come with a later deploy.
        """
        if attempt.kind in (JobKind.STEP, JobKind.CANCEL) or not unreadable_of(
            self._core.stores.persistence, (attempt.run,)
        ):
            return True
        self._block(attempt, None)
        return False

    def _block(self, attempt: Attempt, error: Exception | None) -> None:
        self._core.kernel.block_unreadable(attempt.run, error)
        self.release((attempt,))
