"""A sink that writes events as lines of JSON."""

import sys
from collections.abc import Sequence
from threading import Lock
from typing import TextIO

from holdfast.ports.events import Event
from holdfast.ports.json import canonical


class LogSink:
    """An EventSink that writes one line per event, with the event's data, unparsed, at its end.

    Safe to use from several threads.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to `stream`; by default to what `sys.stdout` is at the time of each call."""
        self._stream = stream
        self._lock = Lock()

    def emit(self, events: Sequence[Event], /) -> None:
        """Write the lines and flush them. Errors of the stream propagate, so that a full disk loses no event."""
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
    # Line ends occur only between the parts of JSON text: in strings they are escaped.
    data = event.data.replace("\r", " ").replace("\n", " ")
    return f'{canonical(fields)[:-1]},"data":{data}}}\n'
