"""Group commit: commands that several threads dispatch at the same time share transactions."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

import attrs

from holdfast.kernel.commands import Command
from holdfast.ports.errors import CommandError

R = TypeVar("R")

COMMANDS_MAX: Final = 100
"""The maximum number of commands in one transaction."""
TRANSACTIONS_MAX: Final = 2
"""The maximum number of concurrent transactions: while the store executes one, the next is prepared.

The next one starts when as many commands wait as the last one had, or when none is running. Starting it whenever one
ends would give more and smaller transactions, and preparing a transaction costs as much as ten commands in it.
"""


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@attrs.define(eq=False)
class _PendingCommand:
    command: Command[Any]
    woken: threading.Lock = attrs.field(factory=_locked)
    """Released when the command has an answer, or when its thread is to send the next batch.

    A lock, because a `threading.Event` takes several times as long.
    """
    sends: bool = False
    """Whether its thread sends the next batch, with the other waiting commands."""
    answer: object = None
    error: BaseException | None = None


class GroupCommit:
    """Dispatches commands in batches. Thread-safe; a command that arrives alone is sent at once.

    `dispatch_many` returns a reply or a CommandError for each command.
    """

    def __init__(self, dispatch_many: Callable[[Sequence[Command[Any]]], Sequence[object]]) -> None:
        self._dispatch_many = dispatch_many
        self.renew()

    def renew(self) -> None:
        """Reset the state. A forked child calls this: the waiting threads exist only in its parent."""
        self._lock = threading.Lock()
        self._waiting: deque[_PendingCommand] = deque()
        self._under_way = 0
        self._is_called = False
        """Whether a thread is about to send the waiting commands."""
        self._last_size = 1
        """The number of commands in the last transaction."""

    def dispatch(self, command: Command[R]) -> R:
        """Dispatch a command and return its reply. Raises its CommandError, or the error of the whole batch."""
        one = _PendingCommand(command)
        with self._lock:
            if not self._under_way:
                self._under_way = 1
                self._is_called = True
                one.sends = True
            else:
                self._waiting.append(one)
                self._wake_sender()
        if not one.sends:
            self._wait(one)
        if one.sends:
            self._send(one)
        if one.error is not None:
            raise one.error
        if isinstance(one.answer, CommandError):
            raise one.answer
        return cast("R", one.answer)

    def _wait(self, one: _PendingCommand) -> None:
        try:
            one.woken.acquire()
        except BaseException:  # Ctrl-C
            with self._lock:
                if one.sends:
                    self._under_way -= 1
                    self._is_called = False
                    self._wake_sender()
                elif one in self._waiting:
                    self._waiting.remove(one)
            raise

    def _send(self, one: _PendingCommand) -> None:
        """Send a command together with the waiting ones."""
        with self._lock:
            others = [self._waiting.popleft() for _ in range(min(len(self._waiting), COMMANDS_MAX - 1))]
            batch = (one, *others)
            self._last_size = len(batch)
            self._is_called = False
            self._wake_sender()
        try:
            answers = self._dispatch_many([each.command for each in batch])
            for each, answer in zip(batch, answers, strict=True):
                each.answer = answer
        except BaseException as error:  # noqa: BLE001  # every waiting thread raises it
            for each in batch:
                each.error = error
        # Release the answered threads first: their next commands may join the next batch.
        for each in others:
            each.woken.release()
        with self._lock:
            self._under_way -= 1
            self._wake_sender()

    def _wake_sender(self) -> None:
        """Let the first waiting thread send the next batch, if it is time. Call with the lock held."""
        enough = 1 if not self._under_way else self._last_size
        if not self._is_called and self._under_way < TRANSACTIONS_MAX and len(self._waiting) >= enough:
            self._under_way += 1
            self._is_called = True
            first = self._waiting.popleft()
            first.sends = True
            first.woken.release()
