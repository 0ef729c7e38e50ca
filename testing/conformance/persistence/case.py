"""The base class of the store's tests, and helpers that most of them use."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import pytest
from attrs import evolve
from typing_extensions import TypeVar

from holdfast.ports.changes import Change, Insert, Update
from holdfast.ports.persistence import Persistence, Query, Transaction
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.records.job import Job, JobState, PassOver
from holdfast.ports.records.run import Run
from holdfast.ports.searches import ClaimableJobs, JobsOfRuns, QueueClaim
from holdfast.testing.conformance.builders import DEFINITION, NAMESPACE, NOW, QUEUE, a_run

R = TypeVar("R")


class PersistenceCase(ABC):
    """The base class of each group of tests; names the store under test."""

    serial: ClassVar[bool] = False
    """Whether this store runs one transaction at a time, so that transactions never overlap."""

    reads_wait: ClassVar[bool] = False
    """Whether a query waits for the open transaction: acceptable in tests, not in production."""

    @abstractmethod
    def make_persistence(self) -> Persistence:
        """Return an empty store. Each test gets its own, calls `setup` on it and finally `close`."""

    def open_again(self, store: Persistence) -> Persistence | None:
        """Return another store on the same rows, as a second process would open; None if impossible."""
        del store
        return None

    @pytest.fixture
    def store(self) -> Iterator[Persistence]:
        """An empty store, ready for use."""
        store = self.make_persistence()
        try:
            store.setup()
            yield store
        finally:
            store.close()

    @pytest.fixture
    def other(self, store: Persistence) -> Iterator[Persistence]:
        """A second store on the rows of `store`."""
        other = self.open_again(store)
        if other is None:
            pytest.skip("this store can't be opened twice")
        try:
            yield other
        finally:
            other.close()


def put(store: Persistence, *changes: Change) -> None:
    """Apply changes in one transaction."""
    store.transact(lambda tx: tx.apply(changes))


def put_run(store: Persistence, run: Run, *jobs: Job) -> None:
    """Store a run and its jobs, with the job counts in its row."""
    last_job = max((job.number for job in jobs), default=0)
    put(store, Insert(evolve(run, open_jobs=len(jobs), last_job=last_job)), *map(Insert, jobs))


def put_jobs(store: Persistence, *jobs: Job) -> None:
    """Store jobs, and the runs to which they belong."""
    of_run: dict[str, list[Job]] = {}
    for job in jobs:
        of_run.setdefault(job.run, []).append(job)
    changes: list[Change] = []
    for key, theirs in of_run.items():
        run = a_run(key=key, id=f"of-{key}", namespace=theirs[0].namespace)
        counts = evolve(run, open_jobs=len(theirs), last_job=max(job.number for job in theirs))
        changes += [Insert(counts), *map(Insert, theirs)]
    put(store, *changes)


def query(store: Persistence, question: Callable[[Transaction], Sequence[R]]) -> list[R]:
    """Return the result of a read within a transaction, as a list."""
    return list(store.transact(question))


def jobs_of(store: Persistence, *runs: str) -> list[Job]:
    """Return the jobs of runs, by run and number."""
    return sorted(query(store, lambda tx: tx.find(JobsOfRuns(runs))), key=lambda job: job.key)


def the_run(store: Persistence, key: str) -> Run:
    """Return a stored run. Raises ValueError if the run is missing."""
    (run,) = store.read(RunsByKey((key,)))
    return run


def a_queue_claim(
    limit: int = 1_000, *, queue: str = QUEUE, definitions: tuple[str, ...] = (DEFINITION,)
) -> QueueClaim:
    """Return a worker's claim on one queue."""
    return QueueClaim(queue=queue, definitions=definitions, limit=limit)


def claimable(
    store: Persistence,
    *queue_claims: QueueClaim,
    limit: int = 1_000,
    namespace: str = NAMESPACE,
    pass_over: PassOver = PassOver.NOTHING,
) -> list[Job]:
    """Return the jobs that could be claimed now, in order."""
    return query(
        store, lambda tx: tx.find(ClaimableJobs(namespace, queue_claims, limit, pass_over=pass_over)).jobs
    )


def claim(store: Persistence, session: str, limit: int) -> list[Job]:
    """Lease jobs of the default queue to a session and return them."""

    def work(tx: Transaction) -> list[Job]:
        leased = [
            lease(job, session)
            for job in tx.find(ClaimableJobs(NAMESPACE, (a_queue_claim(),), limit, session=session)).jobs
        ]
        tx.apply([Update(job) for job in leased])
        return leased

    return store.transact(work)


def lease(job: Job, session: str) -> Job:
    """Return the job as it is after a claim."""
    return evolve(
        job,
        state=JobState.LEASED,
        session=session,
        epoch=job.epoch + 1,
        attempts=job.attempts + 1,
        leased_at=NOW,
    )


class UnknownQuery(Query[int]):
    """A query that no store implements."""
