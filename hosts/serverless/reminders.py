"""Announces again jobs that nobody has claimed: their messages may have been lost."""

from typing import Final

from holdfast.hosts.wiring.services import Core
from holdfast.ports.clock import micros
from holdfast.ports.persistence import QueuedJobs
from holdfast.ports.records import JobKey, Micros
from holdfast.ports.transport import JobHint

REMIND_AFTER: Final[Micros] = 60_000_000
"""How long nothing has happened to a run before its queued jobs are announced again."""

REMIND_LIMIT: Final = 100
"""How many jobs are announced again at once: where a queue is merely slow, that is all that is added to it."""


class Reminders:
    """Goes round the queued jobs that this process has code for, some at a time, and begins anew at the end.

    A run changes whenever one of its jobs is opened, settled or fails, so the jobs of one that did not change for a
    while have been queued for that long. Only those that were given back, or have just been woken, may be younger;
    then a message is sent twice, which is harmless.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._after: JobKey | None = None

    def send(self) -> int:
        """Announce the next jobs, and return how many. UnavailableError if the store did not answer."""
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
        if jobs:
            hints = [JobHint(job=job.key.text, epoch=job.epoch, queue=job.queue) for job in jobs]
            self._core.stores.transport.announce(hints)
        return len(jobs)
