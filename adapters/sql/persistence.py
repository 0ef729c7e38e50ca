"""The store in a database: connections, tries, and what happens if a commit's answer is lost."""

import random as random_module
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final, Generic, TypeVar

import attrs

from holdfast.adapters.sql.database import Database, Link
from holdfast.adapters.sql.errors import TransientError
from holdfast.adapters.sql.postgresql.optimistic import ChangedError, RememberingTransaction
from holdfast.adapters.sql.pruning import prune_receipts, prune_rows
from holdfast.adapters.sql.queries.answers import Answers
from holdfast.adapters.sql.retry import Patience
from holdfast.adapters.sql.schema.migrator import migrate, newest_version
from holdfast.adapters.sql.sqlite.connection import SqliteDatabase, sqlite_path
from holdfast.adapters.sql.statements import reads_for, waiting_for, writes_for
from holdfast.adapters.sql.transaction import SqlTransaction, Statements
from holdfast.adapters.sql.user_transactions import JoinedTransaction, closing, handle_for, receipt_is_there
from holdfast.ports.errors import ConflictError
from holdfast.ports.persistence import Query, SchemaVersion, Transaction
from holdfast.ports.records import Micros
from holdfast.ports.urls import shown_url

R = TypeVar("R")

DEADLINE_SECONDS: Final = 30.0


@attrs.define
class _Outcome(Generic[R]):
    """What the last try of a transaction came to: its result, if its commit was sent and the answer lost."""

    receipt: str
    lost: tuple[R] | None = None


class SqlPersistence:
    """See `Persistence`. Safe to use from several threads; each process needs one of its own."""

    def __init__(
        self,
        url: str,
        *,
        deadline: float = DEADLINE_SECONDS,
        pool_size: int = 4,
        session_settings: bool = True,
        pipeline: bool = True,
        versions: bool = True,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        """Take a URL; nothing is connected yet.

        `url` is `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user@host/database`. `deadline` is
        how many seconds a call goes on trying before it is an UnavailableError. `new_id` draws the receipts of
        transactions, `random` the pauses between tries.

        For PostgreSQL only: `pool_size` is how many connections there are at most. `session_settings=False` is for
        poolers that refuse `options` (PgBouncer without `ignore_startup_parameters = options`): timeouts are then set
        in each transaction rather than when connecting, and questions have none but our own. `pipeline=False` has
        each statement wait for the answer to the one before it, for poolers that can't have several under way.
        `versions=False` is for servers that are no PostgreSQL, and have no `xmin`: each transaction then locks what it
        goes by.
        """
        self._deadline = deadline
        self._new_id = new_id
        self._random = random
        self._extra, self._database = _open(
            url,
            deadline,
            pool_size=pool_size,
            session_settings=session_settings,
            pipeline=pipeline,
            versions=versions,
        )
        dialect = self._database.dialect
        self._statements = Statements(dialect, reads_for(dialect), writes_for(dialect), waiting_for(dialect))
        self._answers = Answers(self._database)

    def setup(self) -> None:
        """See `Persistence.setup`. One question, if there is nothing to do."""
        if self.read(SchemaVersion()) == newest_version():
            return
        self._tried(lambda patience: migrate(self._database, self._extra, patience.left))

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        """See `Persistence.transact`."""
        outcome: _Outcome[R] = _Outcome(self._new_id())

        def attempt(patience: Patience) -> R:
            with self._database.writer(patience.left) as link:
                remembers = link.remembers
                if remembers is not None and outcome.lost is None:
                    tx = RememberingTransaction(link, self._statements, outcome.receipt, remembers)
                    with suppress(ChangedError):
                        return _done(tx, work, outcome)
                return self._attempt(link, work, outcome)

        return self._tried(attempt)

    def read(self, query: Query[R], /) -> R:
        """See `Persistence.read`."""

        def attempt(patience: Patience) -> R:
            with self._database.reader(patience.left) as link:
                return self._answers.answer(link, query)

        return self._tried(attempt)

    @contextmanager
    def shared(self, wanted: type, /) -> Generator[JoinedTransaction]:
        """See `SharesTransactions.shared`."""
        receipt = self._new_id()

        def new_transaction(link: Link) -> SqlTransaction:
            return SqlTransaction(link, self._statements, receipt)

        with self._database.shared(self._deadline) as shared:
            handle = handle_for(shared.connection, wanted)
            with closing(handle):
                yield JoinedTransaction(handle, shared, new_transaction, lambda: self._was_committed(receipt))

    def _was_committed(self, receipt: str) -> bool:
        def attempt(patience: Patience) -> bool:
            with self._database.writer(patience.left) as link:
                return receipt_is_there(link, receipt)

        return self._tried(attempt)

    def prune(self, before: Micros, /) -> int:
        """Remove replies, and sessions that hold nothing, of before this instant; and old receipts.

        Returns how many rows are gone. A command with an idempotency key from before is carried out anew.
        """
        return self.prune_receipts() + self._tried(
            lambda patience: prune_rows(self._database, before, patience.left)
        )

    def prune_receipts(self) -> int:
        """Remove the receipts of transactions more than an hour ago, far longer than a call goes on trying."""
        return self._tried(lambda patience: prune_receipts(self._database, patience.left))

    def close(self) -> None:
        """See `Persistence.close`."""
        self._database.close()

    def _tried(self, attempt: Callable[[Patience], R]) -> R:
        patience = Patience(self._deadline, self._random)
        while True:
            try:
                return attempt(patience)
            except TransientError as error:
                patience.after_failure(error)
            except ConflictError as error:
                patience.after_conflict(error)

    def _attempt(self, link: Link, work: Callable[[Transaction], R], outcome: _Outcome[R]) -> R:
        receipt: str | None = outcome.receipt
        if outcome.lost is not None:
            try:
                link.put_receipt(outcome.receipt)
            except ConflictError:
                return outcome.lost[0]
            # The lost transaction was not committed, and can't be any more: this one now has its receipt.
            receipt = None
        return _done(SqlTransaction(link, self._statements, receipt), work, outcome)


def _done(tx: SqlTransaction, work: Callable[[Transaction], R], outcome: _Outcome[R]) -> R:
    """Do work in a transaction, and return what it gives once that is committed."""
    result = work(tx)
    tx.end()
    try:
        tx.commit()
    except TransientError:
        if not tx.wrote:
            return result  # there was nothing to store
        outcome.lost = (result,)
        raise
    return result


def _open(
    url: str, deadline: float, *, pool_size: int, session_settings: bool, pipeline: bool, versions: bool
) -> tuple[str, Database]:
    """Return the name of the extra that a URL needs, and its database. ValueError for a URL that is none of ours."""
    scheme = url.partition("://")[0]
    if scheme in {"sqlite", "sqlite+pysqlite"}:
        return "sqlite", SqliteDatabase(sqlite_path(url), busy_seconds=deadline)
    if scheme in {"postgresql", "postgres", "postgresql+psycopg"}:
        try:
            from holdfast.adapters.sql.postgresql.connection import PostgresDatabase
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                'PostgreSQL needs psycopg: pip install "holdfast[postgres]"', name=error.name
            ) from error
        return "postgres", PostgresDatabase(
            url,
            pool_size=pool_size,
            session_settings=session_settings,
            pipeline=pipeline,
            versions=versions,
        )
    raise ValueError(
        f"{shown_url(url)!r} is no database of Holdfast's: use sqlite:///file.db or postgresql://host/database"
    )
