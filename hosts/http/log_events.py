"""The stream of a run's log: every line of every generation, once, in the order in which the lines were stored.

The id of an event is `<generation>/<number>`. Stores number the lines of a run so that none is stored below one that
can be read. So the id of the last event says exactly where to continue, however late a worker stores a line.
"""

from typing import Final

from holdfast.hosts.http.operations import ServerEvent
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.run_events import GenerationStarted, HistoryEvent, RunEnded, place_in
from holdfast.hosts.inspection.logs import LogOptions, StoredLogReader
from holdfast.hosts.inspection.run_info import find_run
from holdfast.hosts.wiring.services import Core
from holdfast.ports.errors import RunNotFoundError
from holdfast.ports.queries.run_output import NewestLine
from holdfast.ports.queries.runs import JobsOfRun
from holdfast.ports.records.run import TERMINAL

LINE: Final = "line"
"""The type of the events of lines."""
_LINES: Final = 500
"""How many lines one read has."""


class LogEvents:
    """Reads the log of a run as events, generation after generation. Blocking."""

    def __init__(self, reader: StoredLogReader) -> None:
        self._reader = reader
        self._has_sent = False
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, and all of its lines have been read."""
        return self._is_over

    def read(self) -> list[ServerEvent]:
        """Return the next lines as events; at the end the event `end`, unless nothing was read before it."""
        if self._is_over:
            return []
        reader = self._reader
        if lines := reader.read(_LINES):
            self._has_sent = True
            return [
                HistoryEvent(id=f"{one.generation}/{one.number}", type=LINE, data=one.line) for one in lines
            ]
        if not reader.ended:
            return []
        run, following = reader.run, reader.next_generation()
        if following is not None:
            self._reader, self._has_sent = following, True
            number = following.run.generation
            data = GenerationStarted(run_id=run.id, generation=number)
            return [HistoryEvent(id=f"{number}/0", type="generation", data=data)]
        self._is_over = True
        if not self._has_sent:
            return []
        ended = RunEnded(run_id=run.id, generation=run.generation, status=run.status)
        return [HistoryEvent(id=None, type="end", data=ended)]


def log_events(core: Core, run_id: str, last: str | None, options: LogOptions) -> LogEvents:
    """Return a reader that continues after the event with the id `last`, or begins with the newest generation.

    Raises RunNotFoundError, InvalidFilterError, or HttpError if `last` is no id of such an event.
    """
    generation, number = None, 0
    if last is not None:
        found = place_in(last)
        if found is None:
            raise HttpError("invalid_request", "Last-Event-ID is not <generation>/<number>")
        generation, number = found
        if generation == 0:
            raise RunNotFoundError(run_id, generation)
    return LogEvents(StoredLogReader(core, find_run(core, run_id, generation), number, options))


def log_state(core: Core, run_id: str) -> object:
    """Return what differs whenever a stream of the run's log has something new. Raises RunNotFoundError."""
    run = find_run(core, run_id)
    store = core.stores.persistence
    open_jobs = len(store.read(JobsOfRun(run.key))) if run.status in TERMINAL else 0
    return [run.generation, run.status.value, open_jobs, store.read(NewestLine(run.key))]
