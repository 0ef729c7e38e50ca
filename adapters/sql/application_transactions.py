"""Commands in a transaction of the application: statements on its connection, within a savepoint."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from holdfast.adapters.sql.application_connections import ApplicationAccess, ApplicationConnection, Executed
from holdfast.adapters.sql.database import NONE, Parameters
from holdfast.adapters.sql.dialect import Write
from holdfast.adapters.sql.retry import CONFLICTS_MAX
from holdfast.adapters.sql.rows import Row
from holdfast.adapters.sql.transaction import SqlTransaction, Statements
from holdfast.ports.errors import ConflictError, SchemaError, WrongStoreError
from holdfast.ports.persistence import Transaction

R = TypeVar("R")

_SAVE: Final = "SAVEPOINT holdfast"
_UNDO: Final = "ROLLBACK TO SAVEPOINT holdfast"
_RELEASE: Final = "RELEASE SAVEPOINT holdfast"


class SqlApplicationTransaction:
    """See `ApplicationTransaction`.

    No setting of the connection is changed, so nothing of it differs afterwards.
    """

    def __init__(
        self,
        connection: ApplicationConnection,
        access: ApplicationAccess,
        statements: Statements,
        store_id: Callable[[], str],
        connection_lock: threading.Lock,
    ) -> None:
        """`store_id` returns the identity of the store, by a connection of its own.

        `connection_lock` is one lock for each connection: of two calls at the same time, the end of one savepoint would
        undo or release what the other has written.
        """
        self._connection = connection
        self._access = access
        self._statements = statements
        self._store_id = store_id
        self._lock = connection_lock

    @property
    def excludes_writers(self) -> bool:
        """See `ApplicationTransaction.excludes_writers`."""
        return self._access.excludes_writers

    def join(self, work: Callable[[Transaction], R], /) -> R:
        """See `ApplicationTransaction.join`."""
        with self._lock:
            return self._join(work)

    def _join(self, work: Callable[[Transaction], R]) -> R:
        self._connection.flush()  # errors of the application's own rows are its own
        if self._connection.vendor != self._access.vendor:
            raise WrongStoreError(
                f"the connection is to {self._connection.vendor}, and the store is in {self._access.vendor}"
            )
        link = _Link(self._connection, self._access, self._store_id())
        self._access.begin(self._connection)
        return self._in_savepoint(work, link)

    def _in_savepoint(self, work: Callable[[Transaction], R], link: "_Link") -> R:
        for tried in range(1, CONFLICTS_MAX + 1):
            link.execute(_SAVE)
            try:
                result = self._attempt(work, link)
            except BaseException as error:
                # If that fails too, the connection is lost, or the transaction ended: then nothing of ours stays.
                with suppress(Exception):
                    link.execute(_UNDO)
                    link.execute(_RELEASE)
                if not isinstance(error, ConflictError) or tried == CONFLICTS_MAX:
                    raise
            else:
                link.execute(_RELEASE)
                return result
        raise AssertionError

    def after_commit(self, call: Callable[[], None], /) -> None:
        """See `ApplicationTransaction.after_commit`."""
        self._connection.after_commit(call)

    def _attempt(self, work: Callable[[Transaction], R], link: "_Link") -> R:
        transaction = SqlTransaction(link, self._statements, None)
        try:
            result = work(transaction)
            transaction.end()
        except SchemaError as error:
            raise WrongStoreError(
                f"the connection is to a database, or a schema, without the tables of Holdfast ({error})"
            ) from error
        return result


class _Link:
    """See `Link`. The application began the transaction, and commits it: there is nothing to do for either here.

    The connection may lead to another store, so its identity is read before the first row, or with the first write.
    """

    probes = False
    began = True

    def __init__(self, connection: ApplicationConnection, access: ApplicationAccess, store_id: str) -> None:
        self._connection = connection
        self._access = access
        self._store_id = store_id
        self._is_checked = False

    def begin(self) -> None:
        """See `Link.begin`."""

    def commit(self) -> None:
        """See `Link.commit`."""

    def put_receipt(self, receipt: str, /) -> None:
        """See `Link.put_receipt`. Whether the commit took place is for the application to find out."""

    def query(self, sql: str, parameters: Parameters = NONE, /, *, keyed: bool = False) -> list[Row]:
        """See `Link.query`."""
        del keyed
        if not self._is_checked:
            self._check(self.execute(self._access.store_id_sql)[0])
        return self.execute(sql, parameters)[0]

    def queries(self, statements: Sequence[tuple[str, Parameters]], /) -> list[list[Row]]:
        """See `Link.queries`."""
        return [self.query(sql, parameters) for sql, parameters in statements]

    def write(
        self, writes: Sequence[tuple[Write, Sequence[Row]]], receipt: str | None, /, *, is_sure: bool = False
    ) -> None:
        """See `Link.write`."""
        del receipt, is_sure
        self._check(self._access.write(self.execute, writes))

    def execute(self, sql: str, parameters: Parameters | Sequence[Row] = NONE) -> Executed:
        """Run a statement, for each of several rows if these are given."""
        try:
            return self._connection.execute(sql, parameters)
        except Exception as error:
            translated = self._access.translated(error)
            if translated is None:
                raise
            raise translated from error

    def _check(self, found: Sequence[Row]) -> None:
        """Raise WrongStoreError if the identity that was found is not that of the store."""
        ((store_id,),) = found
        if store_id != self._store_id:
            raise WrongStoreError(f"the connection is to {store_id!r}, and the store is {self._store_id!r}")
        self._is_checked = True
