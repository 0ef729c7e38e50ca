"""Output of an attempt that is not stored yet: log lines, progress, annotations, model calls, heartbeats."""

import threading
from collections.abc import Sequence
from typing import Final, cast

from holdfast.kernel.commands import AttemptOutput
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import canonical, parse
from holdfast.ports.structs import evolve

BUFFERED_LINES_MAX: Final = 1_000
"""How many log lines are buffered between two writes to the store; older ones are dropped."""
ANNOTATIONS_MAX: Final = 1_000
"""How many annotations an attempt may add between two writes to the store."""


class OutputBuffer:
    """The output of the body of one job; of a durable function, also that of its inline steps. Safe from any thread."""

    def __init__(self, annotations: float = ANNOTATIONS_MAX) -> None:
        """With `annotations` as the largest number of annotations between two writes."""
        self._most = annotations
        self._lock = threading.Lock()
        self._log: list[AttemptOutput] = []
        self._dropped = 0
        self._progress: dict[str, AttemptOutput] = {}
        self._annotations: list[AttemptOutput] = []
        self._ai_calls: list[AttemptOutput] = []
        self._heartbeat: AttemptOutput | None = None

    def add(self, output: AttemptOutput) -> None:
        """Add output. Of progress only the last of each call is kept, and of heartbeats the last.

        Raises InvalidCommandError for too many annotations.
        """
        with self._lock:
            match output.kind:
                case "log":
                    self._add_lines((output,))
                case "progress":
                    self._progress[output.call] = output
                case "annotation":
                    if len(self._annotations) >= self._most:
                        raise InvalidCommandError(f"more than {self._most} annotations within two seconds")
                    self._annotations.append(output)
                case "ai_call":
                    self._ai_calls.append(output)
                case "heartbeat":
                    self._heartbeat = output
                case "artifact":
                    raise AssertionError("artifacts are stored with the outcome of a body")

    def __bool__(self) -> bool:
        """Return whether there is any output."""
        kinds = (self._log, self._progress, self._annotations, self._ai_calls, self._heartbeat)
        return any(kinds)

    def take(self) -> tuple[AttemptOutput, ...]:
        """Remove and return all output."""
        if not (self._log or self._progress or self._annotations or self._ai_calls or self._heartbeat):
            return ()  # nearly always, after a step
        with self._lock:
            lines = list(self._log)
            if self._dropped:
                lines.insert(0, _notice_of_dropped(self._dropped, lines[0]))
            heartbeat = () if self._heartbeat is None else (self._heartbeat,)
            outputs = (*lines, *self._progress.values(), *heartbeat, *self._annotations, *self._ai_calls)
            self._log.clear()
            self._dropped = 0
            self._progress = {}
            self._heartbeat = None
            self._annotations = []
            self._ai_calls = []
        return outputs

    def put_back(self, outputs: Sequence[AttemptOutput]) -> None:
        """Buffer output that `take` returned again, because it could not be stored."""
        with self._lock:
            later = tuple(self._log)
            self._log.clear()
            self._add_lines((*(one for one in outputs if one.kind == "log"), *later))
            self._progress = {one.call: one for one in outputs if one.kind == "progress"} | self._progress
            self._annotations[:0] = (one for one in outputs if one.kind == "annotation")
            self._ai_calls[:0] = (one for one in outputs if one.kind == "ai_call")
            self._heartbeat = self._heartbeat or next(
                (one for one in outputs if one.kind == "heartbeat"), None
            )

    def _add_lines(self, lines: Sequence[AttemptOutput]) -> None:
        """Add log lines; drop the oldest lines if there are too many."""
        self._log.extend(lines)
        if (too_many := len(self._log) - BUFFERED_LINES_MAX) > 0:
            del self._log[:too_many]
            self._dropped += too_many


def _notice_of_dropped(count: int, first: AttemptOutput) -> AttemptOutput:
    message = f"{count} lines before this one were dropped: too many at once"
    place = cast("dict[str, object]", parse(first.data))
    return evolve(
        first, id=None, data=canonical({**place, "message": message, "fields": {}, "level": "warning"})
    )
