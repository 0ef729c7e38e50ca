"""Commands of many threads in few transactions: those that come while others are under way go with the next one."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

import attrs

from holdfast.kernel.commands import Command
from holdfast.ports.errors import CommandError

R = TypeVar("R")

COMMANDS_MAX: Final = 100
"""How many commands go together."""
UNDER_WAY_MAX: Final = 2
"""How many transactions are under way before commands gather: while the store works on one, the next is made."""


@attrs.define(eq=False)
class _One:
    command: Command[Any]
    stirred: threading.Event = attrs.field(factory=threading.Event)
    """Set when it has an answer, or is to be sent by whoever waits for it."""
    batch: "list[_One] | None" = None
    """What its thread is to send, itself included; None if another thread does."""
    answer: object = None
    error: BaseException | None = None


class GroupCommit:
    """Has commands carried out by `dispatch_many`, which answers each with its reply or its CommandError.

    Safe from any thread. A command that comes alone is sent at once.
    """

    def __init__(self, dispatch_many: Callable[[Sequence[Command[Any]]], Sequence[object]]) -> None:
        self._dispatch_many = dispatch_many
        self._lock = threading.Lock()
        self._waiting: list[_One] = []
        self._under_way = 0

    def dispatch(self, command: Command[R]) -> R:
        """Carry out a command and return its reply. Raises its CommandError, or what those sent with it have met."""
        one = _One(command)
        with self._lock:
            self._waiting.append(one)
            if self._under_way < UNDER_WAY_MAX:
                self._under_way += 1
                self._hand_over()
        if one.batch is None:
            self._wait(one)
        if one.batch is not None:
            self._send(one.batch)
        if one.error is not None:
            raise one.error
        if isinstance(one.answer, CommandError):
            raise one.answer
        return cast("R", one.answer)

    def _hand_over(self) -> None:
        """Have the thread of the first that waits send all that wait. With the lock."""
        batch, self._waiting = self._waiting[:COMMANDS_MAX], self._waiting[COMMANDS_MAX:]
        if batch:
            batch[0].batch = batch
            batch[0].stirred.set()
        else:
            self._under_way -= 1

    def _wait(self, one: _One) -> None:
        try:
            one.stirred.wait()
        except BaseException:  # Ctrl-C
            with self._lock:
                if one in self._waiting:
                    self._waiting.remove(one)
            if one.batch is not None:
                self._send(one.batch)  # others wait for that
            raise

    def _send(self, batch: Sequence[_One]) -> None:
        try:
            answers = self._dispatch_many([one.command for one in batch])
            for one, answer in zip(batch, answers, strict=True):
                one.answer = answer
        except BaseException as error:  # noqa: BLE001  # each of those who wait raises it
            for one in batch:
                one.error = error
        with self._lock:
            self._hand_over()
        for one in batch:
            one.stirred.set()
