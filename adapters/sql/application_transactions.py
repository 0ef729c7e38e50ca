"""Commands in a transaction of the application: statements on its connection, within a savepoint."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from holdfast.adapters.sql.application_connections import ApplicationConnection, Joining
from holdfast.adapters.sql.database import NONE, Parameters, check_hits
from holdfast.adapters.sql.dialect import Write
from holdfast.adapters.sql.rows import Row
from holdfast.adapters.sql.transaction import SqlTransaction, Statements
from holdfast.ports.errors import ConflictError, HoldfastError, SchemaError, WrongStoreError
from holdfast.ports.persistence import Transaction

R = TypeVar("R")

CONFLICTS_MAX: Final = 10
"""How often work runs again in one transaction after a conflict."""


class SqlApplicationTransaction:
    """See `ApplicationTransaction`.

    No setting of the connection is changed, so nothing of it differs afterwards.
    """

    def __init__(
        self,
        connection: ApplicationConnection,
        joining: Joining,
        statements: Statements,
        store_id: Callable[[], str],
    ) -> None:
        """`store_id` returns the identity of the store, by a connection of its own."""
        self._connection = connection
        self._joining = joining
        self._statements = statements
        self._store_id = store_id
        self._link = _Link(connection, joining)

    @property
    def excludes_writers(self) -> bool:
        """See `ApplicationTransaction.excludes_writers`."""
        return self._joining.excludes_writers

    def join(self, work: Callable[[Transaction], R], /) -> R:
        """See `ApplicationTransaction.join`."""
        self._connection.flush()  # errors of the application's own rows are its own
        if self._connection.vendor != self._joining.vendor:
            raise WrongStoreError(
                f"the connection is to {self._connection.vendor}, and the store is in {self._joining.vendor}"
            )
        self._joining.begin(self._connection)
        for tried in range(1, CONFLICTS_MAX + 1):
            self._link.query(_SAVE)
            try:
                result = self._attempt(work)
            except BaseException as error:
                self._undo()
                if not isinstance(error, ConflictError) or tried == CONFLICTS_MAX:
                    raise
            else:
                self._link.query(_RELEASE)
                return result
        raise AssertionError

    def after_commit(self, call: Callable[[], None], /) -> None:
        """See `ApplicationTransaction.after_commit`."""
        self._connection.after_commit(call)

    def _attempt(self, work: Callable[[Transaction], R]) -> R:
        self._check_store()
        transaction = SqlTransaction(self._link, self._statements, None)
        result = work(transaction)
        transaction.end()
        return result

    def _check_store(self) -> None:
        ours = self._store_id()
        try:
            ((theirs,),) = self._link.query(self._joining.store_id_sql)
        except SchemaError as error:
            raise WrongStoreError(
                f"the connection is to a database, or a schema, without the tables of Holdfast ({error})"
            ) from error
        if theirs != ours:
            raise WrongStoreError(f"the connection is to {theirs!r}, and the store is {ours!r}")

    def _undo(self) -> None:
        # If that fails too, the connection is lost or the application has ended its transaction: nothing of ours stays.
        with suppress(HoldfastError):
            self._link.query(_UNDO)
            self._link.query(_RELEASE)


_SAVE: Final = "SAVEPOINT holdfast"
_UNDO: Final = "ROLLBACK TO SAVEPOINT holdfast"
_RELEASE: Final = "RELEASE SAVEPOINT holdfast"


class _Link:
    """See `Link`. The application began the transaction, and commits it: there is nothing to do for either here."""

    probes = False
    began = True

    def __init__(self, connection: ApplicationConnection, joining: Joining) -> None:
        self._connection = connection
        self._joining = joining

    def begin(self) -> None:
        """See `Link.begin`."""

    def commit(self) -> None:
        """See `Link.commit`."""

    def put_receipt(self, receipt: str, /) -> None:
        """See `Link.put_receipt`. Whether the commit took place is for the application to find out."""

    def query(self, sql: str, parameters: Parameters = NONE, /, *, keyed: bool = False) -> list[Row]:
        """See `Link.query`."""
        del keyed
        return self._execute(sql, parameters)[0]

    def queries(self, statements: Sequence[tuple[str, Parameters]], /) -> list[list[Row]]:
        """See `Link.queries`."""
        return [self.query(sql, parameters) for sql, parameters in statements]

    def write(
        self, writes: Sequence[tuple[Write, Sequence[Row]]], receipt: str | None, /, *, is_sure: bool = False
    ) -> None:
        """See `Link.write`."""
        del receipt, is_sure
        for write, rows in writes:
            _, hits = self._execute(*self._joining.encoded(write, rows))
            check_hits(write, rows, hits)

    def _execute(self, sql: str, parameters: Parameters | Sequence[Row]) -> tuple[list[Row], int]:
        try:
            return self._connection.execute(sql, parameters)
        except Exception as error:
            translated = self._joining.translated(error)
            if translated is None:
                raise
            raise translated from error
