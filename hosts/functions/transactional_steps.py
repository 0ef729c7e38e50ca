"""Transactional steps: what the body writes to the store's database and the result of the step are committed together.

This is the only user code that runs inside a transaction of the store. The step's history row is written last and
checks job and epoch like every other write: if another worker drives the function by then, all is rolled back
(docs/decisions/0029).
"""

import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Final, cast

import anyio
import attrs
from anyio import CancelScope, CapacityLimiter

from holdfast.hosts.execution.event_loops import caller_into_loop, run_in_loop
from holdfast.hosts.execution.threads import begin_in_thread
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import EventAppend, JobRecord, JobRecorded
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.ports.clock import Clock
from holdfast.ports.errors import STORE_ERRORS, HoldfastError, NoTransactionError
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.user_transactions import SharedTransaction, SharesTransactions

_AGAIN: Final = 1.0
"""Seconds between attempts to reach a store that is down."""

_log = logging.getLogger("holdfast.functions")


class _GivenUpError(Exception):
    """The step was cancelled or timed out: nothing of it is committed."""


@attrs.frozen(kw_only=True)
class Transaction:
    """One attempt of a transactional step."""

    step: Step[..., object]
    body: Callable[[object], object]
    """Calls the body with the connection as its first argument."""
    record: Callable[[object], EventAppend]
    """Returns the row for a result."""
    command: Callable[[EventAppend], JobRecord]
    """Returns the command that records a row."""
    kernel: Kernel
    persistence: Persistence
    clock: Clock

    async def run(self, threads: CapacityLimiter, seconds: float | None) -> JobRecorded:
        """Run the step in a thread; `seconds` is its timeout.

        Raises the body's error, TimeoutError, or the cancellation of the caller. Once the commit has started, it is
        awaited.
        """
        store = self.persistence
        if not isinstance(store, SharesTransactions):
            raise NoTransactionError(
                "the run's store has no transactions to share; use one in a SQL database"
            )
        turn = _CommitRace()
        async with threads:
            done = begin_in_thread(lambda: self._do(store, turn))
            try:
                with anyio.fail_after(seconds):  # waiting for a thread does not count
                    await done.wait()
            except BaseException:
                if turn.give_up():
                    raise
                with CancelScope(shield=True):
                    await done.wait()
        return turn.result()

    def _do(self, store: SharesTransactions, turn: "_CommitRace") -> None:
        try:
            turn.answer = self._tried(store, turn)
        except BaseException as error:  # noqa: BLE001  # raised again where the step is awaited
            turn.error = error

    def _tried(self, store: SharesTransactions, turn: "_CommitRace") -> JobRecorded:
        wanted = self.step.transaction
        assert wanted is not None
        while True:
            try:
                with store.shared(wanted) as transaction:
                    answer, lost = self._within(transaction, turn)
            except STORE_ERRORS as error:
                if turn.has_begun:
                    raise
                _log.warning("step %r can't have a transaction yet: %s", self.step.name, error)
                turn.check()
                self.clock.sleep(_AGAIN)
            else:
                if lost is not None and not self._was_committed(transaction, answer):
                    raise lost
                return answer

    def _within(
        self, transaction: SharedTransaction, turn: "_CommitRace"
    ) -> tuple[JobRecorded, HoldfastError | None]:
        """Run the body and commit. Return the answer, and the error that leaves the commit in doubt, if any."""
        turn.begin()
        recorded = self.record(self._result(transaction.given, turn))
        turn.begin_commit()
        (answer,), committed = self.kernel.dispatch_joined((self.command(recorded),), transaction.join)
        if answer.status != "fenced":
            try:
                transaction.commit()
            except STORE_ERRORS as error:
                return answer, error
            committed()
        return answer, None

    def _result(self, connection: object, turn: "_CommitRace") -> object:
        """Run the body and return its result. An async one gets an event loop of its own in this thread."""
        if not self.step.is_async:
            return self.body(connection)

        async def run() -> object:
            with CancelScope() as scope:
                in_loop = caller_into_loop()
                turn.when_given_up(lambda: in_loop(scope.cancel))
                return await cast("Awaitable[object]", self.body(connection))
            raise _GivenUpError

        return run_in_loop(run)

    def _was_committed(self, transaction: SharedTransaction, answer: JobRecorded) -> bool:
        """Return whether the commit took place, however long the check takes: running twice would be worse."""
        while True:
            try:
                return transaction.was_committed() or self._is_stored(answer)
            except STORE_ERRORS as error:
                _log.warning("whether step %r was committed is not known yet: %s", self.step.name, error)
                self.clock.sleep(_AGAIN)

    def _is_stored(self, answer: JobRecorded) -> bool:
        """Whether the history has the row that the transaction added.

        After a long outage only that tells: the store may have pruned what it knew about the commit.
        """
        row = answer.rows[-1]
        return row in self.persistence.read(HistoryOf(row.run, row.number - 1, 1))


def _do_nothing() -> None:
    """Leave a body that is not async to its thread."""


class _CommitRace:
    """Decides the race between the thread that commits and a caller that abandons the step."""

    def __init__(self) -> None:
        self.has_begun = False
        """Whether the body was called."""
        self.answer: JobRecorded | None = None
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._is_committing = False
        self._is_given_up = False
        self._stop: Callable[[], None] = _do_nothing

    def give_up(self) -> bool:
        """Abandon the step; return whether that was before the commit."""
        with self._lock:
            self._is_given_up = not self._is_committing
            if self._is_given_up:
                self._stop()
            return self._is_given_up

    def when_given_up(self, stop: Callable[[], None]) -> None:
        """Have `stop` called, in any thread, when the step is abandoned. Raises _GivenUpError if it was already."""
        with self._lock:
            if self._is_given_up:
                raise _GivenUpError
            self._stop = stop

    def check(self) -> None:
        """Raise _GivenUpError if the step was abandoned."""
        with self._lock:
            if self._is_given_up:
                raise _GivenUpError

    def begin(self) -> None:
        """Note that the body is about to be called. Raises _GivenUpError if the step was abandoned."""
        self.check()
        self.has_begun = True

    def begin_commit(self) -> None:
        """Note that the commit starts, from where on it is awaited. Raises _GivenUpError if the step was abandoned."""
        with self._lock:
            if self._is_given_up:
                raise _GivenUpError
            self._is_committing = True

    def result(self) -> JobRecorded:
        """Return the answer, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer
