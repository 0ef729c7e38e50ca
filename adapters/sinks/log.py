"""A sink that writes events as lines of JSON."""

import sys
from collections.abc import Sequence
from threading import Lock
from typing import TextIO

from holdfast.ports.events import Event
from holdfast.ports.json import canonical


class LogSink:
    """See `EventSink`. One line for each event, with its data as they are, at the end of the line.

    Safe to use from several threads.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        """`stream` is where the lines go; None stands for what `sys.stdout` is at that time."""
        self._stream = stream
        self._lock = Lock()

    def emit(self, events: Sequence[Event], /) -> None:
        """Write the lines, and flush them. Raises what the stream raises: a full disk loses no event."""
        text = "".join(map(_line, events))
        stream = sys.stdout if self._stream is None else self._stream
        with self._lock:
            stream.write(text)
            stream.flush()


def _line(event: Event) -> str:
    fields = {
        "at": event.at.isoformat(),
        "generation": event.generation,
        "id": event.id,
        "item": event.item,
        "namespace": event.namespace,
        "run_id": event.run_id,
        "stage": event.stage,
        "type": event.type,
        "workflow": event.workflow,
    }
    # JSON text has line ends between its parts only: in strings they are escaped.
    data = event.data.replace("\r", " ").replace("\n", " ")
    return f'{canonical(fields)[:-1]},"data":{data}}}\n'
