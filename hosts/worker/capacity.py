"""The room that a worker has, in all and for each queue, and so what its next claim asks for."""

from collections import Counter
from collections.abc import Iterable

from holdfast.hosts.worker.machine_protocol import Claim
from holdfast.hosts.worker.settings import Settings
from holdfast.kernel.commands import Attempt, passed_over_beside
from holdfast.ports.persistence import Lane


class Capacity:
    """What is in a worker: attempts take up room from their start until how they ended is stored, or thrown away."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._inside: dict[tuple[str, int], Attempt] = {}
        self._busy_in: Counter[str] = Counter()
        self._requested: tuple[Lane, ...] = ()
        self._filled: frozenset[str] = frozenset()

    @property
    def free(self) -> int:
        """How many more bodies may run."""
        return self._settings.concurrency - len(self._inside)

    @property
    def claimable(self) -> int:
        """How many jobs to ask for: none where there is no code for any, or all queues are at their limits."""
        if not self._settings.definitions:
            return 0
        return min(self.free, sum(lane.limit for lane in self._lanes()))

    def claim(self) -> Claim:
        """Return a claim of what there is room for, and that may run beside what is here."""
        self._requested = self._lanes()
        # What has ended and is not settled would still be lost with this worker: it counts as what runs.
        return Claim(self._requested, self.claimable, passed_over_beside(self._inside.values()))

    def claimed(self, attempts: Iterable[Attempt]) -> None:
        """Note in which queues the claim found all that it asked for: there may be more."""
        found = Counter(attempt.queue for attempt in attempts)
        self._filled = frozenset(lane.queue for lane in self._requested if found[lane.queue] >= lane.limit)

    def enter(self, attempt: Attempt) -> None:
        """Take up room for an attempt."""
        self._inside[attempt.job, attempt.epoch] = attempt
        self._busy_in[attempt.queue] += 1

    def leave(self, attempt: Attempt) -> bool:
        """Free the room of an attempt; return whether that may let in what the last claim left where it was."""
        del self._inside[attempt.job, attempt.epoch]
        self._busy_in[attempt.queue] -= 1
        # What was passed over beside a job that was lost may now be had.
        return attempt.queue in self._filled or attempt.lost_attempts > 0

    def _lanes(self) -> tuple[Lane, ...]:
        lanes: list[Lane] = []
        for queue in self._settings.queues:
            limit = self._settings.limits.get(queue, self._settings.concurrency) - self._busy_in[queue]
            if limit > 0:
                lanes.append(Lane(queue=queue, definitions=self._settings.definitions, limit=limit))
        return tuple(lanes)
