"""Reads a store part by part, of all namespaces and without locks, each with what the checker needs to judge it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

from holdfast.kernel.invariants import Snapshot, Violation, check_part, overdue
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.persistence import Persistence, PlansByFingerprint, RunsByKey
from holdfast.ports.queries.audit import LAST, HistoriesOf, KinOf, UnreadableRows, WholeRun, WholeRuns
from holdfast.ports.records import TERMINAL, HistoryRow, Job, Micros, Run, RunName, Session
from holdfast.ports.unreadable import Unreadable

PAGE_RUNS: Final = 200
"""How many runs are read at a time."""
PART_ROWS: Final = 20_000
"""How many history rows are kept in memory at a time, unless a single run has more."""
ROWS_AT_ONCE: Final = 5_000
PLANS_KEPT: Final = 500


@attrs.frozen(kw_only=True)
class Page:
    """Runs with their jobs, by key: all that there are after one key and up to another; and what can't be read."""

    runs: Sequence[WholeRun]
    unreadable: Sequence[Unreadable]
    after: str
    upto: str


@attrs.frozen(kw_only=True)
class Part:
    """Runs that are to be judged, and a snapshot of them and of all that they hang on."""

    runs: Sequence[Run]
    snapshot: Snapshot

    def violations(self, *, late_before: Micros | None) -> list[Violation]:
        """Return what is wrong with them, and what was due before an instant, if one is given."""
        keys = [run.key for run in self.runs]
        late = [] if late_before is None else overdue(self.snapshot, runs=keys, before=late_before)
        return [*check_part(self.snapshot, keys), *late]

    def blobs(self) -> Iterator[tuple[HistoryRow, str]]:
        """Yield the history rows of these runs whose values are in blobs, and the keys of these."""
        for run in self.runs:
            for row in self.snapshot.history.get(run.key, ()):
                if row.payload is not None and row.payload.blob is not None:
                    yield row, row.payload.blob


class Examiner:
    """Reads a store that may be busy: what is of one moment is read in one statement, or known to be so afterwards.

    A run comes with its jobs as they were then, and with its history up to that moment. Other runs are read a little
    later: what is wrong between two runs has to be seen twice.
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
        return tuple(self._persistence.transact(lambda tx: tx.run_keys(after, PAGE_RUNS)))

    def again(self, keys: Iterable[str]) -> Iterator[Part]:
        """Yield these runs as they are now. Those that are not there are left out."""
        yield from self.parts(self._whole(keys))

    def _whole(self, keys: Iterable[str]) -> Sequence[WholeRun]:
        """Return runs, those left out that are not there, or can't be read."""
        wanted = tuple(sorted(set(keys)))
        if not wanted:
            return ()
        try:
            return self._persistence.read(WholeRuns(keys=wanted))
        except UnreadableRowError:
            wrong = {one.run for one in self._persistence.read(UnreadableRows(wanted))}
            return self._persistence.read(WholeRuns(keys=tuple(key for key in wanted if key not in wrong)))

    def parts(self, runs: Sequence[WholeRun]) -> Iterator[Part]:
        """Yield runs that were read with all that they hang on, so many at a time as their histories allow."""
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
        # Of generations before only what they gave is looked at, by those that keep something of it.
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
        keys = set(self._persistence.read(KinOf(tuple(wanted)))) if wanted else set[str]()
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
        """Forget the rows that were added after their runs were read; those that nobody counts are no such rows."""
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
        sessions = self._persistence.transact(lambda tx: tx.sessions(holders, lock=False))
        return {session.id: session for session in sessions}
