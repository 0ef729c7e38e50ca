"""The connections of a remote worker to its server."""

import logging
import socket
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typing_extensions import override

from holdfast.hosts.remote.connection import ServerConnection


class Server(HTTPServer):
    """A server that counts its connections, and says when it has closed one."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.accepted = 0
        self.closed = threading.Event()

    @override
    def get_request(self) -> tuple[socket.socket, object]:
        self.accepted += 1
        self.closed.clear()
        return super().get_request()

    @override
    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        super().shutdown_request(request)
        self.closed.set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    closes = True

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
        # It does not say so in the answer, like a server or a proxy whose time for idle connections is up.
        self.close_connection = self.closes

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Generator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_connection_that_the_server_has_closed_is_not_used_again(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A request that was sent on it would be repeated after a pause."""
    caplog.set_level(logging.INFO, "holdfast.remote")
    connection = ServerConnection(f"http://127.0.0.1:{server.server_port}", "key", "default")
    for _ in range(3):
        assert connection.call("GET", "/tasks").status == 200
        assert server.closed.wait(60)
    connection.close()

    assert server.accepted == 3
    assert not caplog.records


def test_a_connection_that_is_open_is_used_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "closes", False)
    connection = ServerConnection(f"http://127.0.0.1:{server.server_port}", "key", "default")
    for _ in range(3):
        assert connection.call("GET", "/tasks").status == 200
    connection.close()

    assert server.accepted == 1
