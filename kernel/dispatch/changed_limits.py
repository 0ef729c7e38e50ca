"""Reads the limits that operators have changed, and searches for what a change may release.

Whether there are any such rows comes along with searches and sessions that are read anyway. Without any, nothing more
is read.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from holdfast.kernel.composed_searches import LinesOfLimit, WaitingJobs, WaitingRuns
from holdfast.kernel.dispatch.read_set import ReadSet
from holdfast.kernel.limits.levels import level_places
from holdfast.kernel.limits.limit_names import LimitKind, ParsedLimit, names_of_place, parsed_limit
from holdfast.kernel.limits.overrides import names_of, waited_for_in_force
from holdfast.kernel.search_results import SearchResult
from holdfast.kernel.state import Reads, State
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import canonical, parse
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.job import Job
from holdfast.ports.records.limits import LimitName, queue_limit
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import (
    AllKeysWaitedFor,
    ClaimableJobs,
    QueuedOfQueue,
    SleepersUnderRates,
    SlotPlace,
    WaitedFor,
    Waiting,
)
from holdfast.ports.tables import LIMITS

_FIRST: Final = ("", 0, "", 0)
"""The place before all queued jobs of a queue."""


def read_limits(tx: Transaction, state: State, needs: list[Reads], _: ReadSet) -> None:
    """Lock the limits that commands change; read those that what was found is under, after its slots are locked.

    An admission that waited for a slot so goes by the limit that is in force once it has it.
    """
    tables = state.tables
    changed = {name for reads in needs for name in reads.limits}
    if changed:
        tables.limits.update((row.limit_name, row) for row in tx.lock(LIMITS, sorted(changed)))
    # Starts read no column that says whether any limit was changed.
    refusing = {
        name for rate in state.refusing for name in names_of_place(SlotPlace(*rate), Waiting.RATED_RUNS)
    }
    if not state.has_limits and not refusing:
        return
    names = {*refusing, *_names_of_found(state), *_names_of_claimed(state, needs)} - changed
    if names:
        tables.limits.update((row.limit_name, row) for row in tx.get(LIMITS, sorted(names)))


def _names_of_found(state: State) -> Iterator[LimitName]:
    tables = state.tables
    for search, found in state.found.items():
        one: Run | Job | None
        if isinstance(search, ClaimableJobs | WaitingJobs):
            for one in map(tables.job, found.jobs):
                if one is not None:
                    yield from names_of(one)
        elif isinstance(search, WaitingRuns):
            for one in map(tables.runs.get, found.runs):
                if one is not None:
                    yield from names_of(one)


def _names_of_claimed(state: State, needs: Iterable[Reads]) -> Iterator[LimitName]:
    for reads in needs:
        for key in (*reads.starts, *reads.takers):
            job = state.tables.job(key)
            if job is not None:
                yield queue_limit(job.namespace, job.queue)
                yield from names_of(job)


def in_force(
    tx: Transaction, state: State, waiting: Waiting, found: Sequence[WaitedFor]
) -> Sequence[WaitedFor]:
    """Return concurrency keys that are waited for with the limits in force."""
    if not any(one.has_limits for one in found):
        return found
    state.has_limits = True
    places = {place for one in found for place in (*level_places(one.place)[: len(one.outer)], one.place)}
    names = {name for place in places for name in names_of_place(place, waiting)}
    rows = {row.limit_name: row for row in tx.get(LIMITS, sorted(names))}
    return [waited_for_in_force(rows, waiting, one) for one in found] if rows else found


def lines_of_limit(tx: Transaction, state: State, search: LinesOfLimit, now: Micros) -> SearchResult:
    """Find what a change of a limit may release. See `LinesOfLimit`."""
    limit = parsed_limit(search.name)
    namespace, most = search.namespace, search.limit
    match limit.kind:
        case LimitKind.QUEUE:
            place = _place(search.after)
            queued = tx.find(QueuedOfQueue(namespace, limit.names[0], place, most))
            return SearchResult(queued=tuple(queued), next=_following(queued, most))
        case LimitKind.RUN:
            return SearchResult(lines=limit.names)
        case LimitKind.RUN_RATE:
            return SearchResult(lines=_lines_of_rate(tx, limit, namespace, most))
        case _:
            pass
    end = "" if limit.text is None else f"/{limit.text}"
    sleepers: list[Job] = []
    starts = {limit.start} if limit.key is None else {limit.start, limit.key}
    for start in sorted(starts):
        whole = start if start == limit.key else end  # the key itself, not all that begin with it
        sleepers += tx.find(SleepersUnderRates(namespace, start, whole, most), now)
    ours = {job.key: job for job in sleepers if limit.has_line(job.concurrency_key or "")}
    for job in ours.values():
        state.tables.put(job)
    lines = {job.concurrency_key: None for job in ours.values() if job.concurrency_key is not None}
    if limit.key is not None:
        lines[limit.key] = None
    if limit.key is None or limit.text is None:
        after = SlotPlace(namespace, limit.start)
        for waited in tx.find(AllKeysWaitedFor(Waiting.JOBS, after, most)):
            if waited.place.namespace == namespace and limit.has_line(waited.place.key):
                lines[waited.place.key] = None
    following = "more" if len(sleepers) >= most > 0 else None
    return SearchResult(jobs=tuple(sorted(ours)), lines=tuple(lines), next=following)


def _lines_of_rate(tx: Transaction, limit: ParsedLimit, namespace: str, most: int) -> tuple[str, ...]:
    """Return the lines under a rate of starts: its own, and those of texts of an attribute for which runs wait."""
    if limit.text is not None:
        return (limit.name,)
    after = SlotPlace(namespace, limit.start)
    found = (one.place for one in tx.find(AllKeysWaitedFor(Waiting.RATED_RUNS, after, most)))
    others = (place.key for place in found if place.namespace == namespace and limit.has_line(place.key))
    return (limit.name, *others)


def _place(text: str) -> tuple[str, Micros, str, int]:
    try:
        place = parse(text) if text else list(_FIRST)
    except (ValueError, RecursionError):
        place = None
    match place:
        case [str(definition), int(rank), str(run), int(number)]:
            return definition, rank, run, number
        case _:
            raise InvalidCommandError(f"after is {text[:100]!r}; it must be `next` of a reply")


def _following(queued: Sequence[Job], most: int) -> str | None:
    if not queued or len(queued) < most:
        return None
    last = queued[-1]
    return canonical([last.definition, last.queue_position, last.run, last.number])
