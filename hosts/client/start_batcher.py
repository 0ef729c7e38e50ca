"""Commands of many threads in few transactions: those that come while others are under way go with the next one."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

import attrs

from holdfast.kernel.commands import Command
from holdfast.ports.errors import CommandError

R = TypeVar("R")

COMMANDS_MAX: Final = 100
"""How many commands go together."""
UNDER_WAY_MAX: Final = 2
"""How many transactions are under way at most: while the store works on one, the next is made.

The next is begun once as many wait as went with the last one, or none is under way. If it were begun with whoever waits
when another ends, there would be more of them with fewer commands each; and to make a transaction costs as much as ten
commands in it.
"""


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@attrs.define(eq=False)
class _One:
    command: Command[Any]
    woken: threading.Lock = attrs.field(factory=_locked)
    """Free once it has an answer, or is to be sent by whoever waits for it. An event takes several times as long."""
    sends: bool = False
    """Whether its thread is to send it, with others that wait by then."""
    answer: object = None
    error: BaseException | None = None


class GroupCommit:
    """Has commands carried out by `dispatch_many`, which answers each with its reply or its CommandError.

    Safe from any thread. A command that comes alone is sent at once.
    """

    def __init__(self, dispatch_many: Callable[[Sequence[Command[Any]]], Sequence[object]]) -> None:
        self._dispatch_many = dispatch_many
        self.renew()

    def renew(self) -> None:
        """Begin anew. In a forked child: those who wait are threads of its parent's."""
        self._lock = threading.Lock()
        self._waiting: deque[_One] = deque()
        self._under_way = 0
        self._is_called = False
        """Whether a thread is about to send what waits by then."""
        self._last_size = 1
        """With how many commands the last transaction was begun."""

    def dispatch(self, command: Command[R]) -> R:
        """Carry out a command and return its reply. Raises its CommandError, or what those sent with it have met."""
        one = _One(command)
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

    def _wait(self, one: _One) -> None:
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

    def _send(self, one: _One) -> None:
        """Send a command, with those that wait."""
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
        except BaseException as error:  # noqa: BLE001  # each of those who wait raises it
            for each in batch:
                each.error = error
        # First those who have an answer: what they come with next may go along with what is sent next.
        for each in others:
            each.woken.release()
        with self._lock:
            self._under_way -= 1
            self._wake_sender()

    def _wake_sender(self) -> None:
        """If it is time, have the thread of the first that waits send it, with those that wait then. With the lock."""
        enough = 1 if not self._under_way else self._last_size
        if not self._is_called and self._under_way < UNDER_WAY_MAX and len(self._waiting) >= enough:
            self._under_way += 1
            self._is_called = True
            first = self._waiting.popleft()
            first.sends = True
            first.woken.release()
