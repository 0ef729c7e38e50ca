"""Optimistic transactions on PostgreSQL: they use cached rows, and write only if those are still current.

A single step is a transaction on one run and one job, right after another such transaction or the claim of that job.
So the connection has both rows cached, as that transaction has left them, with their row versions (`xmin`). The work
runs on the cached rows, and one statement stores its outcome, a step or the end of the run, if the versions are
unchanged. If not, nothing is stored, and the work is repeated with rows that are locked and read
(docs/decisions/0048).
"""

import time
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final, cast

import attrs
from typing_extensions import TypeVar, override

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import ChangedError, Link, Parameters
from holdfast.adapters.sql.dialect import encode_long_texts, encode_rows
from holdfast.adapters.sql.postgresql.link import PostgresLink
from holdfast.adapters.sql.postgresql.row_cache import (
    END,
    STEP,
    TRUSTED,
    CachedRun,
    Lease,
    Versions,
    versions_for,
)
from holdfast.adapters.sql.rows import askable, askable_keys
from holdfast.adapters.sql.transaction import SqlTransaction, Statements
from holdfast.adapters.sql.writes import WritePlan
from holdfast.ports.changes import NetChanges
from holdfast.ports.json import parse
from holdfast.ports.persistence import Query
from holdfast.ports.queries.values import LoadWork
from holdfast.ports.records.job import Job, JobKey, JobKind
from holdfast.ports.records.session import Session
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import LockedAttempts, Search
from holdfast.ports.tables import HISTORY, JOBS, RUNS

A = TypeVar("A")
R = TypeVar("R")

_PAYLOAD: Final = rows.HISTORY.index("payload")


