"""Snapshots of a store's contents, for tests of the invariants.

assert check(snapshot_of(store)) == []
"""

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.kernel.invariants import Snapshot, as_snapshot
from holdfast.ports.pagination import ListPlace
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.runs import JobsOfRun, ListRuns, RunFilter, RunsByKey
from holdfast.ports.queries.values import PlansByFingerprint
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job
from holdfast.ports.records.run import Run
from holdfast.ports.tables import SESSIONS
from holdfast.ports.working_set import Tables

_PAGE: Final = 500
_TRIES_MAX: Final = 20


def snapshot_of(store: Persistence | Tables, namespaces: Sequence[str] = ("default",)) -> Snapshot:
    """Return the contents of a store: everything of a store in memory; else the runs of these namespaces.

    A database is read run by run, and a run is read again if it changes meanwhile: each run is consistent, but
    different runs may be of different instants. Raises TimeoutError if a run changes faster than it can be read.
    """
    if isinstance(store, MemoryPersistence):
        store = store.dump()
    return as_snapshot(store) if isinstance(store, Tables) else _of_database(store, namespaces)


def _of_database(store: Persistence, namespaces: Sequence[str]) -> Snapshot:
    runs: dict[str, Run] = {}
    jobs: dict[str, dict[int, Job]] = {}
    history: dict[str, list[HistoryRow]] = {}
    for listed in _runs(store, namespaces):
        run, jobs[run.key], history[run.key] = _read_run(store, listed)
        runs[run.key] = run
    fingerprints = tuple(sorted({run.plan for run in runs.values()}))
    holders = {job.session for of_run in jobs.values() for job in of_run.values() if job.session is not None}
    sessions = store.transact(lambda tx: tx.get(SESSIONS, sorted(holders)))
    return Snapshot(
        runs=runs,
        jobs=jobs,
        history=history,
        plans={plan.fingerprint: plan.body for plan in store.read(PlansByFingerprint(fingerprints))},
        sessions={session.id: session for session in sessions},
    )


def _runs(store: Persistence, namespaces: Sequence[str]) -> Iterator[Run]:
    for namespace in namespaces:
        after: ListPlace | None = None
        while page := store.read(ListRuns(RunFilter(namespace=namespace), after=after, limit=_PAGE)):
            yield from page
            after = page[-1].place


def _read_run(store: Persistence, run: Run) -> tuple[Run, dict[int, Job], list[HistoryRow]]:
    for _ in range(_TRIES_MAX):
        jobs = {job.number: job for job in store.read(JobsOfRun(run.key))}
        history: list[HistoryRow] = []
        while page := store.read(HistoryOf(run.key, after=history[-1].number if history else 0, limit=_PAGE)):
            history.extend(page)
            if history[-1].number > run.last_row:
                break  # the run continues meanwhile, or it is broken
        (again,) = store.read(RunsByKey((run.key,)))
        if again == run:
            return run, jobs, history
        run = again
    raise TimeoutError(f"run {run.key} changes faster than it can be read")
