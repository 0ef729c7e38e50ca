"""A socket with one deadline for the whole exchange, whatever the peer does, and a limit on what it reads."""

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
"""The most bytes of one send. TLS restarts its timeout with every portion, so the remaining time is set before each."""


class AnswerTooLongError(OSError):
    """The peer has sent a longer response than is read."""


@attrs.frozen
class Deadline:
    """An instant of the monotonic clock."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline that many seconds from now."""
        return cls(time.monotonic() + seconds)

    def left(self) -> float:
        """Return the remaining seconds. TimeoutError if the deadline has passed."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


class DeadlineSocket:
    """The socket methods that `http.client` needs. Every wait ends at the deadline.

    A plain socket's timeout applies to each wait, so a peer that drips bytes would never exceed it. A response longer
    than `answer_bytes_max` raises AnswerTooLongError, an OSError.
    """

    def __init__(self, sock: socket.socket, deadline: Deadline, answer_bytes_max: int) -> None:
        self.deadline = deadline
        self._sock = sock
        self._answer_bytes_max = answer_bytes_max

    def handshake(self, context: ssl.SSLContext, host: str) -> None:
        """Switch to TLS. OSError if the peer's certificate is invalid, or the deadline has passed."""
        self._sock.settimeout(self.deadline.left())
        self._sock = context.wrap_socket(self._sock, server_hostname=host)

    def sendall(self, data: "Buffer", /) -> None:
        """Send all data. OSError."""
        unsent = memoryview(data).cast("B")
        while unsent:
            self._sock.settimeout(self.deadline.left())
            unsent = unsent[self._sock.send(unsent[:_PORTION]) :]

    def recv_into(self, buffer: "Buffer", /) -> int:
        """Receive at least one byte, unless the peer has closed the connection. OSError."""
        self._sock.settimeout(self.deadline.left())
        return self._sock.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a file from which one response is read. Closing it leaves the socket open."""
        assert mode == "rb"
        return io.BufferedReader(_Answer(self, self._answer_bytes_max))

    def close(self) -> None:
        """Do nothing: `http.client` closes a socket before it reads a response that announces `Connection: close`."""

    def hang_up(self) -> None:
        """Close the socket."""
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
            raise AnswerTooLongError("the response is too long")
        number = self._sock.recv_into(memoryview(buffer)[: self._bytes_left])
        self._bytes_left -= number
        return number


def connect(addresses: Sequence[str], port: int, deadline: Deadline, answer_bytes_max: int) -> DeadlineSocket:
    """Return a connection to the first address that answers within its share of the time. OSError."""
    for place, address in enumerate(addresses):
        share = deadline.left() / (len(addresses) - place)
        try:
            sock = socket.create_connection((address, port), share)
        except OSError:
            if place == len(addresses) - 1:
                raise
            continue
        # Head and body are sent separately: with Nagle's algorithm the body would wait for the head's ACK.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return DeadlineSocket(sock, deadline, answer_bytes_max)
    raise OSError("there is no address to connect to")


def resolve_by(
    deadline: Deadline, resolve: Callable[[str, int], Sequence[str]], host: str, port: int
) -> list[str]:
    """Return the addresses of a host. OSError if the lookup fails or exceeds the deadline.

    The system's resolver has no timeout, so it runs in a thread of its own, which is abandoned if it is late.
    """
    found: SimpleQueue[list[str] | Exception] = SimpleQueue()

    def look_up() -> None:
        try:
            found.put([str(one) for one in resolve(host, port)])
        except Exception as error:  # noqa: BLE001  # raised in the waiting thread
            found.put(error)

    threading.Thread(target=look_up, name="holdfast-resolver", daemon=True).start()
    try:
        outcome = found.get(timeout=deadline.left())
    except Empty:
        raise TimeoutError("the host's addresses were not found in time") from None
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
