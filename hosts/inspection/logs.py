"""Log lines and progress of a run's stages, and following a log."""

from collections.abc import Iterator, Mapping
from copy import copy
from datetime import datetime
from typing import Final, TypedDict, cast

import attrs

from holdfast.hosts.inspection.filters import check_names, number_option, place_option, text_option
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.attempt_context import LEVELS, Level
from holdfast.ports.clock import instant
from holdfast.ports.errors import InvalidFilterError
from holdfast.ports.json import parse
from holdfast.ports.pagination import ListPlace, list_place
from holdfast.ports.queries.run_output import LogOf, NewestProgress, NotesInOrder
from holdfast.ports.queries.runs import FindRun, JobsOfRun, RunsByKey
from holdfast.ports.records.history import LOG, OutputRow
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import TERMINAL, Run

FOLLOW_INTERVAL: Final = 0.5
"""Seconds between two reads when following a log."""
_PAGE: Final = 1_000


class LogOptions(TypedDict, total=False):
    """Filters for the log lines of a run.

    Attributes:
        level: This level or a higher one: `debug`, `info`, `warning`, `error`, `critical`.
        stage: Only lines of this stage.
        item: Only lines of this item of the stage.
        after: Start after this position: the `cursor` of a `LogLine`.
    """

    level: Level
    stage: str | None
    item: int | None
    after: str | None


@attrs.frozen(kw_only=True)
class LogLine:
    """A log line of a stage, a step or a durable function."""

    at: datetime
    """When it was logged, by the store's clock; aware, in UTC."""
    level: Level
    """`debug`, `info`, `warning`, `error` or `critical`."""
    message: str
    """The text."""
    fields: Mapping[str, str | float | bool]
    """Structured fields: strings, numbers and booleans by name."""
    stage: str | None
    """The stage that logged it."""
    item: int | None
    """The index of the map item; None if the stage is not mapped."""
    attempt: int | None
    """The number of the attempt, from 1."""
    epoch: int
    """The epoch of the attempt."""
    cursor: str
    """An opaque position; pass it to `logs(after=...)` to read the lines that follow."""


@attrs.frozen(kw_only=True)
class ProgressInfo:
    """The latest progress of a stage or a map item."""

    stage: str | None
    """The stage that reported it."""
    item: int | None
    """The index of the map item; None if the stage is not mapped."""
    attempt: int | None
    """The number of the attempt, from 1."""
    epoch: int
    """The epoch of the attempt."""
    done: float
    """How much is done."""
    of: float
    """How much there is in total."""
    message: str
    """A text of the stage."""
    at: datetime
    """When it was reported; aware, in UTC."""


@attrs.frozen(kw_only=True)
class _Wanted:
    level: int
    stage: str | None
    item: int | None
    after: ListPlace | None

    def takes(self, line: LogLine) -> bool:
        return (
            LEVELS.index(line.level) >= self.level
            and self.stage in {None, line.stage}
            and self.item in {None, line.item}
            and (self.after is None or list_place(line.cursor) > self.after)
        )


@attrs.frozen
class PlacedLine:
    """A log line with its place among the lines that were stored of its run."""

    generation: int
    number: int
    line: LogLine


class StoredLogReader:
    """Reads the log lines of one generation of a run in the order in which they were stored. Blocking.

    Workers store their lines at different times, so this is not the order in which they were logged. But no line is
    stored before one that was read: what follows a number is what was not read yet.

    Args:
        core: The services.
        run: The generation.
        after: The number of the line to begin after.
        options: Which lines are returned. `after` leaves out those that were logged before that position.

    Raises:
        InvalidArgumentError: An option is unknown.
        InvalidFilterError: An option has an invalid value.
    """

    def __init__(self, core: Core, run: Run, after: int, options: LogOptions) -> None:
        self._core = core
        self._wanted = _wanted(options)
        self.run = run
        """The generation, as it was when it was read last."""
        self.last_number = after
        """The number of the last line that was read."""
        self.ended = False
        """Whether the generation has ended, and all of its lines have been read."""

    def read(self, limit: int = _PAGE) -> list[PlacedLine]:
        """Return the next lines, at most `limit`; empty if nothing new is stored, or nothing follows (see `ended`)."""
        read = self._core.stores.persistence.read
        while True:
            # The run's row first: if it has ended then, the lines read afterwards are complete.
            runs = read(RunsByKey((self.run.key,)))
            is_over = not runs or (runs[0].status in TERMINAL and not self._is_cleaned_up_later())
            found = read(LogOf(self.run.key, self.last_number, limit=limit))
            self.run = runs[0] if runs else self.run
            if not found:
                self.ended = is_over
                return []
            self.last_number = found[-1].number
            lines = [PlacedLine(self.run.generation, one.number, line_of(one.note)) for one in found]
            if wanted := [one for one in lines if self._wanted.takes(one.line)]:
                return wanted

    def next_generation(self) -> "StoredLogReader | None":
        """Return a reader of the next generation of the run, from its beginning; None if this is the newest."""
        following = self._core.stores.persistence.read(FindRun(self.run.name, self.run.generation + 1))
        if following is None:
            return None
        reader = copy(self)
        reader.run, reader.last_number, reader.ended = following, 0, False
        return reader

    def _is_cleaned_up_later(self) -> bool:
        """Return whether functions that cancel external work are still to be called: they may log."""
        jobs = self._core.stores.persistence.read(JobsOfRun(self.run.key))
        return any(job.kind is JobKind.CANCEL for job in jobs)


