"""A TCP proxy between a store and its PostgreSQL that fails on command."""

import contextlib
import socket
import struct
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

Mode = Literal[
    "pass",
    "cut before commit",
    "cut after commit",
    "swallow commit",
    "blackhole",
    "refuse",
    "delay",
    "trickle",
]

_COMMIT = b"COMMIT\0"  # unlike READ COMMITTED
DELAY_SECONDS = 0.5
TRICKLE_SECONDS = 1.0


class Proxy:
    """Forwards bytes until a fault is set. Faults at a commit happen `times` times, then everything works again.

    "cut before commit": the server does not get it. "cut after commit": the server commits, and the response is lost.
    "swallow commit": as before, but the connection stays open and silent. "blackhole": nothing is forwarded any more in
    either direction. "refuse": new connections are closed at once. "delay": responses come half a second late.
    "trickle": they come byte by byte, one a second.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._socket = socket.create_server(("127.0.0.1", 0))
        user = f"{parts.username}@" if parts.username else ""
        self.url = urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{self._socket.getsockname()[1]}"))
        self.connections = 0
        self.fired = Counter[str]()
        """The number of times each fault struck: a commit, a connection cut or stranded, bytes held back."""
        self.round_trips = 0
        """The number of requests after a response; valid for one connection at a time."""
        self._is_answered = True
        self._mode: Mode = "pass"
        self._times = 0
        self._then: Mode = "pass"
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._mute: set[socket.socket] = set()
        self._stranded: set[socket.socket] = set()
        self._answered: set[socket.socket] = set()
        self._answer = threading.Condition(self._lock)
        threading.Thread(target=self._accept, daemon=True).start()

    def fail(self, mode: Mode, times: int = 1, then: Mode = "pass") -> None:
        """Set a fault; after so many faults at commits apply the next one."""
        with self._lock:
            self._mode, self._times, self._then = mode, times, then

    def heal(self) -> None:
        """Forward everything again, on new connections."""
        with self._lock:
            self._mode = "pass"

    def cut(self) -> None:
        """Cut all connections."""
        with self._lock:
            victims, self._open = self._open, []
        for victim in victims:
            _close(victim)

    def reset(self) -> None:
        """Reset all connections, as a machine does that has lost their state."""
        with self._lock:
            victims, self._open = self._open, []
            self.fired["reset"] += len(victims) // 2
        for victim in victims:
            with contextlib.suppress(OSError):
                victim.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                victim.shutdown(socket.SHUT_RD)  # wakes who waits for it
            victim.close()

    def strand(self) -> None:
        """Keep all connections open without forwarding anything on them; new ones work."""
        with self._lock:
            self._stranded.update(self._open)
            self.fired["strand"] += len(self._open) // 2

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _close(self._socket)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            if self._mode == "refuse":
                _close(client)
                continue
            self.connections += 1
            server = socket.create_connection(self._server)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open += [client, server]
            threading.Thread(target=self._to_server, args=(client, server), daemon=True).start()
            threading.Thread(target=self._to_client, args=(client, server), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                if self._is_answered:
                    self._is_answered = False
                    self.round_trips += 1
                if self._mode == "blackhole" or client in self._without_end():
                    self.fired["swallowed"] += 1
                    continue
                fault = self._fault() if _COMMIT in data else "pass"
                if fault == "cut before commit":
                    break
                if fault in {"cut after commit", "swallow commit"}:
                    self._carry_out(server, data)
                    if fault == "swallow commit":
                        continue
                    break
                server.sendall(data)
        _close(client)
        _close(server)

    def _to_client(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                if server in self._muted():
                    self._note_answer(server)
                    continue
                if self._mode == "blackhole" or server in self._without_end():
                    self.fired["swallowed"] += 1
                    continue
                self._is_answered = True
                if self._mode == "trickle":
                    data = self._trickle(client, data)
                elif self._mode == "delay":
                    self.fired["delay"] += 1
                    time.sleep(DELAY_SECONDS)
                client.sendall(data)
        _close(client)
        _close(server)

    def _carry_out(self, server: socket.socket, data: bytes) -> None:
        """Let the server commit, and withhold the response."""
        with self._lock:
            self._mute.add(server)
            server.sendall(data)
            self._answer.wait_for(lambda: server in self._answered, timeout=1.0)

    def _note_answer(self, server: socket.socket) -> None:
        with self._lock:
            self._answered.add(server)
            self._answer.notify_all()

    def _trickle(self, client: socket.socket, data: bytes) -> bytes:
        """Forward single bytes while that is the mode; return the rest."""
        while len(data) > 1 and self._mode == "trickle":
            self.fired["trickle"] += 1
            client.sendall(data[:1])
            data = data[1:]
            time.sleep(TRICKLE_SECONDS)
        return data

    def _muted(self) -> set[socket.socket]:
        with self._lock:
            return set(self._mute)

    def _without_end(self) -> set[socket.socket]:
        with self._lock:
            return set(self._stranded)

    def _fault(self) -> Mode:
        with self._lock:
            mode = self._mode
            if mode not in {"cut before commit", "cut after commit", "swallow commit"}:
                return "pass"
            self.fired[mode] += 1
            self._times -= 1
            if self._times <= 0:
                self._mode, self._times, self._then = self._then, 1, "pass"
            return mode


def _close(victim: socket.socket) -> None:
    with contextlib.suppress(OSError):
        victim.shutdown(socket.SHUT_RDWR)
    victim.close()
