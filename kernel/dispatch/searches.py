"""Makes the searches of commands: those of the store, and those that are composed of several of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.kernel.composed_searches import (
    FiringSchedules,
    GatheringRuns,
    LinesOfLimit,
    NamedCredentials,
    NamedSchedules,
    NamedTrigger,
    NamespaceContents,
    PublishedMessages,
    RegisteredWorkflows,
    RemovedTopic,
    RunsWithUndeliveredRows,
    SearchedBrowserSessions,
    TopicDeliveries,
    WaitingJobs,
    WaitingRuns,
    following_places,
    line_places,
    slot_place,
)
from holdfast.kernel.dispatch.changed_limits import in_force, lines_of_limit
from holdfast.kernel.dispatch.gathering_reads import gathering_runs
from holdfast.kernel.dispatch.quotas import namespace_contents, registered_workflows
from holdfast.kernel.dispatch.run_rate_lines import rated_runs
from holdfast.kernel.dispatch.schedule_searches import firing_schedules, named_schedules
from holdfast.kernel.dispatch.topic_searches import (
    named_trigger,
    published_messages,
    removed_topic,
    topic_deliveries,
)
from holdfast.kernel.limits.levels import (
    level_places,
    remaining_spans,
    slots_by_level,
    spans_around,
    spans_with_capacity,
    spans_within,
    wanted_runs,
)
from holdfast.kernel.limits.rates import free_starts
from holdfast.kernel.search_results import SearchResult
from holdfast.kernel.state import ComposedSearch, RunsMissingJobs, State
from holdfast.ports.json import canonical
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.job import Job, JobKey
from holdfast.ports.records.limits import RateName
from holdfast.ports.records.outbox import Stream
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.session import Session
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import (
    ActiveRuns,
    AllKeysWaitedFor,
    AnyCredential,
    AnyPendingDelivery,
    BrowserSessionsOfPrincipal,
    CredentialsNamed,
    DueRuns,
    FirstLimitedJobs,
    FirstPendingRuns,
    IncompleteRuns,
    KeysWaitedFor,
    KeysWaitedForInSpans,
    LockedAttempts,
    QueuedUnderRates,
    RunKeys,
    Search,
    SlotPlace,
    SlotsInSpans,
    UndeliveredHeads,
    WaitedFor,
    Waiting,
)
from holdfast.ports.tables import BROWSER_SESSIONS, RATES
from holdfast.ports.working_set import Tables

_KEYS_MAX: Final = 250
"""How many keys of a span are searched at once for runs that a free slot may let in."""
_PAGES_MAX: Final = 4
"""How often more keys are searched if a slot stays free; maintenance looks at those beyond."""


def find(tx: Transaction, state: State, search: Search[Any] | ComposedSearch, now: Micros) -> SearchResult:
    """Make a search, put the rows that it finds into the tables of the state, and return their keys."""
    if isinstance(search, ComposedSearch):
        return _COMPOSED[type(search)](tx, state, search, now)
    answer = tx.find(search, now)
    state.has_limits |= isinstance(answer, LockedAttempts) and answer.has_limits
    return _put(state.tables, answer)


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
        case ScheduleRow():
            by_key = {row.key: row for row in rows}
            tables.schedules.update(by_key)
            return SearchResult(schedules=tuple(by_key))
        case JobKey():
            return SearchResult(jobs=tuple(rows))
        case str():
            return SearchResult(runs=tuple(rows))
        case other:
            raise TypeError(f"a command can't search for {type(other).__name__}")


def _runs_missing_jobs(tx: Transaction, _: State, search: RunsMissingJobs, __: Micros) -> SearchResult:
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


def _runs_with_undelivered_rows(
    tx: Transaction, _: State, search: RunsWithUndeliveredRows, __: Micros
) -> SearchResult:
    keys = tx.find(RunKeys(search.after, search.limit))
    undelivered = tx.find(UndeliveredHeads(search.namespace, search.sinks, keys)) if keys else ()
    following = keys[-1] if keys and len(keys) == search.limit else None
    return SearchResult(stream_heads=tuple(undelivered), checked=len(keys), next=following)


def _named_credentials(tx: Transaction, state: State, search: NamedCredentials, _: Micros) -> SearchResult:
    if search.names:
        for row in tx.find(CredentialsNamed(search.names)):
            state.tables.put(row)
    return SearchResult(checked=int(search.if_any and tx.find(AnyCredential())))


def _searched_browser_sessions(
    tx: Transaction, state: State, search: SearchedBrowserSessions, _: Micros
) -> SearchResult:
    for row in tx.lock(BROWSER_SESSIONS, search.ids) if search.ids else ():
        state.tables.put(row)
    if search.principal:
        for row in tx.find(BrowserSessionsOfPrincipal(search.kind, search.principal)):
            state.tables.put(row)
    return SearchResult()


def _waiting_runs(tx: Transaction, state: State, search: WaitingRuns, now: Micros) -> SearchResult:
    rated = rated_runs(tx, state, search, now)
    runs: Sequence[str] = ()
    following: str | None = None
    after, _ = line_places(search.after)
    if not search.due and (search.keys or (not search.rates and after is not None)):
        wanted, following = _wanted_runs(tx, state, search, after or SlotPlace("", ""))
        runs = tx.find(FirstPendingRuns([*wanted.items()])) if wanted else ()
    only = search.namespace if search.due else None
    due = () if search.keys or search.rates else tx.find(DueRuns(search.limit, only), now)
    return SearchResult(
        runs=(*rated.runs, *runs, *due),
        rates=rated.rates,
        lines=rated.left_out,
        next_at=rated.next_at,
        next=following_places(following, rated.next),
    )


def _waiting_jobs(tx: Transaction, state: State, search: WaitingJobs, now: Micros) -> SearchResult:
    wanted, following = _wanted_jobs(tx, state, search, now)
    limited = tx.find(FirstLimitedJobs(wanted)) if wanted else ()
    return SearchResult(jobs=tuple(limited), next=following)


def _wanted_runs(
    tx: Transaction, state: State, search: WaitingRuns, after: SlotPlace
) -> tuple[Mapping[SlotPlace, int], str | None]:
    """Return how many waiters of each key to look at, and where the next search continues.

    A slot may let in a run of any key with the same outermost level, so those keys are searched with each one.
    """
    every: list[WaitedFor] = []
    wanted: Mapping[SlotPlace, int] = {}
    if not search.keys:
        found = tx.find(AllKeysWaitedFor(Waiting.RUNS, after, search.limit))
        every += in_force(tx, state, Waiting.RUNS, found)
        wanted = wanted_runs(every, _used_around(tx, every), search.limit)
        last = None if len(found) < search.limit or not found else found[-1].place
        if wanted and sum(wanted.values()) >= search.limit and max(wanted) < found[-1].place:
            last = max(wanted)
        return wanted, None if last is None else canonical(list(last))
    spans = spans_around(search.namespace, search.keys)
    for _ in range(_PAGES_MAX):
        found = tx.find(KeysWaitedForInSpans(spans, _KEYS_MAX))
        every += in_force(tx, state, Waiting.RUNS, found)
        used = _used_around(tx, every)
        wanted = wanted_runs(every, used, search.limit)
        spans = spans_with_capacity(remaining_spans(spans, found, _KEYS_MAX), every, used, wanted)
        if not spans:
            break
    return wanted, None


def _used_around(tx: Transaction, found: Sequence[WaitedFor]) -> Mapping[SlotPlace, int]:
    """Return the used slots of all levels of the keys that have outer limits."""
    roots = {level_places(one.place)[0] for one in found if one.outer}
    spans = [span for root in sorted(roots) for span in spans_within(root)]
    return slots_by_level(tx.find(SlotsInSpans(spans))) if spans else {}


def _wanted_jobs(
    tx: Transaction, state: State, search: WaitingJobs, now: Micros
) -> tuple[list[tuple[SlotPlace, int]], str | None]:
    """Return for each key with capacity how many waiters to look at, and where the next search continues."""
    found: Sequence[WaitedFor]
    if search.keys:
        found = tx.find(
            KeysWaitedFor(Waiting.JOBS, {SlotPlace(search.namespace, key) for key in search.keys})
        )
    else:
        found = tx.find(AllKeysWaitedFor(Waiting.JOBS, slot_place(search.after), search.limit))
    found = in_force(tx, state, Waiting.JOBS, found)
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


_COMPOSED: Final[Mapping[type, Callable[[Transaction, State, Any, Micros], SearchResult]]] = {
    FiringSchedules: firing_schedules,
    GatheringRuns: gathering_runs,
    LinesOfLimit: lines_of_limit,
    NamedCredentials: _named_credentials,
    NamespaceContents: namespace_contents,
    RegisteredWorkflows: registered_workflows,
    NamedSchedules: named_schedules,
    NamedTrigger: named_trigger,
    PublishedMessages: published_messages,
    TopicDeliveries: topic_deliveries,
    RemovedTopic: removed_topic,
    RunsMissingJobs: _runs_missing_jobs,
    RunsWithUndeliveredRows: _runs_with_undelivered_rows,
    SearchedBrowserSessions: _searched_browser_sessions,
    WaitingRuns: _waiting_runs,
    WaitingJobs: _waiting_jobs,
}
