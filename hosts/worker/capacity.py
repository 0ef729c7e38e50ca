"""The free slots of a worker, in total and per queue, and the claim that follows from them."""

from collections import Counter
from collections.abc import Iterable

from holdfast.hosts.worker.machine_protocol import Claim
from holdfast.hosts.worker.settings import Settings
from holdfast.kernel.commands import Attempt, combine_pass_over
from holdfast.ports.searches import QueueClaim


class Capacity:
    """The attempts that occupy slots of a worker: from their start until their result is stored or dropped."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._inside: dict[tuple[str, int], Attempt] = {}
        self._busy_in: Counter[str] = Counter()
        self._requested: tuple[QueueClaim, ...] = ()
        self._filled: frozenset[str] = frozenset()

    @property
    def free(self) -> int:
        """Number of bodies that may still start."""
        return self._settings.concurrency - len(self._inside)

    @property
    def claimable(self) -> int:
        """Number of jobs to claim: 0 if the worker has no code, or if all queues are at their limits."""
        if not self._settings.definitions:
            return 0
        return min(self.free, sum(queue_claim.limit for queue_claim in self._queue_claims()))

    def claim(self) -> Claim:
        """Return a claim for the free slots that leaves out jobs which must not run beside those held here."""
        self._requested = self._queue_claims()
        # Attempts that have ended and are not settled would still be lost with this worker: they count as running.
        return Claim(self._requested, self.claimable, combine_pass_over(self._inside.values()))

    def claimed(self, attempts: Iterable[Attempt]) -> None:
        """Note which queues filled their limit in the last claim: they may have more jobs."""
        found = Counter(attempt.queue for attempt in attempts)
        self._filled = frozenset(
            queue_claim.queue
            for queue_claim in self._requested
            if found[queue_claim.queue] >= queue_claim.limit
        )

    def enter(self, attempt: Attempt) -> None:
        """Occupy a slot for an attempt."""
        self._inside[attempt.job, attempt.epoch] = attempt
        self._busy_in[attempt.queue] += 1

    def leave(self, attempt: Attempt) -> bool:
        """Free the slot of an attempt; return whether jobs that the last claim left behind may now be claimed."""
        del self._inside[attempt.job, attempt.epoch]
        self._busy_in[attempt.queue] -= 1
        # Jobs that were passed over beside one that was lost before can be claimed now (docs/decisions/0059).
        return attempt.queue in self._filled or attempt.lost_attempts > 0

    def _queue_claims(self) -> tuple[QueueClaim, ...]:
        queue_claims: list[QueueClaim] = []
        for queue in self._settings.queues:
            limit = self._settings.limits.get(queue, self._settings.concurrency) - self._busy_in[queue]
            if limit > 0:
                queue_claims.append(
                    QueueClaim(queue=queue, definitions=self._settings.definitions, limit=limit)
                )
        return tuple(queue_claims)
