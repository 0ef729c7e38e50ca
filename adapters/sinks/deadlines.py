"""A connection that is over at a deadline, whatever the other end does, and that reads no more than it may."""

import io
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

import attrs
from typing_extensions import override

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PORTION: Final = 65_536
"""How much is handed to a socket at a time. TLS begins to wait anew with each portion, so the time is set for each."""


class AnswerTooLongError(OSError):
    """The other end has sent more than is read of an answer."""


@attrs.frozen
class Deadline:
    """A moment, by the monotonic clock."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline in so many seconds."""
        return cls(time.monotonic() + seconds)

    def left(self) -> float:
        """Return how many seconds are left. TimeoutError if none are."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time is up")
        return left


class DeadlineSocket:
    """What `http.client` uses of a socket. Each time that it waits, it waits for what is left until the deadline.

    A socket's own timeout is for each time that it is waited for: an answer that drips would never run into it.
    `answer_bytes_max` is how much is read of one answer; AnswerTooLongError, an OSError, where there is more.
    """

    def __init__(self, sock: socket.socket, deadline: Deadline, answer_bytes_max: int) -> None:
        self.deadline = deadline
        self._sock = sock
        self._answer_bytes_max = answer_bytes_max

    def handshake(self, context: ssl.SSLContext, host: str) -> None:
        """Go on over TLS. OSError if the other end is not who it must be, or the time is up."""
        self._sock.settimeout(self.deadline.left())
        self._sock = context.wrap_socket(self._sock, server_hostname=host)

    def sendall(self, data: "Buffer", /) -> None:
        """Send all of it. OSError."""
        unsent = memoryview(data).cast("B")
        while unsent:
            self._sock.settimeout(self.deadline.left())
            unsent = unsent[self._sock.send(unsent[:_PORTION]) :]

    def recv_into(self, buffer: "Buffer", /) -> int:
        """Receive what is there, at least a byte unless the other end has closed. OSError."""
        self._sock.settimeout(self.deadline.left())
        return self._sock.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return what one answer is read from. Closing it leaves the socket open."""
        assert mode == "rb"
        return io.BufferedReader(_Answer(self, self._answer_bytes_max))

    def close(self) -> None:
        """Do nothing: `http.client` closes a socket before it has read what was announced to be its last answer."""

    def hang_up(self) -> None:
        """Close it."""
        self._sock.close()


class _Answer(io.RawIOBase):
    def __init__(self, sock: DeadlineSocket, bytes_max: int) -> None:
        self._sock = sock
        self._bytes_left = bytes_max

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: "Buffer", /) -> int:
        if not self._bytes_left:
            raise AnswerTooLongError("the answer is longer than it may be")
        number = self._sock.recv_into(memoryview(buffer)[: self._bytes_left])
        self._bytes_left -= number
        return number


def connect(addresses: Sequence[str], port: int, deadline: Deadline, answer_bytes_max: int) -> DeadlineSocket:
    """Return a connection to the first of the addresses that answers in its share of the time. OSError."""
    for place, address in enumerate(addresses):
        share = deadline.left() / (len(addresses) - place)
        try:
            sock = socket.create_connection((address, port), share)
        except OSError:
            if place == len(addresses) - 1:
                raise
            continue
        # Head and body are sent apart: without this the body waits until the head is acknowledged.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return DeadlineSocket(sock, deadline, answer_bytes_max)
    raise OSError("there is no address to connect to")


def resolve_by(
    deadline: Deadline, resolve: Callable[[str, int], Sequence[str]], host: str, port: int
) -> list[str]:
    """Return the addresses of a host. OSError if there are none, or they are not found in time.

    The system's resolver knows no deadline: it is left alone in its thread, to end by itself.
    """
    found: SimpleQueue[list[str] | Exception] = SimpleQueue()

    def look_up() -> None:
        try:
            found.put([str(one) for one in resolve(host, port)])
        except Exception as error:  # noqa: BLE001  # it is raised where it is waited for
            found.put(error)

    threading.Thread(target=look_up, name="holdfast-resolver", daemon=True).start()
    try:
        outcome = found.get(timeout=deadline.left())
    except Empty:
        raise TimeoutError("the host's addresses were not found in time") from None
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
