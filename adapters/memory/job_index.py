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
from holdfast.ports.records.job import (
    Job,
    JobKey,
    JobKind,
    JobState,
    PassOver,
    cancelling,
    held_job,
    waits_since,
)
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import PartTurn, QueueClaim, QueuePart, TurnsAround, WaitingTurn
from holdfast.ports.working_set import Tables, checks_of

_Place = tuple[int, str, int]
_Turn = tuple[int, str, Micros]
_QueueKey = tuple[str, str, str]


class JobOrder:
    """Sorted indexes of the queued jobs by queue and definition, and of sleeping jobs. Updated before each change."""

    def __init__(self) -> None:
        self._queued: dict[_QueueKey, list[_Place]] = {}
        self._turns: dict[QueuePart, list[_Turn]] = {}
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
                    if job.kind not in (JobKind.CANCEL, JobKind.DELIVER):
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

    def first_turn(self, part: QueuePart) -> WaitingTurn | None:
        """Return the lowest turn in a part; None if no job waits there for its turn."""
        turns = self._turns.get(part)
        return _waiting(turns[0]) if turns else None

    def turns_around(self, place: PartTurn) -> TurnsAround:
        """Return what waits on both sides of a turn."""
        turns = self._turns.get(place.part, [])
        at = bisect_left(turns, (place.turn, "", 0))
        before = _waiting(turns[at - 1]) if at else None
        return TurnsAround(before, _waiting(turns[at]) if at < len(turns) else None)

    def _add(self, job: Job) -> None:
        if job.waits_for_turn:
            insort(self._turns.setdefault(_part(job), []), _turn(job))
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
        if job.waits_for_turn:
            turns = self._turns[_part(job)]
            del turns[bisect_left(turns, _turn(job))]
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


def _part(job: Job) -> QueuePart:
    return QueuePart(job.namespace, job.queue, job.definition)


def _turn(job: Job) -> _Turn:
    assert job.turn is not None
    return (job.turn, job.run, waits_since(job.queue_position, job.priority))


def _waiting(turn: _Turn) -> WaitingTurn:
    return WaitingTurn(turn[0], turn[2])