class LogReader:
    """Reads a run's log, at once or incrementally, and follows a run that continues as new. Blocking."""

    def __init__(self, core: Core, run: Run, options: LogOptions) -> None:
        """Raise InvalidArgumentError for an unknown option, InvalidFilterError for an invalid value."""
        self._core = core
        self._run = run
        self._wanted = _wanted(options)
        self._stored = StoredLogReader(core, run, 0, options)
        self.ended = False
        """Whether the run has ended and all lines have been read, so that none follow."""

    def all(self) -> Iterator[LogLine]:
        """Yield the lines stored so far in order of time, page by page."""
        after = self._wanted.after
        while notes := self._page(after):
            yield from filter(self._wanted.takes, map(line_of, notes))
            after = ListPlace(notes[-1].at, notes[-1].id)
            if len(notes) < _PAGE:
                return

    def read_new(self) -> list[LogLine]:
        """Return the lines stored since the last call, in the order in which they were stored."""
        lines: list[LogLine] = []
        while True:
            while found := self._stored.read():
                lines += (one.line for one in found)
            following = (
                self._stored.next_generation()
                if self._stored.ended and self._stored.run.has_successor
                else None
            )
            if following is None:
                self.ended = self._stored.ended
                return lines
            self._stored = following

    def _page(self, after: ListPlace | None) -> tuple[OutputRow, ...]:
        query = NotesInOrder(self._run.key, after=after, kinds=(LOG,), limit=_PAGE)
        return self._core.stores.persistence.read(query)


def progress_of(core: Core, run: str) -> Iterator[ProgressInfo]:
    """Yield the latest progress of each stage of a run and of each map item, read page by page."""
    after = (0, "")
    while notes := core.stores.persistence.read(NewestProgress(run, after=after, limit=_PAGE)):
        yield from map(progress_info, notes)
        after = (notes[-1].job, notes[-1].call)
        if len(notes) < _PAGE:
            return


def line_of(note: OutputRow) -> LogLine:
    """Return the log line that an attempt output row holds."""
    content = cast("dict[str, object]", parse(note.data))
    level = content.get("level")
    return LogLine(
        at=instant(note.at),
        level=level if level in LEVELS else "info",
        message=str(content.get("message", "")),
        fields=cast("dict[str, str | float | bool]", content.get("fields") or {}),
        stage=cast("str | None", content.get("stage")),
        item=cast("int | None", content.get("item")),
        attempt=cast("int | None", content.get("attempt")),
        epoch=note.epoch,
        cursor=ListPlace(note.at, note.id).text,
    )


def progress_info(note: OutputRow) -> ProgressInfo:
    """Return the progress that an attempt output row holds."""
    content = cast("dict[str, object]", parse(note.data))
    return ProgressInfo(
        stage=cast("str | None", content.get("stage")),
        item=cast("int | None", content.get("item")),
        attempt=cast("int | None", content.get("attempt")),
        epoch=note.epoch,
        done=cast("float", content.get("done", 0)),
        of=cast("float", content.get("of", 0)),
        message=str(content.get("message", "")),
        at=instant(note.at),
    )


def _wanted(options: LogOptions) -> _Wanted:
    given = cast("dict[str, object]", options)
    check_names(given, LogOptions, "logs")
    level = given.get("level", LEVELS[0])
    if level not in LEVELS:
        raise InvalidFilterError("level", f"is {level!r}; it is one of {', '.join(LEVELS)}")
    return _Wanted(
        level=LEVELS.index(level),
        stage=text_option(given, "stage"),
        item=number_option(given, "item", 0),
        after=place_option(given),
    )
