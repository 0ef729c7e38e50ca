"""The store in a SQL database: transactions, commit receipts, and retries."""

# A transaction, from the call to the answer
# ------------------------------------------
#
# `transact` runs a function, `work`, that reads, locks and finally applies changes through a `Transaction`. It tries
# again until a commit is certain or the deadline (30 seconds) has passed. Each try borrows a connection, runs the whole
# of `work`, and commits. Nothing of a failed try survives: the connection is rolled back, and one that is not sound
# takes all idle ones with it (`pool`). So `work` may run any number of times, and must do nothing but use `tx`.
#
# Retries. `errors` sorts what a database can raise. A TransientError (lost connection, deadlock, serialization failure,
# lock or statement timeout, failover, full disk) is tried again after 20 ms, doubling up to 2 s, with jitter. A
# ConflictError means that another transaction has added the same key first; it is tried again at once, then after
# pauses of up to 200 ms, 30 times in all, because the next try reads that row and decides anew. Other errors go to the
# caller. An error of the database sticks to its transaction: `work` may catch it, but `end` raises it again before the
# commit.
#
# Locks. Isolation is READ COMMITTED, so correctness rests on row locks: the rows that a decision relies on are locked
# when they are read, or can't change to its harm (sessions: docs/decisions/0003). All transactions lock runs, then
# jobs, other rows, slots and rates, by ascending key, and `NetChanges` writes in one order too. Two transactions on the
# same rows wait for each other instead of deadlocking. Searches (claims, due jobs, due streams) use SKIP LOCKED and
# never wait. The order is a convention of the callers, not enforced here. A violation shows up as a deadlock, which
# costs a retry and corrupts nothing. SQLite has a single lock, taken by BEGIN IMMEDIATE, so there the order is moot.
#
# Lost answers. If the connection breaks during COMMIT, the client can't know whether the server committed. Repeating
# `work` could store it twice; returning an error could report a stored change as failed. So every writing transaction
# inserts a row of its own into `holdfast_commit_receipts`, under an id that `transact` draws before the first try and
# keeps for all of them. After a lost answer the next try inserts that id first:
#
# - The id exists: the transaction was committed. The result, still in memory, is returned.
# - The id is being inserted by the lost transaction, which may still be alive on the server: the unique index makes
#   the insert wait for its end, at most for a lock timeout, after which comes another try.
# - The id is new: the transaction was not committed. It can't be any more either, even if its packets are still on the
#   way, because it would collide with our row. `work` runs again in this transaction, which holds the receipt already.
#
# After `DOUBT_SECONDS` nothing is tried again, however long the caller's deadline is: the receipt of a committed
# transaction could have been pruned, and `work` would be stored twice. The wall clock counts beside the monotonic one,
# which may stand still while a machine is suspended.
#
# A transaction that wrote nothing needs no receipt: its result is as good without the commit.
#
# Guaranteed: when `transact` returns, the changes are durable and were stored exactly once. When `work` raises, nothing
# was stored. Only UnavailableError after a lost answer leaves it open, until someone asks again with an idempotency
# key, or replaces the session that may hold unknown leases (docs/decisions/0003).
#
# The fast path. A database may have one (`database.FastPath`): that of PostgreSQL first tries with cached rows and no
# locks (docs/decisions/0048). ChangedError means that they are outdated, and the same try continues with locks. After a
# lost answer this path is skipped, since the receipt must come first.
#
# Ugly, and why it stays:
#
# - Receipts cost a row of some 120 bytes for every writing transaction, and have to be pruned. Without them no retry
#   after a lost answer would be safe.
# - SQLite accepts a receipt and ignores it: a commit's answer can't be lost within a process. One code path for all
#   databases is worth an unused argument.
# - The result of a lost try is kept while the next one may compute another. Which of them is returned depends on which
#   was committed.

import random as random_module
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Generic, TypeVar

import attrs