class OptimisticPath:
    """See `FastPath`."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._versions = versions_for(statements.dialect)

    def transaction(self, link: Link, receipt: str, /) -> "OptimisticTransaction | None":
        """See `FastPath.transaction`. None behind a pooler, where the server may change."""
        assert isinstance(link, PostgresLink)
        return (
            OptimisticTransaction(link, self._statements, receipt, self._versions) if link.is_direct else None
        )

    def answer(self, link: Link, query: Query[R], /) -> R | None:
        """See `FastPath.answer`. The work of a job was read when it was claimed."""
        assert isinstance(link, PostgresLink)
        return cast("R", link.memory.work(query)) if link.is_direct and isinstance(query, LoadWork) else None


class OptimisticTransaction(SqlTransaction):
    """See `Transaction`. Raises ChangedError, in the work or on commit, if the cached rows do not do."""

    def __init__(self, link: PostgresLink, statements: Statements, receipt: str, versions: Versions) -> None:
        """See `SqlTransaction`."""
        super().__init__(link, statements, receipt)
        self._direct = link
        self._memory = link.memory
        self._versions = versions
        self._one: CachedRun | None = None
        """The run and the job that the transaction is about."""
        self.is_locked = True
        """Whether the rows are locked and read; False while cached ones are used."""
        self._after: CachedRun | None = None
        """What to cache after the commit."""
        self._stored: tuple[str, Parameters] | None = None
        """The statement that stores the outcome of work on cached rows."""
        self._session: Session | None = None
        """The cached session that the work has read."""
        self._found: Job | None = None
        """The only job found by a claim, if it drives a function."""
        self._leased: Job | None = None
        """That job as it is after the claim."""

    @override
    def find(self, search: Search[A], /, now: Micros = 0) -> A:
        """See `Transaction.find`."""
        found = super().find(search, now)
        if isinstance(found, LockedAttempts) and len(found.jobs) == 1 and found.sessions:
            self._found = found.jobs[0] if found.jobs[0].kind is JobKind.WORKFLOW else self._found
        return found

    @override
    def lock_attempts(
        self, runs: Collection[str], jobs: Collection[JobKey], sessions: Collection[str], /
    ) -> LockedAttempts:
        """See `Transaction.lock_attempts`."""
        keys, pairs = askable(runs), askable_keys(jobs)
        if self._link.began or self._one is not None or len(keys) != 1 or len(pairs) != 1:
            return super().lock_attempts(runs, jobs, sessions)
        (run,), (job,) = keys, pairs
        known = self._memory.take(run, job)
        known_sessions = known.sessions(sessions) if known is not None and known.steps >= TRUSTED else None
        if known is not None and known_sessions is not None:
            self.is_locked = False
            self._session = known_sessions[0] if known_sessions else None
        else:
            known = None if sessions else self._read(run, job, 0 if known is None else known.steps)
        if known is None:
            return super().lock_attempts(
                runs, jobs, sessions
            )  # a row does not exist, or a session is not cached
        self._one = known
        return LockedAttempts(
            self._known.note_runs([known.run]), self._known.note_jobs([known.job]), known_sessions or ()
        )

    def _read(self, run: str, job: JobKey, steps: int) -> CachedRun | None:
        statements: list[tuple[str, Parameters]] = [
            (self._versions.run, {"run": run}),
            (self._versions.job, {"run": job.run, "number": job.number}),
        ]
        of_run, of_job = self._do(lambda: self._locking().queries(statements))
        if not of_run or not of_job:
            return None
        (*run_row, run_version), (*job_row, job_version) = of_run[0], of_job[0]
        return CachedRun(
            rows.run_from(tuple(run_row)), rows.job_from(tuple(job_row)), run_version, job_version, steps
        )

    @override
    def _locking(self) -> Link:
        if not self.is_locked:
            self._memory.note(is_enough=False)
            raise ChangedError("this needs more than what is known")
        return super()._locking()

    @override
    def _write(self, net: NetChanges, plan: WritePlan) -> None:
        one, writes = self._one, tuple(write for write, _ in plan)
        of_runs, of_jobs, of_history = (self._writes.tables[table] for table in (RUNS, JOBS, HISTORY))
        runs = net.updated.get(RUNS, {})
        if one is None or runs.keys() != {one.run.key}:
            super()._write(net, plan)
            if self._found is not None and writes == (of_jobs.updates[0].write,):
                self._leased = net.updated[JOBS].get(self._found.key)
            self._memory.forget({*runs, *net.blocked_runs})
        elif writes == (of_runs.updates[0].write, of_history.insert):
            self._after = attrs.evolve(one, run=runs[one.run.key], steps=one.steps + 1)
            self._store(one, net, plan, STEP)
        elif writes == (of_runs.updates[1].write, of_jobs.delete, of_history.insert) and net.deleted[
            JOBS
        ] == {one.job.key}:
            self._store(one, net, plan, END)
        else:
            super()._write(net, plan)

    def _store(self, one: CachedRun, net: NetChanges, plan: WritePlan, columns: Sequence[str]) -> None:
        if self.is_locked:
            super()._write(net, plan)
            return
        (run,), history = plan[0][1], plan[-1][1]
        versions, lease = self._versions, one.lease
        has_session = self._session is not None and lease is not None
        short, long = (
            (versions.step, versions.long_step) if columns is STEP else (versions.end, versions.long_end)
        )
        texts = encode_long_texts(rows.HISTORY, history, _PAYLOAD)
        self._stored = (
            short if texts is None else long,
            {
                **dict(zip((*columns, "key"), run, strict=True)),
                "job": one.job.key.number,
                "run_version": one.run_version,
                "job_version": one.job_version,
                "session": lease.session.id if has_session and lease is not None else "",
                "session_version": lease.session_version if has_session and lease is not None else "0",
                **({"rows": encode_rows(rows.HISTORY, history)} if texts is None else texts),
                "receipt": self._receipt,
            },
        )

    @override
    def commit(self) -> None:
        """See `SqlTransaction.commit`. ChangedError, and no effect, if the cached rows are outdated."""
        after, memory = self._after, self._memory
        if self._leased is not None:
            after = self._commit_lease(self._leased)
        elif self.is_locked:
            super().commit()
        elif self._stored is None:
            raise ChangedError("this writes nothing, and so nothing says whether it has gone by what is so")
        else:
            stored = self._direct.query_and_commit(*self._stored)
            if not stored:
                raise ChangedError("a run has changed meanwhile")
            memory.note(is_enough=True)
            after = None if after is None else attrs.evolve(after, run_version=stored[0][0])
        if after is not None:
            memory.keep(after)

    def _commit_lease(self, job: Job) -> CachedRun | None:
        """Commit a claim, and read what its attempt needs in the same round trip."""
        number = parse(job.input)
        row_number = number if isinstance(number, int) else None
        parameters = {
            "run": job.run,
            "session": job.session,
            "input": -1 if row_number is None else row_number,
        }
        read_at = time.monotonic()
        found = self._direct.commit_and_query(self._versions.lease, parameters)
        if not found:
            return None
        row = iter(found[0])
        run = rows.run_from(tuple(islice(row, len(rows.RUN))))
        run_version, job_version = islice(row, 2)
        session = rows.session_from(tuple(islice(row, len(rows.SESSION))))
        session_version, *payload = row
        return CachedRun(
            run,
            job,
            run_version,
            job_version,
            self._memory.trusted(run),
            Lease(session, session_version, row_number, rows.payload_from(*payload), read_at),
        )
