"""A TCP proxy that fails on command, between a store and its PostgreSQL."""

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

Mode = Literal["pass", "cut before commit", "cut after commit", "swallow commit", "blackhole", "refuse"]

_COMMIT = b"COMMIT\0"  # unlike READ COMMITTED


class Proxy:
    """Passes bytes on, until it is told otherwise. Faults at a commit happen `times` times, then all is well again.

    "cut before commit": the server does not get it. "cut after commit": the server carries it out, and its answer is
    lost. "swallow commit": as before, but the connection stays open and silent. "blackhole": nothing is passed on
    any more, in either direction. "refuse": new connections are closed at once.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._socket = socket.create_server(("127.0.0.1", 0))
        user = f"{parts.username}@" if parts.username else ""
        self.url = urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{self._socket.getsockname()[1]}"))
        self.connections = 0
        self.round_trips = 0
        """How often the client has sent something after it was answered; fit for one connection at a time."""
        self._is_answered = True
        self._mode: Mode = "pass"
        self._times = 0
        self._then: Mode = "pass"
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._mute: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def fail(self, mode: Mode, times: int = 1, then: Mode = "pass") -> None:
        """Misbehave from now on; after so many faults at commits do the next thing."""
        with self._lock:
            self._mode, self._times, self._then = mode, times, then

    def heal(self) -> None:
        """Pass everything on again, on new connections."""
        with self._lock:
            self._mode = "pass"

    def cut(self) -> None:
        """Cut all connections."""
        with self._lock:
            victims, self._open = self._open, []
        for victim in victims:
            _close(victim)

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
                if self._mode == "blackhole":
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
                if self._mode == "blackhole" or server in self._muted():
                    continue
                self._is_answered = True
                client.sendall(data)
        _close(client)
        _close(server)

    def _carry_out(self, server: socket.socket, data: bytes) -> None:
        """Let the server commit, and keep its answer from the client."""
        with self._lock:
            self._mute.add(server)
        server.sendall(data)
        time.sleep(0.1)

    def _muted(self) -> set[socket.socket]:
        with self._lock:
            return set(self._mute)

    def _fault(self) -> Mode:
        with self._lock:
            mode = self._mode
            if mode in {"pass", "refuse", "blackhole"}:
                return "pass"
            self._times -= 1
            if self._times <= 0:
                self._mode, self._times, self._then = self._then, 1, "pass"
            return mode


def _close(victim: socket.socket) -> None:
    with contextlib.suppress(OSError):
        victim.shutdown(socket.SHUT_RDWR)
    victim.close()
