"""A connection to PostgreSQL, lent for a transaction or a query.

All writes to one table are one statement, so a transaction takes about as many round trips as it touches tables.
Statements that do not need an answer first are sent together: BEGIN with the first query, COMMIT with the writes.
Statements that find rows by key are prepared if no pooler is in between. No other session state is relied on.
"""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

import contextlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import attrs
import psycopg
from psycopg import pq

from holdfast.adapters.sql.database import NONE, Parameters, check_hits
from holdfast.adapters.sql.dialect import Write
from holdfast.adapters.sql.errors import TransientError
from holdfast.adapters.sql.postgresql.dialect import POSTGRES_CLOCK
from holdfast.adapters.sql.postgresql.errors import from_sqlstate
from holdfast.adapters.sql.postgresql.libpq import StatementResult, StatementRunner
from holdfast.adapters.sql.postgresql.row_cache import RowCache
from holdfast.adapters.sql.postgresql.watchdog import Watchdog
from holdfast.adapters.sql.rows import Row
from holdfast.ports.errors import HoldfastError

_PUT_RECEIPT: Final = f"INSERT INTO holdfast_commit_receipts (id, at) VALUES (%(receipt)s, {POSTGRES_CLOCK})"
_UNPREPARED: Final = frozenset({"26000", "42P05", "0A000"})
"""SQLSTATEs for a prepared statement that is unknown, exists already, or whose result has other columns by now."""
_Statement = tuple[str, Parameters, bool]
"""SQL, parameters, and whether the server may prepare it."""
_Writes = Sequence[tuple[Write, Sequence[Row]]]
_COMMIT: Final[Sequence[_Statement]] = (("COMMIT", NONE, False),)


