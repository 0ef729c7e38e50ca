"""Announces queued jobs again that were not claimed, as their messages may be lost."""

from collections.abc import Iterable
from typing import Final

from holdfast.hosts.wiring.services import Core
from holdfast.ports.clock import micros
from holdfast.ports.queries.runs import QueuedJobs
from holdfast.ports.records.job import Job, JobKey
from holdfast.ports.records.limits import LimitName, queue_limit
from holdfast.ports.records.values import Micros
from holdfast.ports.tables import LIMITS
from holdfast.ports.transport import JobHint

REMIND_AFTER: Final[Micros] = 60_000_000
"""How long a run must be unchanged before its queued jobs are announced again, in microseconds."""

REMIND_LIMIT: Final = 100
"""The maximum number of jobs announced at once, to limit the extra load on a queue that is merely slow."""


class Reminders:
    """Cycles through the queued jobs that this process has code for.

    A run changes whenever one of its jobs is opened, settled or fails, so the queued jobs of an unchanged run are old.
    Only released and newly woken jobs may be younger; an extra message does no harm.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._after: JobKey | None = None

    def send(self) -> int:
        """Announce the next jobs, and return how many. Raises UnavailableError."""
        jobs = self._core.stores.persistence.read(
            QueuedJobs(
                namespace=self._core.namespace,
                definitions=self._core.registry.definitions,
                quiet_since=micros(self._core.clock.now()) - REMIND_AFTER,
                after=self._after,
                limit=REMIND_LIMIT,
            )
        )
        self._after = jobs[-1].key if len(jobs) >= REMIND_LIMIT else None
        paused = self._paused_queues(jobs)
        jobs = tuple(job for job in jobs if queue_limit(job.namespace, job.queue) not in paused)
        if jobs:
            hints = [JobHint(job=job.key.text, epoch=job.epoch, queue=job.queue) for job in jobs]
            self._core.stores.transport.announce(hints)
        return len(jobs)

    def _paused_queues(self, jobs: Iterable[Job]) -> set[LimitName]:
        """Return the paused ones of the queues of these jobs: unpausing announces what waits in them."""
        names = sorted({queue_limit(job.namespace, job.queue) for job in jobs})
        if not names:
            return set()
        rows = self._core.stores.persistence.transact(lambda tx: tx.get(LIMITS, names))
        return {row.limit_name for row in rows if row.is_paused}
