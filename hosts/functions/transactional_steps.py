"""Does a step in a transaction of the store: what its body writes and its result are committed together.

The one place where code of users runs inside a transaction. Its own row is written last, guarded by the attempt's job
and epoch as every other: if somebody else drives the function by then, all is rolled back.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

import anyio
import attrs
from anyio import CancelScope, CapacityLimiter

from holdfast.hosts.execution.threads import begin_in_thread
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import JobRecord, JobRecorded, Recorded
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.ports.clock import Clock
from holdfast.ports.errors import STORE_ERRORS, HoldfastError, NoTransactionError
from holdfast.ports.persistence import Persistence
from holdfast.ports.user_transactions import SharedTransaction, SharesTransactions

_AGAIN: Final = 1.0
"""Seconds after which a store is asked again that was away."""

_log = logging.getLogger("holdfast.functions")


class _GivenUpError(Exception):
    """Nobody waits for the step any more: nothing of it is committed."""


@attrs.frozen(kw_only=True)
class Transaction:
    """One try of a step that is done in a transaction.

    `call` calls its body with what it is given first, and returns what is to be recorded; `command` makes the command
    that records it.
    """

    step: Step[..., object]
    call: Callable[[object], Recorded]
    command: Callable[[Recorded], JobRecord]
    kernel: Kernel
    persistence: Persistence
    clock: Clock

    async def run(self, threads: CapacityLimiter, seconds: float | None) -> JobRecorded:
        """Do it in a thread. Raises what the body does, TimeoutError, or the cancellation of whoever waits.

        Once it is being committed, that is waited for.
        """
        store = self.persistence
        if not isinstance(store, SharesTransactions):
            raise NoTransactionError(
                "the run's store has none that could be shared; it is no database, as SQLite and PostgreSQL are"
            )
        turn = _Turn()
        async with threads:
            done = begin_in_thread(lambda: self._do(store, turn))
            try:
                with anyio.fail_after(seconds):  # to wait for a thread is not its time
                    await done.wait()
            except BaseException:
                if turn.give_up():
                    raise
                with CancelScope(shield=True):
                    await done.wait()
        return turn.result()

    def _do(self, store: SharesTransactions, turn: "_Turn") -> None:
        try:
            turn.answer = self._tried(store, turn)
        except BaseException as error:  # noqa: BLE001  # it is raised again where the step is awaited
            turn.error = error

    def _tried(self, store: SharesTransactions, turn: "_Turn") -> JobRecorded:
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
                if lost is not None and not self._was_committed(transaction):
                    raise lost
                return answer

    def _within(
        self, transaction: SharedTransaction, turn: "_Turn"
    ) -> tuple[JobRecorded, HoldfastError | None]:
        """Return what was answered, and why nobody knows whether it was committed, if so."""
        turn.begin()
        recorded = self.call(transaction.given)
        turn.begin_commit()
        answer = self.kernel.dispatch_joined(self.command(recorded), transaction.join)
        if answer.status != "fenced":
            try:
                transaction.commit()
            except STORE_ERRORS as error:
                return answer, error
        return answer, None

    def _was_committed(self, transaction: SharedTransaction) -> bool:
        """Find out, however long that takes: to do the step again may be to do it twice."""
        while True:
            try:
                return transaction.was_committed()
            except STORE_ERRORS as error:
                _log.warning("whether step %r was committed is not known yet: %s", self.step.name, error)
                self.clock.sleep(_AGAIN)


class _Turn:
    """Whose turn it is: the thread's, which is to commit, or that of whoever has given it up."""

    def __init__(self) -> None:
        self.has_begun = False
        """Whether the body was called."""
        self.answer: JobRecorded | None = None
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._is_committing = False
        self._is_given_up = False

    def give_up(self) -> bool:
        """Say that nobody waits any more; return whether that is in time."""
        with self._lock:
            self._is_given_up = not self._is_committing
            return self._is_given_up

    def check(self) -> None:
        """Raise if it was given up."""
        with self._lock:
            if self._is_given_up:
                raise _GivenUpError

    def begin(self) -> None:
        """Say that the body is about to be called; raise if it was given up."""
        self.check()
        self.has_begun = True

    def begin_commit(self) -> None:
        """Say that from here on it is waited for; raise if it was given up."""
        with self._lock:
            if self._is_given_up:
                raise _GivenUpError
            self._is_committing = True

    def result(self) -> JobRecorded:
        """Return what was answered, or raise what was raised."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer
