"""Log lines and progress of a run's stages, and following a log."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, TypedDict, cast

import attrs

from holdfast.hosts.inspection.filters import check_names, number_option, place_option, text_option
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.attempt_context import LEVELS, Level
from holdfast.ports.clock import instant
from holdfast.ports.errors import InvalidFilterError
from holdfast.ports.json import parse
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.run_output import NewestProgress, NotesInOrder
from holdfast.ports.queries.runs import FindRun, RunsByKey
from holdfast.ports.records.history import OutputRow
from holdfast.ports.records.run import TERMINAL
from holdfast.ports.records.values import Micros

FOLLOW_INTERVAL: Final = 0.5
"""Seconds between two reads when following a log."""
OVERLAP: Final[Micros] = 10_000_000
"""How far back each read of a followed log goes, in microseconds: workers store their lines at different times."""
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
    """A log line of a stage."""

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
        )


class LogReader:
    """Reads a run's log, at once or incrementally, and follows the run to its next generation. Blocking."""

    def __init__(self, core: Core, run: str, options: LogOptions) -> None:
        """Raise InvalidArgumentError for an unknown option, InvalidFilterError for an invalid value."""
        self._core = core
        self._run = run
        self._wanted = _wanted(options)
        self._newest = self._wanted.after
        self._seen: dict[str, Micros] = {}
        self.ended = False
        """Whether the run had ended before the last read, so that no further lines follow."""

    def all(self) -> Iterator[LogLine]:
        """Yield the lines stored so far, page by page."""
        after = self._wanted.after
        while notes := self._page(after):
            yield from filter(self._wanted.takes, map(line_of, notes))
            after = ListPlace(notes[-1].at, notes[-1].id)
            if len(notes) < _PAGE:
                return

    def read_new(self) -> list[LogLine]:
        """Return the lines stored since the last call."""
        (run,) = self._core.stores.persistence.read(RunsByKey((self._run,)))
        lines: list[LogLine] = []
        after = self._back()
        while notes := self._page(after):
            lines += (line_of(note) for note in notes if note.id not in self._seen)
            self._seen.update((note.id, note.at) for note in notes)
            after = ListPlace(notes[-1].at, notes[-1].id)
            self._newest = after if self._newest is None else max(self._newest, after)
            if len(notes) < _PAGE:
                break
        back = self._back()
        if back is not None:
            self._seen = {id_: at for id_, at in self._seen.items() if at >= back.at}
        self.ended = run.status in TERMINAL
        if run.has_successor and (
            newest := self._core.stores.persistence.read(FindRun(run.name, run.generation + 1))
        ):
            self._run, self.ended = newest.key, False
        return list(filter(self._wanted.takes, lines))

    def _page(self, after: ListPlace | None) -> tuple[OutputRow, ...]:
        query = NotesInOrder(self._run, after=after, kinds=("log",), limit=_PAGE)
        return self._core.stores.persistence.read(query)

    def _back(self) -> ListPlace | None:
        if self._newest is None:
            return None
        back = ListPlace(self._newest.at - OVERLAP, "")
        return back if self._wanted.after is None else max(back, self._wanted.after)


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
