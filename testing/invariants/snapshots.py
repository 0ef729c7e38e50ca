"""The rows of a store at one moment, and how to get them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.ports.persistence import (
    HistoryOf,
    JobsOfRun,
    ListRuns,
    Persistence,
    PlansByFingerprint,
    RunFilter,
    RunsByKey,
)
from holdfast.ports.records import HistoryRow, Job, Run, RunPlace, Session
from holdfast.ports.tables import Tables

_PAGE: Final = 500
_TRIES_MAX: Final = 20


@attrs.frozen(kw_only=True)
class Snapshot:
    """The rows of a store at one moment, as far as the invariants speak of them.

    `jobs` and `history` are by run key, `plans` the stored JSON texts by fingerprint. `sessions` are at least those
    that hold a lease.
    """

    runs: Mapping[str, Run]
    jobs: Mapping[str, Mapping[int, Job]]
    history: Mapping[str, Sequence[HistoryRow]]
    plans: Mapping[str, str]
    sessions: Mapping[str, Session]


def snapshot_of(store: Persistence | Tables, namespaces: Sequence[str] = ("default",)) -> Snapshot:
    """Return what is in a store: all of it, if it is in memory; else the runs of these namespaces.

    A database is asked one run at a time, and again where a run changed meanwhile: what is returned of each run is of
    one moment, but not of the same for all. TimeoutError if a run changes faster than it can be read.
    """
    if isinstance(store, MemoryPersistence):
        store = store.dump()
    return _of_tables(store) if isinstance(store, Tables) else _of_database(store, namespaces)


def as_snapshot(store: Snapshot | Tables) -> Snapshot:
    """Return what is in tables, or the snapshot that it is already."""
    return _of_tables(store) if isinstance(store, Tables) else store


def _of_tables(tables: Tables) -> Snapshot:
    return Snapshot(
        runs=tables.runs,
        jobs=tables.jobs,
        history=tables.history,
        plans={plan.fingerprint: plan.body for plan in tables.plans.values()},
        sessions=tables.sessions,
    )


def _of_database(store: Persistence, namespaces: Sequence[str]) -> Snapshot:
    runs: dict[str, Run] = {}
    jobs: dict[str, dict[int, Job]] = {}
    history: dict[str, list[HistoryRow]] = {}
    for listed in _runs(store, namespaces):
        run, jobs[run.key], history[run.key] = _read_run(store, listed)
        runs[run.key] = run
    fingerprints = tuple(sorted({run.plan for run in runs.values()}))
    holders = {job.session for of_run in jobs.values() for job in of_run.values() if job.session is not None}
    sessions = store.transact(lambda tx: tx.sessions(sorted(holders), lock=False))
    return Snapshot(
        runs=runs,
        jobs=jobs,
        history=history,
        plans={plan.fingerprint: plan.body for plan in store.read(PlansByFingerprint(fingerprints))},
        sessions={session.id: session for session in sessions},
    )


def _runs(store: Persistence, namespaces: Sequence[str]) -> Iterator[Run]:
    for namespace in namespaces:
        after: RunPlace | None = None
        while page := store.read(ListRuns(RunFilter(namespace=namespace), after=after, limit=_PAGE)):
            yield from page
            after = page[-1].place


def _read_run(store: Persistence, run: Run) -> tuple[Run, dict[int, Job], list[HistoryRow]]:
    for _ in range(_TRIES_MAX):
        jobs = {job.number: job for job in store.read(JobsOfRun(run.key))}
        history: list[HistoryRow] = []
        while page := store.read(HistoryOf(run.key, after=len(history), limit=_PAGE)):
            history.extend(page)
            if len(history) > run.last_row:
                break  # it goes on meanwhile, or it is broken
        (again,) = store.read(RunsByKey((run.key,)))
        if again == run:
            return run, jobs, history
        run = again
    raise TimeoutError(f"run {run.key} changes faster than it can be read")
