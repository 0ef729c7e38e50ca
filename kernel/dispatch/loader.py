"""Reads the rows that a batch of commands needs: many rows at a time, with locks taken in one fixed order."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeAlias

import attrs

from holdfast.kernel.dispatch.read_set import ReadSet
from holdfast.kernel.history.reader import last_row_of
from holdfast.kernel.pipelines.plan import plan_from_json
from holdfast.kernel.pipelines.plan_cache import PlanCache
from holdfast.kernel.pipelines.progress import driver_of
from holdfast.kernel.search_results import SearchResult
from holdfast.kernel.state import NOTHING, ComposedSearch, Reads, RunsMissingJobs, State
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import HELD, RunName
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import (
    JobsOfRuns,
    LatestRuns,
    LatestRunsAndDrivers,
    Search,
    SessionsForClaims,
    SinksByName,
)
from holdfast.ports.structs import frozen
from holdfast.ports.tables import HISTORY, JOBS, LEADERS, PLANS, RUNS, STREAMS
from holdfast.ports.unreadable import PARSE_ERRORS

FeatureRead: TypeAlias = Callable[[Transaction, State, list[Reads], ReadSet], None]
"""Reads the rows of one feature that these commands need."""


@frozen(kw_only=True)
class FeatureReads:
    """How the rows of features are found and read (`kernel/dispatch/features.py`)."""

    find: Callable[[Transaction, State, Search[Any] | ComposedSearch, Micros], SearchResult]
    """Makes a search, puts the rows that it finds into the tables, and returns their keys."""
    before_locks: tuple[FeatureRead, ...]
    """Called before anything else is read or locked."""
    after_locks: tuple[FeatureRead, ...]
    """Called once runs and jobs are locked."""
    before_plans: tuple[FeatureRead, ...]
    after_plans: tuple[FeatureRead, ...]


def load(
    tx: Transaction,
    needs: Iterable[Reads],
    now: Micros,
    state: State,
    known_plans: PlanCache,
    features: FeatureReads,
) -> None:
    """Read the rows that commands with these needs depend on into a new state.

    `known_plans` is a cache of plans, which never change. Plans read here are added to it.
    """
    all_needs = [reads for reads in needs if reads is not NOTHING]
    wanted = ReadSet()
    for reads in all_needs:
        wanted.add(reads)
    for read in features.before_locks:
        read(tx, state, all_needs, wanted)
    for reads in all_needs:
        if reads.search is None:
            continue
        found = state.found.get(reads.search)
        if found is None:
            found = features.find(tx, state, reads.search, now)
            if state.excluded and not (
                isinstance(reads.search, RunsMissingJobs) and reads.search.run is not None
            ):
                found = _exclude(found, state.excluded)
            state.found[reads.search] = found
            wanted.add_found(reads, found, state.tables)
        if reads.drivers:
            wanted.driven.update(found.runs)
            wanted.driven.update(found.run_names)
        if found.to_end:
            wanted.runs.update(found.to_end)
            wanted.driven.update(found.to_end)
    lock_rows(tx, state, wanted)
    for read in features.after_locks:
        read(tx, state, all_needs, wanted)
    _sessions(tx, state, all_needs)
    unlocked = {key for key in wanted.seen - wanted.jobs if state.tables.job(key) is None}
    if unlocked:
        for job in tx.get(JOBS, sorted(unlocked)):
            state.tables.put(job)
    if wanted.leader_leases:
        leases = tx.lock(LEADERS, sorted(wanted.leader_leases))
        state.tables.leaders.update((lease.name, lease) for lease in leases)
    _sinks(tx, state, all_needs)
    for read in features.before_plans:
        read(tx, state, all_needs, wanted)
    _plans(tx, state, known_plans)
    for read in features.after_plans:
        read(tx, state, all_needs, wanted)
    _unseen(tx, state, all_needs)


def _exclude(found: SearchResult, excluded: frozenset[str]) -> SearchResult:
    """Return the result of a search without the runs that have unreadable rows, and without their jobs."""
    return attrs.evolve(
        found,
        jobs=tuple(key for key in found.jobs if key.run not in excluded),
        runs=tuple(key for key in found.runs if key not in excluded),
    )


def _sinks(tx: Transaction, state: State, needs: list[Reads]) -> None:
    """Read sinks before streams: locks are taken in this order."""
    needs = [reads for reads in needs if reads.sinks or reads.streams]
    if not needs:
        return
    tables = state.tables
    locked = {name for reads in needs if reads.locks_sinks for name in reads.sinks}
    plain = {name for reads in needs if not _is_needless(state, reads) for name in reads.sinks} - locked
    for names, locks in ((locked, True), (plain, False)):
        if names:
            sinks = tx.find(SinksByName(sorted(names), locks=locks))
            tables.sinks.update((sink.key, sink) for sink in sinks)
    streams = {key for reads in needs for key in reads.streams} - tables.streams.keys()
    if streams:
        tables.streams.update((stream.key, stream) for stream in tx.lock(STREAMS, sorted(streams)))


def lock_rows(tx: Transaction, state: State, wanted: ReadSet) -> None:
    """Lock runs, then jobs, and put them into the tables."""
    tables, whole, driven = state.tables, wanted.whole, wanted.driven
    if wanted.names and wanted.names <= driven and not (wanted.jobs or wanted.runs or whole):
        # One round trip, as most functions are driven by their first job.
        latest = tx.find(LatestRunsAndDrivers(sorted(wanted.names)))
        first_jobs = set(map(driver_of, latest.runs))
        for run in latest.runs:
            tables.put(run)
        for job in latest.jobs:
            if job.key in first_jobs:
                tables.put(job)
    elif wanted.names:
        for run in tx.find(LatestRuns(sorted(wanted.names))):
            tables.put(run)
    runs = (wanted.runs | whole) - tables.runs.keys()
    jobs = wanted.jobs
    if runs and jobs and not driven:  # one round trip, since the job keys are known
        held = tx.lock_attempts(sorted(runs), sorted(jobs), sorted(wanted.sessions))
        for run in held.runs:
            tables.put(run)
        for job in held.jobs:
            tables.put(job)
        tables.sessions.update((session.id, session) for session in held.sessions)
        state.has_limits |= held.has_limits
    else:
        for run in tx.lock(RUNS, sorted(runs)) if runs else ():
            tables.put(run)
        driven_runs = (run for run in tables.runs.values() if driven & {run.key, run.name}) if driven else ()
        found = map(driver_of, driven_runs)
        drivers = {key for key in found if key is not None and tables.job(key) is None}
        for job in tx.lock(JOBS, sorted(jobs | drivers)) if jobs or drivers else ():
            if (
                job.key in jobs or job.kind is JobKind.WORKFLOW
            ):  # `driver_of` returns the job of a stage for a pipeline
                tables.put(job)
    with_jobs = wanted.with_jobs | whole
    with_jobs |= {tables.newest[name] for name in wanted.whole_names & tables.newest.keys()}
    with_jobs |= _held(state, driven)
    if wanted.exhausted:
        with_jobs |= _exhausted(state)
    if with_jobs:
        for job in tx.find(JobsOfRuns(sorted(with_jobs))):
            tables.put(job)


def _held(state: State, driven: set[str | RunName]) -> set[str]:
    """Return the paused and blocked runs among `driven` that have jobs beside the one that drives a function."""
    runs = state.tables.runs.values()
    return {
        run.key for run in runs if run.status in HELD and run.open_jobs > 1 and driven & {run.key, run.name}
    }


def _exhausted(state: State) -> set[str]:
    """Return the runs whose functions were lost as often as allowed."""
    jobs = state.tables.all_jobs()
    return {job.run for job in jobs if job.kind is JobKind.WORKFLOW and job.attempts >= job.max_attempts}


def _sessions(tx: Transaction, state: State, needs: list[Reads]) -> None:
    locked: set[str] = set()
    plain: set[str] = set()
    for reads in needs:
        if reads.sessions and reads.locks_sessions:
            locked.update(reads.sessions)
        elif reads.sessions and not _is_needless(state, reads):
            plain.update(reads.sessions)
    tables = state.tables
    plain -= locked | tables.sessions.keys()
    if any(reads.holders for reads in needs):
        plain.update(job.session for job in tables.all_jobs() if job.session is not None)
    for ids, locks in ((locked, True), (plain, False)):
        if ids:
            found = tx.find(SessionsForClaims(sorted(ids), locks))
            tables.sessions.update((session.id, session) for session in found.sessions)
            state.has_limits |= found.has_limits


def _is_needless(state: State, reads: Reads) -> bool:
    """Whether the search found nothing that the sessions and sinks would go with."""
    if not reads.if_found or reads.search is None:
        return False
    found = state.found[reads.search]
    return not found.jobs and not found.streams


def _unseen(tx: Transaction, state: State, needs: list[Reads]) -> None:
    """Read the history rows that functions have not received yet. There rarely are any, as the row of the run shows."""
    after: dict[str, int] = {}
    for run, seen in (unseen for reads in needs for unseen in reads.history_after):
        after[run] = min(seen, after.get(run, seen))
    state.new_rows.update((run, []) for run in after)
    wanted = [
        (run, number)
        for run, seen in sorted(after.items())
        if run in state.tables.runs
        for number in range(seen + 1, last_row_of(state.tables.runs[run], seen) + 1)
    ]
    if wanted:
        for row in tx.get(HISTORY, wanted):
            state.new_rows[row.run].append(row)


def _plans(tx: Transaction, state: State, known: PlanCache) -> None:
    if not state.tables.runs:
        return
    wanted = {run.plan for run in state.tables.runs.values()} | state.plans_of_starts
    state.plans.update(known.found(wanted))
    missing = wanted - state.plans.keys()
    if missing:
        for row in tx.get(PLANS, sorted(missing)):
            with suppress(*PARSE_ERRORS):  # `State.plan_of` raises for the run that needs it
                state.plans[row.fingerprint] = plan = plan_from_json(row.body)
                known.add(plan)
