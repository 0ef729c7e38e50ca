"""Server-sent events: the lines of a stream, read as events."""

import json
from typing import Any, Final

import attrs

STREAM_TYPE: Final = "text/event-stream"


@attrs.frozen
class Frame:
    """An event of a stream as it was sent."""

    id: str | None
    """What to send as `Last-Event-ID` to continue after it."""
    type: str
    """Its type."""
    data: Any
    """Its document."""

    @property
    def is_end(self) -> bool:
        """Whether none follows."""
        return self.type == "end"


class FrameReader:
    """Reads the lines of one connection. An event that was cut off is dropped: the next connection repeats it."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._type = ""
        self._data: list[str] = []

    def take(self, line: str) -> Frame | None:
        """Take the next line. Return the event that it completes, if it does."""
        if not line:
            return self._completed()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "id":
                self._id = value
            case "event":
                self._type = value
            case "data":
                self._data.append(value)
            case _:  # a comment, or `retry`
                pass
        return None

    def _completed(self) -> Frame | None:
        if not self._data:
            return None
        frame = Frame(self._id, self._type, json.loads("\n".join(self._data)))
        self._id, self._type, self._data = None, "", []
        return frame
