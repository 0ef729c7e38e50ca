"""Reads a whole store in parts, without locks, each part with the rows that the invariant checks need."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

from holdfast.kernel.invariants import Snapshot, Violation, check_part, overdue
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.audit import LAST, HistoriesOf, RelatedRuns, UnreadableRows, WholeRun, WholeRuns
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.queries.values import PlansByFingerprint
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job
from holdfast.ports.records.run import TERMINAL, Run, RunName
from holdfast.ports.records.session import Session
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import RunKeys
from holdfast.ports.tables import SESSIONS
from holdfast.ports.unreadable import Unreadable

PAGE_RUNS: Final = 200
"""The number of runs read at a time."""
PART_ROWS: Final = 20_000
"""The maximum number of history rows in memory, unless a single run has more."""
ROWS_AT_ONCE: Final = 5_000
"""The number of history rows read at a time."""
PLANS_KEPT: Final = 500
"""The number of plans in the cache before it is cleared."""


@attrs.frozen(kw_only=True)
class Page:
    """A page of runs in the order of their keys."""

    runs: Sequence[WholeRun]
    """The runs with their jobs."""
    unreadable: Sequence[Unreadable]
    """The rows that can't be read."""
    after: str
    """The page starts after this key."""
    upto: str
    """The page ends with this key."""


@attrs.frozen(kw_only=True)
class Part:
    """Runs to check, with a snapshot of them and of the rows that they depend on."""

    runs: Sequence[Run]
    snapshot: Snapshot

    def violations(self, *, late_before: Micros | None) -> list[Violation]:
        """Return the violations of these runs; with `late_before` also of what was due before this instant."""
        keys = [run.key for run in self.runs]
        late = [] if late_before is None else overdue(self.snapshot, runs=keys, before=late_before)
        return [*check_part(self.snapshot, keys), *late]

    def blobs(self) -> Iterator[tuple[HistoryRow, str]]:
        """Yield the history rows of these runs that have their value in a blob, with the key of the blob."""
        for run in self.runs:
            for row in self.snapshot.history.get(run.key, ()):
                if row.payload is not None and row.payload.blob is not None:
                    yield row, row.payload.blob