from holdfast.adapters.sql.application_connections import application_connection, lock_of
from holdfast.adapters.sql.application_transactions import SqlApplicationTransaction
from holdfast.adapters.sql.database import ChangedError, Link
from holdfast.adapters.sql.databases import kind_of, url_forms
from holdfast.adapters.sql.errors import StatementStoppedError, TransientError
from holdfast.adapters.sql.pruning import RECEIPT_AGE, prune_receipts, prune_rows
from holdfast.adapters.sql.queries.handlers import Answers
from holdfast.adapters.sql.retry import RetryBudget
from holdfast.adapters.sql.schema.migrator import migrate, newest_version
from holdfast.adapters.sql.transaction import SqlTransaction, statements_for
from holdfast.adapters.sql.user_transactions import JoinedTransaction, closing, handle_for, receipt_is_there
from holdfast.ports.application_transactions import RunAsync
from holdfast.ports.errors import ConflictError, InvalidTransactionError, ReadTimeoutError, UnavailableError
from holdfast.ports.persistence import Query, Transaction
from holdfast.ports.queries.store import SchemaVersion
from holdfast.ports.read_limits import read_limit
from holdfast.ports.records.values import Micros
from holdfast.ports.transport import JobTransport
from holdfast.ports.urls import shown_url

R = TypeVar("R")

DEADLINE_SECONDS: Final = 30.0
DOUBT_SECONDS: Final = RECEIPT_AGE / 2_000_000
"""How long a store looks for a commit in doubt: half the lifetime of receipts, so a slow last attempt is in time."""

_CALLER_LEFT: Final = "the read was stopped, as its caller has left"


def _too_long(seconds: float) -> str:
    return (
        f"a read of the store took longer than {seconds:g} s, and was stopped: ask for less at a time, by a filter or a"
        " smaller limit, or try again when the store has less to do"
    )


def clocks() -> tuple[float, float]:
    """Return the monotonic and the wall clock, in seconds: the first may stand still while a machine is suspended."""
    return time.monotonic(), time.time()


@attrs.frozen
class _Lost(Generic[R]):
    """The result of a transaction whose commit was not answered, and the clocks when it was begun."""

    result: R
    begun: tuple[float, float]

    @property
    def age(self) -> float:
        """The seconds since it was begun."""
        return max(now - then for now, then in zip(clocks(), self.begun, strict=True))


@attrs.define
class _Outcome(Generic[R]):
    """The receipt of a transaction, and its result if the answer to its commit was lost."""

    receipt: str
    lost: _Lost[R] | None = None


