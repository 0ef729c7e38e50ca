"""Queries for sinks, streams and dead letters."""

import re
from typing import Final, NamedTuple

from holdfast.ports.persistence import Query
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.outbox import Sink
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen

_RUN: Final = re.compile(r"[0-9A-Za-z]{1,64}")
_SINK: Final = re.compile(r"[a-z0-9_.-]{1,100}")


@frozen
class ListSinks(Query[tuple[Sink, ...]]):
    """The sinks of a namespace, by name."""

    namespace: str


@frozen
class SinksWithDueStreams(Query[tuple[str, ...]]):
    """The names, among these, of sinks that have a due stream and no `retry_at` after `now`."""

    namespace: str
    names: tuple[str, ...]
    now: Micros
    are_read: bool = False
    """Whether sinks are meant that clients read, instead of those that hosts deliver to."""


@frozen
class StreamStart:
    """A position in a run's history to read on from."""

    run: str
    after: int
    """The number of the last row that was read. If 0, reading starts at the first row stored at `since` or later."""
    since: Micros


@frozen
class StreamRows(Query[tuple[HistoryRow, ...]]):
    """The next rows of several runs, at most `limit` of each, by run and number."""

    starts: tuple[StreamStart, ...]
    limit: int


class DeadLetterPlace(NamedTuple):
    """The position of a dead-lettered stream in their list."""

    sink: str
    """The name of the sink."""
    run: str
    """The key of the run."""

    @property
    def text(self) -> str:
        """The cursor as text, to pass to the next call."""
        return f"{self.run}.{self.sink}"


def dead_letter_place(text: str) -> DeadLetterPlace:
    """Return the position that a cursor encodes. ValueError if the text is not a cursor."""
    run, _, sink = text.partition(".")
    if not (_RUN.fullmatch(run) and _SINK.fullmatch(sink)):
        raise ValueError(f"{text[:100]!r} is not a cursor; a cursor looks like <run>.<sink>")
    return DeadLetterPlace(sink, run)


@frozen(kw_only=True)
class DeadLetter:
    """A dead-lettered stream, stopped at an event that its sink has refused repeatedly."""

    sink: str
    """The name of the sink."""
    run: str
    """The key of the run."""
    run_id: str
    number: int
    """The number of the refused event."""
    head_row: int
    """The number of the last event held behind it."""
    attempts: int
    dead_lettered_at: Micros
    error: str

    @property
    def place(self) -> DeadLetterPlace:
        """Its position in their list."""
        return DeadLetterPlace(self.sink, self.run)


@frozen(kw_only=True)
class ListDeadLetters(Query[tuple[DeadLetter, ...]]):
    """Dead-lettered streams, by name of the sink and key of the run.

    `sink` and `run_id` select the sink of that name and the run with that id; "" selects all.
    """

    namespace: str
    sink: str = ""
    run_id: str = ""
    after: DeadLetterPlace | None = None
    """The position of the last entry of the page before."""
    limit: int = 100


@frozen
class CountDeadLetters(Query[dict[str, int]]):
    """The number of dead-lettered streams of each sink of a namespace, without sinks that have none."""

    namespace: str
