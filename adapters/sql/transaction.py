"""The reads and the write of a transaction, for any database."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import attrs

from holdfast.adapters.sql.database import Link, Parameters
from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.errors import TransientError
from holdfast.adapters.sql.narrow_updates import LockedRows
from holdfast.adapters.sql.rows import Row, job_from
from holdfast.adapters.sql.searches import KeyedRead, SqlSearch, keyed_reads, searches_for
from holdfast.adapters.sql.statements import Writes, writes_for
from holdfast.adapters.sql.writes import WritePlan, is_sure, write_plan
from holdfast.ports.changes import Change, NetChanges, net_changes
from holdfast.ports.errors import HoldfastError
from holdfast.ports.records.job import Job, JobKey
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import LockedAttempts, Search, SessionsForClaims
from holdfast.ports.tables import JOBS, RUNS, Table

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")
A = TypeVar("A")

AGREEMENT_TRIES_MAX: Final = 5


@attrs.frozen
class Statements:
    """The statements of transactions for one database, built once."""

    dialect: Dialect
    reads: Mapping[Table[Any, Any], KeyedRead]
    searches: Mapping[type[Search[Any]], SqlSearch]
    writes: Writes


def statements_for(dialect: Dialect) -> Statements:
    """Build the statements for a database."""
    return Statements(dialect, keyed_reads(dialect), searches_for(dialect), writes_for(dialect))


class SqlTransaction:
    """See `Transaction`.

    An error of the database is sticky: even if `work` catches it, the transaction can't be committed any more.
    """

    def __init__(self, link: Link, statements: Statements, receipt: str | None) -> None:
        """`receipt` is stored with the changes; None if it is stored already."""
        self._link = link
        self._dialect = statements.dialect
        self._reads = statements.reads
        self._searches = statements.searches
        self._writes = statements.writes
        self._receipt = receipt
        self._known = LockedRows()
        self._is_over = False
        self.wrote = False
        self.failure: HoldfastError | None = None

    def end(self) -> None:
        """Refuse further use. Raise the error that the database has raised before, if any."""
        self._is_over = True
        if self.failure is not None:
            raise self.failure

    def commit(self) -> None:
        """Commit the applied changes."""
        self._link.commit()

    def lock(self, table: Table[R, K], keys: Collection[K], /) -> Sequence[R]:
        """See `Transaction.lock`."""
        read = self._reads[table]
        parameters = read.parameters(keys)
        if parameters is None:
            return ()
        found = self._do(lambda: self._locking().query(read.lock, parameters, keyed=True))
        return self._note([read.record(row) for row in found])

    def get(self, table: Table[R, K], keys: Collection[K], /) -> Sequence[R]:
        """See `Transaction.get`."""
        read = self._reads[table]
        parameters = read.parameters(keys)
        if parameters is None:
            return ()
        found = self._do(lambda: self._link.query(read.get, parameters, keyed=True))
        return [read.record(row) for row in found]

    def find(self, search: Search[A], /, now: Micros = 0) -> A:
        """See `Transaction.find`."""
        one = self._searches.get(type(search))
        if one is None:
            raise TypeError(f"{search!r} is no search that this store knows")
        one = one.chosen(search)
        parameters = one.parameters(self._dialect, search, now)
        if parameters is None:
            nothing: A = one.answer(())
            return nothing
        if not one.is_locking(search):
            sql = one.unlocked(search)
            found = self._do(lambda: self._link.query(sql, parameters, keyed=one.keyed))
            unlocked: A = one.answer(found)
            return unlocked
        if one.agrees_with:
            return cast("A", self._find_agreed(one, parameters))
        answer: Any = one.answer(self._find_locked(one, parameters))
        self._note(answer.jobs if type(answer) is LockedAttempts else answer)
        return cast("A", answer)

    def _find_locked(self, one: SqlSearch, parameters: Parameters) -> Sequence[Row]:
        # If an open transaction blocks others, open one only if there is anything to lock.
        is_tried = one.probes and self._link.probes and not self._link.began
        if is_tried and not self._do(lambda: self._link.query(one.lock, parameters)):
            return ()
        return self._do(lambda: self._locking().query(one.lock, parameters, keyed=one.keyed))

    def _find_agreed(self, one: SqlSearch, parameters: Parameters) -> LockedAttempts | Sequence[Run]:
        statements = [(sql, parameters) for sql in (one.lock, one.agrees_with, one.jobs) if sql]
        for _ in range(AGREEMENT_TRIES_MAX):
            found, newest, *beside = self._do(lambda: self._locking().queries(statements))
            if [row[0] for row in found] == [row[0] for row in newest]:
                answer: LockedAttempts | Sequence[Run] = one.answer(found)
                if not isinstance(answer, LockedAttempts):
                    return self._note(answer)
                jobs = self._note([job_from(row) for of_jobs in beside for row in of_jobs])
                return LockedAttempts(self._note(answer.runs), jobs, ())
        raise TransientError("a run gets new generations faster than they can be locked")

    def _note(self, found: Sequence[Any]) -> Sequence[Any]:
        """Record locked runs and jobs, for narrow updates."""
        match next(iter(found), None):
            case Job():
                self._known.note_jobs(found)
            case Run():
                self._known.note_runs(found)
            case _:
                pass
        return found

    def lock_attempts(
        self, runs: Collection[str], jobs: Collection[JobKey], sessions: Collection[str], /
    ) -> LockedAttempts:
        """See `Transaction.lock_attempts`."""
        answers: dict[Table[Any, Any], Sequence[Any]] = {RUNS: (), JOBS: ()}
        wanted = [
            (table, self._reads[table], parameters)
            for table, keys in zip(answers, (runs, jobs), strict=True)
            if (parameters := self._reads[table].parameters(keys)) is not None
        ]
        statements = [(read.lock, parameters) for _, read, parameters in wanted]
        of_sessions = self._searches[SessionsForClaims]
        if sessions:
            given = of_sessions.parameters(self._dialect, SessionsForClaims(sessions), 0)
            if given is not None:
                statements.append((of_sessions.unlocked(SessionsForClaims(sessions)), given))
        found: Sequence[Sequence[Row]] = (
            self._do(lambda: self._locking().queries(statements)) if statements else []
        )
        for (table, read, _), of_table in zip(wanted, found, strict=False):
            answers[table] = [read.record(row) for row in of_table]
        self._known.note_runs(answers[RUNS])
        self._known.note_jobs(answers[JOBS])
        holders: LockedAttempts = of_sessions.answer(found[-1] if len(statements) > len(wanted) else ())
        return LockedAttempts(answers[RUNS], answers[JOBS], holders.sessions, holders.has_limits)

    def apply(self, changes: Sequence[Change], /) -> None:
        """See `Transaction.apply`."""
        if not changes:
            return
        net = self._do(lambda: net_changes(changes))
        plan = write_plan(net, self._writes, self._known)
        self._do(lambda: self._write(net, plan))
        self.wrote = True

    def _write(self, net: NetChanges, plan: WritePlan) -> None:
        sure = is_sure(net, self._known)
        receipt, self._receipt = self._receipt, None
        self._locking().write(plan, receipt, is_sure=sure)

    def _locking(self) -> Link:
        self._link.begin()
        return self._link

    def _do(self, call: Callable[[], T]) -> T:
        if self._is_over:
            raise HoldfastError("a transaction can only be used inside the work that it was given to")
        try:
            return call()
        except HoldfastError as error:
            self.failure = self.failure or error
            raise
