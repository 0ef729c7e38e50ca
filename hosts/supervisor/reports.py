"""The reports of worker processes to their supervisor, over a socket that only the two have.

The supervisor sends a line of JSON, the worker answers with another one. The socket is also how a worker notices that
its supervisor is gone: then it drains, as after a SIGTERM.
"""

import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import attrs
from cattrs import structure

REPORT_SECONDS: Final = 2.0
"""How long the supervisor waits for a report."""
BLOCKED: Final = "blocked"
"""The phase of a worker whose event loop has been blocked for longer than its lease."""
_BYTES_AT_ONCE: Final = 65_536


@attrs.frozen(kw_only=True)
class WorkerReport:
    """The state of a worker process."""

    phase: str
    """`running`, `draining` or `stopped`: a `Phase`; or `blocked`."""
    session: str | None = None
    """The session of the worker; None until it has connected to the store."""
    running: int = 0
    """How many bodies and functions it runs."""
    metrics: str | None = None
    """Its metrics in the text format of Prometheus, if they were requested and it collects any."""

    @property
    def is_ready(self) -> bool:
        """Whether it has a session and claims jobs."""
        return self.phase == "running" and self.session is not None


@attrs.frozen
class _Request:
    id: int
    metrics: bool


@attrs.frozen
class _Answer:
    id: int
    report: WorkerReport


class ReportServer:
    """Answers the requests of the supervisor in a thread, for as long as the process lives.

    Args:
        connection: The socket to the supervisor.
        report: Returns the report, with metrics if its argument is true. Called in the thread.
        abandoned: Called when the supervisor is gone; by default this process gets a SIGTERM.
    """

    def __init__(
        self,
        connection: socket.socket,
        report: Callable[[bool], WorkerReport],
        abandoned: Callable[[], object] = lambda: os.kill(os.getpid(), signal.SIGTERM),
    ) -> None:
        self._connection = connection
        self._report = report
        self._abandoned = abandoned
        self._thread = threading.Thread(target=self._serve, name="holdfast-reports", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):  # the supervisor has ended, as at the end of its requests
            for line in self._connection.makefile("rb"):
                request = structure(json.loads(line), _Request)
                answer = _Answer(request.id, self._report(request.metrics))
                self._connection.sendall(json.dumps(attrs.asdict(answer)).encode() + b"\n")
        self._abandoned()


class ReportReader:
    """Requests reports of one worker process. Safe from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._number = 0
        self.answers = 0
        """How many requests were answered, even if too late."""
        self._received = bytearray()

    def read_report(self, *, metrics: bool, timeout: float) -> WorkerReport | None:
        """Return the report of the process; None if it does not answer within so many seconds, or has ended."""
        with self._lock:
            self._number += 1
            request = json.dumps(attrs.asdict(_Request(self._number, metrics))).encode() + b"\n"
            try:
                self._connection.settimeout(timeout)
                self._connection.sendall(request)
                while True:
                    answer = structure(json.loads(self._read_line()), _Answer)
                    self.answers += 1
                    if answer.id == self._number:  # others came too late
                        return answer.report
            except (OSError, EOFError):
                return None

    def close(self) -> None:
        """Close the socket."""
        self._connection.close()

    def _read_line(self) -> bytes:
        while (end := self._received.find(b"\n")) < 0:
            more = self._connection.recv(_BYTES_AT_ONCE)
            if not more:
                raise EOFError
            self._received += more
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line
