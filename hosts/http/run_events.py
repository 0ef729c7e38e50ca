"""The stream of a run's history: every row of every generation, once and in order.

The id of an event is `<generation>/<row>`. Rows are numbered without gaps within a generation, so the id of the last
event says exactly where to continue, after a lost connection, another server, or a rerun.
"""

import re
from typing import Final

import attrs

from holdfast.hosts.http.operations import ServerEvent
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.user_values import without_user_values
from holdfast.hosts.inspection.run_info import event_of, find_run
from holdfast.hosts.wiring.services import Core
from holdfast.ports.errors import RunNotFoundError
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.runs import FindRun, RunsByKey
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import TERMINAL, Run, RunStatus

_ROWS: Final = 500
_PLACE: Final = re.compile(r"(\d{1,9})/(\d{1,9})")


@attrs.frozen(kw_only=True)
class GenerationStarted:
    """The data of the event `generation`: the rows that follow are those of another generation."""

    run_id: str
    """The run id."""
    generation: int
    """The number of the generation, from 1."""


@attrs.frozen(kw_only=True)
class RunEnded:
    """The data of the event `end`: no rows follow, unless the run is run again."""

    run_id: str
    """The run id."""
    generation: int
    """The number of the generation, from 1."""
    status: RunStatus
    """How it ended."""


@attrs.frozen(kw_only=True)
class HistoryEvent:
    """An event of the stream."""

    id: str | None
    type: str
    data: object


class HistoryReader:
    """Reads the history of a run from a place on, generation after generation. Blocking."""

    def __init__(self, core: Core, run: Run, row: int, *, sees_values: bool) -> None:
        self._core = core
        self._run = run
        self._row = row
        self._sees_values = sees_values
        self._is_ended = False
        self._has_sent = False

    @property
    def place(self) -> tuple[str, int]:
        """The key of the generation, and the number of the last row that was read."""
        return self._run.key, self._row

    @property
    def is_over(self) -> bool:
        """Whether the run has ended and all of its rows have been read."""
        return self._is_ended

    def read(self) -> list[ServerEvent]:
        """Return the next rows as events; at the end the event `end`, unless nothing was read before it."""
        if self._is_ended:
            return []
        store = self._core.stores.persistence
        # The status is read before the rows: what ended the run is among the rows that are read afterwards.
        run = next(iter(store.read(RunsByKey((self._run.key,)))), None)
        rows = store.read(HistoryOf(self._run.key, self._row, _ROWS))
        if rows:
            self._row, self._has_sent = rows[-1].number, True
            return [self._event(row) for row in rows]
        if run is not None and run.status not in TERMINAL:
            return []
        following = store.read(FindRun(self._run.name, self._run.generation + 1))
        if following is not None:
            self._run, self._row, self._has_sent = following, 0, True
            data = GenerationStarted(run_id=following.id, generation=following.generation)
            return [HistoryEvent(id=f"{following.generation}/0", type="generation", data=data)]
        self._is_ended = True
        if run is None or not self._has_sent:
            return []
        ended = RunEnded(run_id=run.id, generation=run.generation, status=run.status)
        return [HistoryEvent(id=None, type="end", data=ended)]

    def _event(self, row: HistoryRow) -> HistoryEvent:
        event = event_of(row)
        data = event if self._sees_values else without_user_values(event)
        return HistoryEvent(id=f"{self._run.generation}/{row.number}", type=row.type, data=data)


def place_in(text: str) -> tuple[int, int] | None:
    """Return the generation and the row that a text such as `1/20` names; None if it names none."""
    found = _PLACE.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2]))


def history_reader(
    core: Core, run_id: str, *, generation: int | None, after: int, last: str | None, sees_values: bool
) -> HistoryReader:
    """Return a reader that continues after the event with the id `last`, or after row `after` of a generation.

    Raises RunNotFoundError, or HttpError if `last` is no id of such an event.
    """
    row = after
    if last is not None:
        found = place_in(last)
        if found is None:
            raise HttpError("invalid_request", "Last-Event-ID is not <generation>/<row>")
        generation, row = found
        if generation == 0:
            raise RunNotFoundError(run_id, generation)
    return HistoryReader(core, find_run(core, run_id, generation), row, sees_values=sees_values)
