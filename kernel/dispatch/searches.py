"""Makes the searches of commands: those of the store, and those that are composed of several of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.kernel.limits.rates import free_starts
from holdfast.kernel.state import (
    ComposedSearch,
    RunsMissingJobs,
    RunsWithUndeliveredRows,
    SearchResult,
    WaitingJobs,
    WaitingRuns,
    slot_place,
)
from holdfast.ports.json import canonical
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.job import Job, JobKey
from holdfast.ports.records.limits import RateName
from holdfast.ports.records.outbox import Stream
from holdfast.ports.records.session import Session
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import (
    ActiveRuns,
    AllKeysWaitedFor,
    AnyPendingDelivery,
    DueRuns,
    FirstLimitedJobs,
    FirstPendingRuns,
    IncompleteRuns,
    KeysWaitedFor,
    LockedAttempts,
    QueuedUnderRates,
    RunKeys,
    Search,
    SlotPlace,
    UndeliveredHeads,
    WaitedFor,
    Waiting,
)
from holdfast.ports.tables import RATES
from holdfast.ports.working_set import Tables


def find(tx: Transaction, tables: Tables, search: Search[Any] | ComposedSearch, now: Micros) -> SearchResult:
    """Make a search, put the rows that it finds into `tables`, and return their keys."""
    if isinstance(search, ComposedSearch):
        return _COMPOSED[type(search)](tx, search, now)
    return _put(tables, tx.find(search, now))


def _put(tables: Tables, answer: Sequence[object]) -> SearchResult:
    """Put the rows of an answer into `tables`, and return the keys of its rows, or the keys that it has."""
    rows: Sequence[Any] = answer
    if isinstance(answer, LockedAttempts):
        tables.sessions.update((session.id, session) for session in answer.sessions)
        rows = answer.jobs
    match next(iter(rows), None):
        case None:
            return SearchResult()
        case Job():
            for job in rows:
                tables.put(job)
            return SearchResult(jobs=tuple(job.key for job in rows))
        case Session():
            tables.sessions.update((session.id, session) for session in rows)
            return SearchResult(sessions=tuple(session.id for session in rows))
        case Stream():
            tables.streams.update((stream.key, stream) for stream in rows)
            return SearchResult(streams=tuple(stream.key for stream in rows))
        case JobKey():
            return SearchResult(jobs=tuple(rows))
        case str():
            return SearchResult(runs=tuple(rows))
        case other:
            raise TypeError(f"a command can't search for {type(other).__name__}")


def _runs_missing_jobs(tx: Transaction, search: RunsMissingJobs, _: Micros) -> SearchResult:
    if search.run is not None:
        return SearchResult(runs=(search.run,), checked=1)
    keys = tx.find(ActiveRuns(search.after, search.limit))
    incomplete = tx.find(IncompleteRuns(keys)) if keys else ()
    following = keys[-1] if keys and len(keys) == search.limit else None
    return SearchResult(
        runs=tuple(incomplete),
        checked=len(keys),
        next=following,
        has_deliveries=tx.find(AnyPendingDelivery()),
    )


def _runs_with_undelivered_rows(tx: Transaction, search: RunsWithUndeliveredRows, _: Micros) -> SearchResult:
    keys = tx.find(RunKeys(search.after, search.limit))
    undelivered = tx.find(UndeliveredHeads(search.namespace, search.sinks, keys)) if keys else ()
    following = keys[-1] if keys and len(keys) == search.limit else None
    return SearchResult(stream_heads=tuple(undelivered), checked=len(keys), next=following)


def _waiting_runs(tx: Transaction, search: WaitingRuns, now: Micros) -> SearchResult:
    wanted, following = _wanted(tx, Waiting.RUNS, search, now)
    runs = tx.find(FirstPendingRuns(wanted)) if wanted else ()
    due = () if search.keys else tx.find(DueRuns(search.limit), now)
    return SearchResult(runs=(*runs, *due), next=following)


def _waiting_jobs(tx: Transaction, search: WaitingJobs, now: Micros) -> SearchResult:
    wanted, following = _wanted(tx, Waiting.JOBS, search, now)
    limited = tx.find(FirstLimitedJobs(wanted)) if wanted else ()
    return SearchResult(jobs=tuple(limited), next=following)


def _wanted(
    tx: Transaction, waiting: Waiting, search: WaitingRuns | WaitingJobs, now: Micros
) -> tuple[list[tuple[SlotPlace, int]], str | None]:
    """Return for each key with capacity how many waiters to look at, and where the next search continues."""
    found: Sequence[WaitedFor]
    if search.keys:
        found = tx.find(KeysWaitedFor(waiting, {SlotPlace(search.namespace, key) for key in search.keys}))
    else:
        found = tx.find(AllKeysWaitedFor(waiting, slot_place(search.after), search.limit))
    most_of = _capacity(tx, found, now)
    wanted: list[tuple[SlotPlace, int]] = []
    left = search.limit
    for one in found:
        if left == 0:
            return wanted, canonical(list(wanted[-1][0]))
        most = min(most_of[one.place], left)
        if most:
            wanted.append((one.place, most))
            left -= most
    is_all = bool(search.keys) or len(found) < search.limit or not found
    return wanted, None if is_all else canonical(list(found[-1].place))


def _capacity(tx: Transaction, found: Sequence[WaitedFor], now: Micros) -> Mapping[SlotPlace, int]:
    """Return how many waiters of each key to look at: as many as there is capacity for.

    With a rate limit it is one more: that job is put to sleep until another start is allowed.
    """
    rated = [one for one in found if one.rate_limit is not None]
    capacity = {one.place: 0 if one.free is None else one.free for one in found}
    if not rated:
        return capacity
    names = [RateName(*one.place) for one in rated]
    windows = {window.rate_name: window for window in tx.get(RATES, names)}
    queued = tx.find(QueuedUnderRates([one.place for one in rated]))
    for one in rated:
        window = windows.get(RateName(*one.place))
        free = free_starts(window, one, now) - queued.get(one.place, 0)
        sleeps = window is not None and window.wakes_at is not None and window.wakes_at > now
        most = max(free, 0) + (not sleeps or free > 0)
        capacity[one.place] = most if one.free is None else min(most, one.free)
    return capacity


_COMPOSED: Final[Mapping[type, Callable[[Transaction, Any, Micros], SearchResult]]] = {
    RunsMissingJobs: _runs_missing_jobs,
    RunsWithUndeliveredRows: _runs_with_undelivered_rows,
    WaitingRuns: _waiting_runs,
    WaitingJobs: _waiting_jobs,
}