@attrs.define(eq=False, repr=False)
class PostgresLink:
    """See `Link`."""

    probes = False

    _statements: StatementRunner
    _watchdog: Watchdog
    _preamble: Sequence[str]
    _pipeline: bool = attrs.field(kw_only=True, alias="pipeline")
    _until: float = attrs.field(kw_only=True, alias="until")
    _limit: str | None = attrs.field(default=None, kw_only=True, alias="limit")
    """The statement that limits those which follow it in a transaction."""
    _unsent: Sequence[str] = attrs.field(default=(), init=False)
    _unwritten: tuple[_Writes, str | None] | None = attrs.field(default=None, init=False)
    _began: bool = attrs.field(default=False, init=False)
    _is_spoilt: bool = attrs.field(default=False, init=False)

    @property
    def began(self) -> bool:
        """See `Link.began`."""
        return self._began

    @property
    def is_direct(self) -> bool:
        """Whether no pooler is in between, so that the same server process answers for the connection's whole life."""
        return self._statements.prepares

    @property
    def memory(self) -> RowCache:
        """The rows as the transactions of this connection have left them."""
        return self._statements.memory

    def begin(self) -> None:
        """See `Link.begin`. BEGIN is sent together with the next statement."""
        if not self._began:
            self._began = True
            self._unsent = self._preamble if self._limit is None else (*self._preamble, self._limit)

    def query(self, sql: str, parameters: Parameters = NONE, /, *, keyed: bool = False) -> list[Row]:
        """See `Link.query`."""
        self._write_now()
        with self._guarded():
            return self._run([(sql, parameters, keyed)])[-1].rows()

    def queries(self, statements: Sequence[tuple[str, Parameters]], /) -> list[list[Row]]:
        """See `Link.queries`."""
        self._write_now()
        with self._guarded():
            keyed = [(sql, parameters, True) for sql, parameters in statements]
            return [answer.rows() for answer in self._run(keyed, len(keyed))]

    def write(self, writes: _Writes, receipt: str | None, /, *, is_sure: bool = False) -> None:
        """See `Link.write`."""
        self._write_now()
        self._unwritten = writes, receipt
        if not is_sure or not self._pipeline:
            self._write_now()

    def put_receipt(self, receipt: str, /) -> None:
        """See `Link.put_receipt`."""
        self.begin()
        self.write([], receipt)

    def commit(self) -> None:
        """See `Link.commit`."""
        if self._unwritten is not None:
            self._write_now(*_COMMIT)
        elif self._began and not self._unsent:
            with self._guarded():
                self._run(_COMMIT)
        self._began = False
        self._unsent = ()

    def commit_and_query(self, sql: str, parameters: Parameters, /) -> list[Row]:
        """Send the delayed writes, a keyed statement and COMMIT together. Return its rows; empty without writes."""
        if self._unwritten is None:
            self.commit()
            return []
        answers = self._write_now((sql, parameters, True), *_COMMIT)
        self._began = False
        return answers[-2].rows()

    def query_and_commit(self, sql: str, parameters: Parameters, /) -> list[Row]:
        """Run a keyed statement as a transaction of its own, in one round trip, and return its rows.

        BEGIN is explicit, so defaults of server and session have no effect.
        """
        self.begin()
        with self._guarded():
            answers = self._run(((sql, parameters, True), *_COMMIT), 2)
        self._began = False
        return answers[0].rows()

    def end(self) -> bool:
        """Roll back uncommitted work. Return whether the connection can be used again."""
        status = self._statements.status
        if status in {pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR}:
            with contextlib.suppress(HoldfastError), self._guarded():
                self._statements.make("ROLLBACK", NONE)
            status = self._statements.status
        return status == pq.TransactionStatus.IDLE and not self._is_spoilt

    def _write_now(self, *and_then: _Statement) -> Sequence[StatementResult]:
        """Send the delayed writes, if any, followed by other statements. Return all answers."""
        if self._unwritten is None:
            return ()
        (writes, receipt), self._unwritten = self._unwritten, None
        with self._guarded():
            answers = self._run(
                chain(_statements(writes, receipt), and_then), max(len(writes), 1) + len(and_then)
            )
        for (write, rows), answer in zip(writes, answers, strict=False):
            check_hits(write, rows, answer.hits)
        return answers

    def _run(self, statements: Iterable[_Statement], number: int = 1) -> Sequence[StatementResult]:
        """Send statements, after a pending BEGIN, and return their answers.

        Statements that are sent together, without BEGIN, are one transaction: a limit holds until its end, takes no
        round trip of its own, and needs nothing of the session.
        """
        if self._limit is not None and not self._began:
            if self._pipeline:
                self._unsent = (self._limit,)
            else:
                self.begin()
        before, self._unsent = self._unsent, ()
        all_statements = chain(((sql, NONE, False) for sql in before), statements)
        if self._pipeline and len(before) + number > 1:
            return self._statements.make_all(all_statements)[len(before) :]
        make = self._statements.make
        return [make(sql, parameters, prepared=prepared) for sql, parameters, prepared in all_statements][
            len(before) :
        ]

    @contextlib.contextmanager
    def _guarded(self) -> Generator[None]:
        self._watchdog.enter(self._statements, self._until)
        try:
            yield
        except psycopg.Error as error:
            if error.sqlstate in _UNPREPARED and self._statements.prepares:
                self._is_spoilt = True
                raise TransientError(f"a prepared statement is no longer valid: {error}") from error
            raise from_sqlstate(error.sqlstate, f"{type(error).__name__}: {error}") from error
        except UnicodeError as error:  # a lone surrogate
            raise from_sqlstate("22021", str(error)) from error
        finally:
            self._watchdog.leave(self._statements)


def _statements(writes: _Writes, receipt: str | None) -> Iterator[_Statement]:
    """Yield a statement per write. The last one also stores the receipt, which saves a statement.

    A generator, so that the server works on the first rows while later ones are being encoded.
    """
    for left, (write, rows) in zip(range(len(writes) - 1, -1, -1), writes, strict=True):
        sql, encoded = write.encoded_with_lists(rows)
        if receipt is not None and not left:
            yield f"WITH kept AS ({_PUT_RECEIPT}) {sql}", {**encoded, "receipt": receipt}, True
        else:
            yield sql, encoded, True
    if receipt is not None and not writes:
        yield _PUT_RECEIPT, {"receipt": receipt}, True
