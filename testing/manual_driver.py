"""A worker and its maintenance under manual control: one job at a time, while the clock stands still."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final

import attrs

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.hosts.events.flusher import Flusher
from holdfast.hosts.execution.attempt_runner import AttemptRunner
from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.hosts.functions.function_runners import FUNCTION_RUNNERS
from holdfast.hosts.maintenance.tick import Maintenance
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import Attempt, Failed, JobClaim, SessionOpen
from holdfast.kernel.dispatch.job_execution import UNKNOWN_CODE_DELAY
from holdfast.kernel.pipelines.plan import DEFAULT_QUEUE
from holdfast.ports.clock import micros
from holdfast.ports.events import EventSink
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import QueueClaim
from holdfast.testing.body_runner import BodyGenerator
from holdfast.testing.clock import ManualClock
from holdfast.testing.due_times import due_instants
from holdfast.testing.stubs import Stubs

_LEASE: Final[Micros] = 1_000 * 366 * 86_400_000_000
"""A lease that outlives every test: there is no other worker to take over."""

_log: Final = logging.getLogger("holdfast.testing")


class Driver:
    """One worker, which does maintenance whenever it is idle."""

    def __init__(
        self,
        core: Core,
        store: MemoryPersistence,
        clock: ManualClock,
        stubs: Stubs,
        sinks: Mapping[str, EventSink],
    ) -> None:
        self._core = core
        # Do not wait inside a drive: the job is claimed again when the world's clock reaches the timer.
        self._runner = AttemptRunner(
            core, FUNCTION_RUNNERS, driving=lambda parts: attrs.evolve(parts, park_after=0)
        )
        self._dispatcher = Dispatcher(core)
        self._store = store
        self._clock = clock
        self._stubs = stubs
        self._maintenance = Maintenance(core, lease=60.0)
        self._sinks = sinks
        self._flusher = Flusher(core, sinks)
        self._session: str | None = None
        self._queues = set(core.registry.queues(DEFAULT_QUEUE))

    def drive(
        self, until: Micros, is_done: Callable[[], bool], *, for_work: bool = False
    ) -> BodyGenerator[None]:
        """Run due jobs and advance the clock to the next due time, up to an instant; stop as soon as `is_done`.

        With `for_work`, also stop when only schedules are left, which may fire for ever.
        """
        while not is_done():
            attempt = self._claim()
            if attempt is not None:
                yield from self._carry_out(attempt)
                continue
            due = None if for_work and self.next_work() is None else self.next_due()
            is_last = due is None or due > until
            if (is_last or self._is_behind()) and self._maintain():
                continue
            if due is None or due > until:
                break
            self._clock.advance(timedelta(microseconds=due - micros(self._clock.now())))
            self._maintain()

    def next_due(self) -> Micros | None:
        """Return the next instant at which maintenance has work; None if the passing of time brings none."""
        return self._first(self._due_instants())

    def next_work(self) -> Micros | None:
        """Return the next instant at which a run continues; None if the passing of time continues none."""
        return self._first(due_instants(self._store.dump()))

    def _first(self, instants: Iterable[Micros]) -> Micros | None:
        now = micros(self._clock.now())
        return min((due for due in instants if due > now), default=None)

    def _due_instants(self) -> Iterator[Micros]:
        tables = self._store.dump()
        yield from due_instants(tables)
        workflows = {plan.workflow for plan in self._core.registry.plans}
        for row in tables.schedules.values():
            if (
                row.next_at is not None
                and row.workflow in workflows
                and row.namespace == self._core.namespace
            ):
                yield row.next_at

    def _is_behind(self) -> bool:
        """Return whether maintenance may have work now."""
        now = micros(self._clock.now())
        return bool(self._sinks) or any(due <= now for due in self._due_instants())

    def _claim(self) -> Attempt | None:
        core = self._core
        if self._session is None:
            opened = core.kernel.dispatch(SessionOpen(namespace=core.namespace, host=core.host, lease=_LEASE))
            self._session = opened.session
        definitions = (*core.registry.definitions, *core.registry.remote_stages)  # their bodies are stubbed
        queue_claims = tuple(
            QueueClaim(queue=queue, definitions=definitions, limit=1) for queue in sorted(self._queues)
        )
        claim = JobClaim(namespace=core.namespace, session=self._session, queue_claims=queue_claims, limit=1)
        attempts = core.kernel.dispatch(claim).attempts
        return attempts[0] if attempts else None

    def _carry_out(self, attempt: Attempt) -> BodyGenerator[None]:
        bodies, unknown = self._runner.prepare((attempt,))
        self._runner.release(unknown, UNKNOWN_CODE_DELAY)
        for body in bodies:
            settle = yield self._runner, self._stubs.substituted(body)
            if isinstance(settle.outcome, Failed):
                where = attempt.node if attempt.item is None else f"{attempt.node}, item {attempt.item}"
                failure = settle.outcome.failure
                _log.warning(
                    "stage %s of run %s failed at attempt %s:\n%s",
                    where,
                    body.work.run.id,
                    attempt.attempt,
                    failure.traceback or failure.message,
                )
            self._dispatcher.dispatch(settle)

    def _maintain(self) -> bool:
        """Run a maintenance tick, and return whether it may have produced work."""
        tick = self._maintenance.tick()
        self._flusher.flush()
        queues = {job.queue for job in self._store.dump().all_jobs()} - self._queues  # chosen by runs
        self._queues |= queues
        counts = (tick.woken, tick.expired, tick.admitted, tick.queued, tick.delivered, tick.dead, tick.freed)
        return tick.more or any(counts) or bool(tick.repaired or tick.scheduled or queues)
