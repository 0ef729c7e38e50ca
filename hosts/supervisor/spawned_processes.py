"""Worker processes of the system, started with a command."""

import socket
import subprocess
from collections.abc import Callable, Sequence

from holdfast.hosts.supervisor.reports import ReportReader, WorkerReport


class SpawnedProcess:
    """A process that was started with a command, connected by a socket.

    It has a session of its own in the system, so that a Ctrl-C in the terminal reaches only the supervisor, which
    passes it on.
    """

    def __init__(self, command: Callable[[int], Sequence[str]]) -> None:
        """Start it. `command` returns the command for the file descriptor of its end of the socket.

        OSError if the system refuses a process or a socket.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603  # the command of this process itself
                    command(theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except OSError:
            ours.close()
            raise
        self._reports = ReportReader(ours)

    @property
    def pid(self) -> int:
        """Its id in the system."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def send_signal(self, number: int, /) -> None:
        """Send it a signal, unless it has ended."""
        self._process.send_signal(number)

    def read_report(self, *, metrics: bool, timeout: float) -> WorkerReport | None:
        """Return its state; None if it does not answer within so many seconds."""
        return self._reports.read_report(metrics=metrics, timeout=timeout)

    @property
    def answers(self) -> int:
        """How many requests for reports it has answered, even if too late."""
        return self._reports.answers

    def close(self) -> None:
        """Close the socket. The process has ended."""
        self._reports.close()