class SqlPersistence:
    """See `Persistence`. Safe to use from several threads; each process needs its own."""

    def __init__(
        self,
        url: str,
        *,
        deadline: float = DEADLINE_SECONDS,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        random: Callable[[], float] = random_module.random,
        **options: object,
    ) -> None:
        """Use a database, without connecting yet.

        Args:
            url: The URL of a registered database (`databases`).
            deadline: How many seconds a call retries before it raises UnavailableError. A commit in doubt is looked for
                for `DOUBT_SECONDS` at most.
            new_id: Generates the receipts of transactions.
            random: Draws the pauses between retries.
            options: Further options of the database, such as `pool_size` of `PostgresDatabase`.

        Raises:
            ValueError: The URL is not valid, or of a database that is not registered.
            ModuleNotFoundError: The driver is not installed.
        """
        kind = kind_of(url)
        if kind is None:
            raise ValueError(
                f"{shown_url(url)!r} is not the URL of a supported database: use {' or '.join(url_forms())}"
            )
        self._deadline = deadline
        self._new_id = new_id
        self._random = random
        self._extra = kind.extra
        self._database = kind.open(url, deadline, **options)
        self._statements = statements_for(self._database.dialect)
        self._answers = Answers(self._database)
        self._fast_path = self._database.fast_path(self._statements)
        self._known_identity: str | None = None

    @property
    def file(self) -> Path | None:
        """The file that holds the whole store, if there is one."""
        return self._database.file

    def transport(self) -> JobTransport:
        """Return a new transport of hints between the processes that use the database."""
        return self._database.transport()

    def setup(self) -> None:
        """See `Persistence.setup`. A single query if the tables are up to date."""
        if self.read(SchemaVersion()) == newest_version():
            return
        self._tried(lambda patience: migrate(self._database, self._extra, patience.left))

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        """See `Persistence.transact`."""
        outcome: _Outcome[R] = _Outcome(self._new_id())

        def attempt(patience: RetryBudget) -> R:
            self._check_doubt(outcome)
            with self._database.writer(patience.left) as link:
                if self._fast_path is not None and outcome.lost is None:
                    tx = self._fast_path.transaction(link, outcome.receipt)
                    if tx is not None:
                        with suppress(ChangedError):
                            return _done(tx, work, outcome)
                return self._attempt(link, work, outcome)

        return self._tried(attempt)

    def read(self, query: Query[R], /) -> R:
        """See `Persistence.read`. A read whose caller has left is not tried again."""
        limit = read_limit()

        def attempt(patience: RetryBudget) -> R:
            if limit is not None and limit.is_abandoned:
                raise ReadTimeoutError(_CALLER_LEFT)
            with self._database.reader(patience.left, limit) as link:
                known = None if self._fast_path is None else self._fast_path.answer(link, query)
                return self._answers.answer(link, query) if known is None else known

        if limit is None:
            return self._tried(attempt)
        try:
            return self._tried(attempt, StatementStoppedError)
        except StatementStoppedError as error:
            raise ReadTimeoutError(
                _CALLER_LEFT if limit.is_abandoned else _too_long(limit.seconds)
            ) from error

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

    def application_transaction(
        self, connection: object, run_async: RunAsync | None = None, /
    ) -> SqlApplicationTransaction:
        """See `JoinsTransactions.application_transaction`."""
        access = self._database.application_access
        if access is None:
            raise InvalidTransactionError("transactions of this database can't be joined")
        given = application_connection(connection, run_async, access)
        lock = lock_of(connection)
        return SqlApplicationTransaction(given, access, self._statements, self._identity, lock)

    def _identity(self) -> str:
        """Return the identity of the store, which is read once."""
        if self._known_identity is None:
            access = self._database.application_access
            assert access is not None

            def attempt(patience: RetryBudget) -> str:
                with self._database.reader(patience.left) as link:
                    return str(link.query(access.store_id_sql)[0][0])

            self._known_identity = self._tried(attempt)
        return self._known_identity

    def _was_committed(self, receipt: str) -> bool:
        def attempt(patience: RetryBudget) -> bool:
            with self._database.writer(patience.left) as link:
                return receipt_is_there(link, receipt)

        return self._tried(attempt)

    def prune(self, before: Micros, /) -> int:
        """See `Persistence.prune`. Old receipts are deleted too."""
        return self.prune_receipts() + self._tried(
            lambda patience: prune_rows(self._database, before, patience.left)
        )

    def prune_receipts(self) -> int:
        """Delete the receipts of transactions more than an hour ago, which no call looks for any more."""
        return self._tried(lambda patience: prune_receipts(self._database, patience.left))

    def close(self) -> None:
        """See `Persistence.close`."""
        self._database.close()

    def _tried(self, attempt: Callable[[RetryBudget], R], final: type[TransientError] | None = None) -> R:
        """Try until it works. An error of the class `final` is raised at once."""
        patience = RetryBudget(self._deadline, self._random)
        while True:
            try:
                return attempt(patience)
            except TransientError as error:
                if final is not None and isinstance(error, final):
                    raise
                patience.after_failure(error)
            except ConflictError as error:
                patience.after_conflict(error)

    def _attempt(self, link: Link, work: Callable[[Transaction], R], outcome: _Outcome[R]) -> R:
        receipt: str | None = outcome.receipt
        if outcome.lost is not None:
            self._check_doubt(outcome)  # again, as it may have taken long to get the connection
            try:
                link.put_receipt(outcome.receipt)
            except ConflictError:
                return outcome.lost.result
            # The lost transaction was not committed and can't be any more, because this one holds its receipt.
            receipt = None
        return _done(SqlTransaction(link, self._statements, receipt), work, outcome)

    def _check_doubt(self, outcome: _Outcome[R]) -> None:
        """Raise UnavailableError if a commit has been in doubt for so long that its receipt may be pruned."""
        lost = outcome.lost
        if self._database.has_receipts and lost is not None and lost.age >= DOUBT_SECONDS:
            raise UnavailableError(
                f"the database did not answer a commit, and for {DOUBT_SECONDS:g} seconds could not be asked whether"
                " it took place; look at what is stored before you repeat the call"
            )


def _done(tx: SqlTransaction, work: Callable[[Transaction], R], outcome: _Outcome[R]) -> R:
    """Run work in a transaction, commit it, and return the result."""
    begun = clocks()
    result = work(tx)
    tx.end()
    try:
        tx.commit()
    except TransientError:
        if not tx.wrote:
            return result  # nothing was to be stored
        outcome.lost = _Lost(result, begun)
        raise
    return result
