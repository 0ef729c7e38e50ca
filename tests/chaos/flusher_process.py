"""A process that delivers events to a file until it is killed."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.events.flusher import Flusher
from holdfast.ports.events import Event

LEASE = 3.0
NAME = "audit"
FAILS_EVERY = 50
"""Every how many calls the sink fails once."""
SECONDS_A_CALL = 0.02
"""The least duration of a call: a fast machine must not finish before enough processes were killed."""


class FileSink:
    """A sink that appends a line for each event to a file shared by several processes, one write for each call.

    Now and then it fails, and appends a byte to another file instead.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._failures = os.open(f"{path}.failures", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._calls = 0

    def emit(self, events: Sequence[Event], /) -> None:
        self._calls += 1
        if self._calls % FAILS_EVERY == 3:
            os.write(self._failures, b".")
            raise OSError("nobody is at home")
        time.sleep(SECONDS_A_CALL / 2)
        os.write(self._file, "".join(f"{event.run} {event.number}\n" for event in events).encode())
        time.sleep(SECONDS_A_CALL / 2)  # it has them, and has not said so yet


def flush_for_ever(url: str, path: str) -> None:
    """Flush until the process is killed."""
    engine = Engine.open(url, migrate=False)
    flusher = Flusher(engine.core, {NAME: FileSink(Path(path))}, lease=LEASE)
    engine.core.connect()
    while True:
        flusher.flush()
        time.sleep(0.01)
