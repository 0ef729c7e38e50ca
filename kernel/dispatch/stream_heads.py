"""Announces the history rows of a batch to the streams of sinks, in the transaction that stores them."""

import math
from collections.abc import Sequence
from typing import Any, Final

from holdfast.kernel.commands import Command, SinkRegister, SinkRemove
from holdfast.kernel.rules.outbox import stream_advances
from holdfast.kernel.state import State
from holdfast.ports.changes import Change, inserted
from holdfast.ports.clock import Clock
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.outbox import Sink
from holdfast.ports.searches import AllSinks

SINKS_KNOWN_FOR: Final = 15.0
"""Seconds for which the list of sinks is cached. It must be far less than `KNOWN_EVERYWHERE`, which is a minute."""


class StreamHeads:
    """The streams of all sinks. The list of sinks is cached for `SINKS_KNOWN_FOR` seconds.

    Rows stored before this process knows a new sink are found by `outbox.sweep`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sinks: tuple[Sink, ...] = ()
        self._known_until = -math.inf

    def advances(self, tx: Transaction, state: State, changes: Sequence[Change]) -> Sequence[Change]:
        """Return the changes that announce the history rows of a batch to sinks."""
        rows = [*inserted(changes, HistoryRow)]
        if not rows:
            return ()
        if self._clock.monotonic() >= self._known_until:
            self._sinks = tuple(tx.find(AllSinks()))
            self._known_until = self._clock.monotonic() + SINKS_KNOWN_FOR
        return stream_advances(rows, state.tables.runs, self._sinks) if self._sinks else ()

    def note_commit(self, batch: Sequence[Command[Any]]) -> None:
        """Forget the list of sinks if these commands, which are committed, have changed it."""
        if any(isinstance(command, SinkRegister | SinkRemove) for command in batch):
            self._known_until = -math.inf
