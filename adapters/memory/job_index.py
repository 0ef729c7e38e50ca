"""Indexes of jobs for the in-memory store: queued jobs in claim order, sleeping jobs by wake time."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice

from holdfast.ports.changes import (
    BlockRun,
    CancelExternalWork,
    Change,
    Delete,
    DeleteJobs,
    DeleteJobsOfNode,
    Insert,
    Update,
)
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState, PassOver, cancelling, held_job
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import QueueClaim
from holdfast.ports.working_set import Tables, checks_of

_Place = tuple[int, str, int]
_QueueKey = tuple[str, str, str]


class JobOrder:
    """Sorted indexes of the queued jobs by queue and definition, and of sleeping jobs. Updated before each change."""

    def __init__(self) -> None:
        self._queued: dict[_QueueKey, list[_Place]] = {}
        self._sleeping: list[tuple[Micros, str, int]] = []
        self._pending_deliveries = 0
        self._passed_over: dict[PassOver, set[_Place]] = {pass_over: set() for pass_over in PassOver}

    def __len__(self) -> int:
        """Return the number of jobs with a wake time."""
        return len(self._sleeping)

    @property
    def has_deliveries(self) -> bool:
        """Whether any job is pending delivery to another run."""
        return self._pending_deliveries > 0

    def follow(self, tables: Tables, change: Change) -> None:
        """Update the indexes for a change that is about to be made to `tables`."""
        match change:
            case Insert(Job() as job) | Update(Job() as job):
                self._remove(tables.job(job.key))
                self._add(job)
            case Delete(key=JobKey() as key):
                self._remove(tables.job(key))
            case CancelExternalWork(run, node, attempts):
                for job in checks_of(tables, run, node):
                    self._remove(job)
                    self._add(cancelling(job, attempts))
            case DeleteJobs(run):
                for job in tables.jobs.get(run, {}).values():
                    if job.kind is not JobKind.CANCEL:
                        self._remove(job)
            case DeleteJobsOfNode(run, node):
                for job in tables.jobs.get(run, {}).values():
                    if job.node == node and job.kind is not JobKind.CANCEL:
                        self._remove(job)
            case BlockRun(run):
                for job in tables.jobs.get(run, {}).values():
                    self._remove(job)
                    self._add(held_job(job))
            case _:
                pass

    def claimable(
        self, namespace: str, queue_claims: Iterable[QueueClaim], limit: int, pass_over: PassOver
    ) -> list[JobKey]:
        """Return the keys of the jobs to claim, as `ClaimableJobs`."""
        taken: list[_Place] = []
        passed_over = self._passed_over[pass_over]
        for queue_claim in queue_claims:
            of_queue: list[_Place] = []
            for definition in queue_claim.definitions:
                queued = self._queued.get((namespace, queue_claim.queue, definition), ())
                allowed = (place for place in queued if place not in passed_over)
                of_queue.extend(islice(allowed, queue_claim.limit))
            of_queue.sort()
            taken.extend(of_queue[: queue_claim.limit])
        return [JobKey(run, number) for _, run, number in sorted(set(taken))[:limit]]

    def due(self, now: Micros, limit: int) -> Iterator[JobKey]:
        """Yield the keys of sleeping jobs that are due, earliest first."""
        for wake_at, run, number in self._sleeping[:limit]:
            if wake_at <= now:
                yield JobKey(run, number)

    def _add(self, job: Job) -> None:
        if job.state is JobState.QUEUED:
            insort(self._queued.setdefault(_queue_key(job), []), _place(job))
            for pass_over, passed_over in self._passed_over.items():
                if job.is_passed_over(pass_over):
                    passed_over.add(_place(job))
        elif job.state is JobState.SLEEPING and job.wake_at is not None:
            insort(self._sleeping, (job.wake_at, job.run, job.number))

        elif job.state is JobState.PENDING_DELIVERY:
            self._pending_deliveries += 1

    def _remove(self, job: Job | None) -> None:
        if job is None:
            return
        self._pending_deliveries -= job.state is JobState.PENDING_DELIVERY
        if job.state is JobState.QUEUED:
            places = self._queued[_queue_key(job)]
            del places[bisect_left(places, _place(job))]
            for passed_over in self._passed_over.values():
                passed_over.discard(_place(job))
        elif job.state is JobState.SLEEPING and job.wake_at is not None:
            del self._sleeping[bisect_left(self._sleeping, (job.wake_at, job.run, job.number))]


def _queue_key(job: Job) -> _QueueKey:
    return (job.namespace, job.queue, job.definition)


def _place(job: Job) -> _Place:
    return (job.queue_position, job.run, job.number)