class StoreReader:
    """Reads a store that is in use, so that each run is consistent: read in one statement, or verified afterwards.

    A run comes with its jobs at that moment, and with its history up to it. Other runs are read slightly later, so a
    violation between two runs must be seen twice.
    """

    def __init__(self, persistence: Persistence) -> None:
        self._persistence = persistence
        self._plans: dict[str, str] = {}

    def pages(self) -> Iterator[Page]:
        """Yield all runs, page by page."""
        after = ""
        while True:
            try:
                found: Sequence[WholeRun] = self._persistence.read(WholeRuns(after=after, limit=PAGE_RUNS))
                keys = tuple(one.run.key for one in found)
            except UnreadableRowError:
                keys = self._keys(after)
                found = self._whole(keys)
            upto = LAST if len(keys) < PAGE_RUNS else keys[-1]
            unreadable = self._persistence.read(UnreadableRows(keys)) if keys else ()
            wrong = {one.run for one in unreadable}
            runs = [one for one in found if one.run.key not in wrong]
            yield Page(runs=runs, unreadable=unreadable, after=after, upto=upto)
            if upto == LAST:
                return
            after = upto

    def _keys(self, after: str) -> tuple[str, ...]:
        return tuple(self._persistence.transact(lambda tx: tx.find(RunKeys(after, PAGE_RUNS))))

    def again(self, keys: Iterable[str]) -> Iterator[Part]:
        """Yield these runs as they are now. Runs that no longer exist are left out."""
        yield from self.parts(self._whole(keys))

    def _whole(self, keys: Iterable[str]) -> Sequence[WholeRun]:
        """Return runs with their jobs, without those that do not exist or can't be read."""
        wanted = tuple(sorted(set(keys)))
        if not wanted:
            return ()
        try:
            return self._persistence.read(WholeRuns(keys=wanted))
        except UnreadableRowError:
            wrong = {one.run for one in self._persistence.read(UnreadableRows(wanted))}
            return self._persistence.read(WholeRuns(keys=tuple(key for key in wanted if key not in wrong)))

    def parts(self, runs: Sequence[WholeRun]) -> Iterator[Part]:
        """Yield runs with the rows that they depend on, in parts of at most `PART_ROWS` history rows."""
        some: list[WholeRun] = []
        size = 0
        for whole in runs:
            if some and size + whole.run.last_row > PART_ROWS:
                yield self._part(some)
                some, size = [], 0
            some.append(whole)
            size += whole.run.last_row
        if some:
            yield self._part(some)

    def _part(self, whole: Sequence[WholeRun]) -> Part:
        judged = [one.run for one in whole]
        related = self._related_runs(whole)
        # Earlier generations matter only for the outputs that a later one keeps.
        kept = {run.rerun_of for run in judged if run.inherited is not None}
        with_rows = [*judged, *(one.run for one in related if one.run.key in kept)]
        runs = {one.run.key: one.run for one in (*whole, *related)}
        jobs = {one.run.key: {job.number: job for job in one.jobs} for one in (*whole, *related)}
        snapshot = Snapshot(
            runs=runs,
            jobs=jobs,
            history=self._histories(with_rows),
            plans=self._plans_of(with_rows),
            sessions=self._sessions(job for one in whole for job in one.jobs),
        )
        return Part(runs=judged, snapshot=snapshot)

    def _related_runs(self, whole: Sequence[WholeRun]) -> Sequence[WholeRun]:
        wanted = [(one.run.name, "") for one in whole if one.run.status not in TERMINAL]
        wanted += [
            (RunName(job.namespace, job.waiting_for or ""), job.key.text)
            for one in whole
            for job in one.jobs
            if job.waits_for_child
        ]
        keys = set(self._persistence.read(RelatedRuns(tuple(wanted)))) if wanted else set[str]()
        keys |= {one.run.rerun_of for one in whole if one.run.rerun_of is not None}
        keys -= {one.run.key for one in whole}
        return self._whole(keys)

    def _histories(self, runs: Sequence[Run]) -> dict[str, list[HistoryRow]]:
        found: dict[str, list[HistoryRow]] = {}
        query = HistoriesOf(runs=tuple(run.key for run in runs), limit=ROWS_AT_ONCE)
        while True:
            page = self._persistence.read(query)
            for row in page:
                found.setdefault(row.run, []).append(row)
            if len(page) < ROWS_AT_ONCE:
                break
            query = attrs.evolve(query, after=(page[-1].run, page[-1].number))
        beyond = [run for run in runs if run.key in found and found[run.key][-1].number > run.last_row]
        if beyond:
            self._cut_off(beyond, found)
        return found

    def _cut_off(self, runs: Sequence[Run], found: dict[str, list[HistoryRow]]) -> None:
        """Drop history rows added after their run was read. Rows that no run's row counts are a problem, and stay."""
        later = {run.key: run for run in self._persistence.read(RunsByKey(tuple(run.key for run in runs)))}
        for run in runs:
            rows, now = found[run.key], later.get(run.key, run)
            if rows[-1].number <= now.last_row:
                found[run.key] = [row for row in rows if row.number <= run.last_row]

    def _plans_of(self, runs: Sequence[Run]) -> dict[str, str]:
        wanted = {run.plan for run in runs}
        missing = wanted - self._plans.keys()
        if missing:
            if len(self._plans) > PLANS_KEPT:
                self._plans.clear()
                missing = wanted
            rows = self._persistence.read(PlansByFingerprint(tuple(sorted(missing))))
            self._plans.update((row.fingerprint, row.body) for row in rows)
        return {name: self._plans[name] for name in wanted if name in self._plans}

    def _sessions(self, jobs: Iterable[Job]) -> dict[str, Session]:
        holders = sorted({job.session for job in jobs if job.session is not None})
        if not holders:
            return {}
        sessions = self._persistence.transact(lambda tx: tx.get(SESSIONS, holders))
        return {session.id: session for session in sessions}
