"""The connections of a remote worker to its server."""

import logging
import os
import socket
import threading
from collections.abc import Generator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from typing_extensions import override

from holdfast.errors import AccessDeniedError, HoldfastError, ServerAnswerError, UnavailableError
from holdfast.hosts.remote import connection as connection_module
from holdfast.hosts.remote.connection import Abandonment, Answer, ServerConnection


class Server(ThreadingHTTPServer):
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
    answers: ClassVar[list[tuple[int, bytes]]] = []
    """The statuses and bodies of the next answers; later ones are 200 and an empty object."""

    def do_GET(self) -> None:
        status, body = self.answers.pop(0) if self.answers else (200, b"{}")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status < 400 and status != 200:
            self.send_header("Location", "https://elsewhere.example.com/")
        self.end_headers()
        self.wfile.write(body)
        # It does not say so in the answer, like a server or a proxy whose time for idle connections is up.
        self.close_connection = self.closes

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_PAUSE_FIRST", 0.0)
    monkeypatch.setattr(Handler, "answers", [])


@pytest.fixture
def server() -> Generator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def connection(server: Server) -> Generator[ServerConnection]:
    with closing(ServerConnection(f"http://127.0.0.1:{server.server_port}", "key", "default")) as connection:
        yield connection


def test_a_connection_that_the_server_has_closed_is_not_used_again(
    server: Server, connection: ServerConnection, caplog: pytest.LogCaptureFixture
) -> None:
    """A request that was sent on it would be repeated after a pause."""
    caplog.set_level(logging.INFO, "holdfast.remote")
    for _ in range(3):
        assert connection.call("GET", "/tasks").status == 200
        assert server.closed.wait(60)

    assert server.accepted == 3
    assert not caplog.records


def test_a_connection_that_is_open_is_used_again(
    server: Server, connection: ServerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "closes", False)
    for _ in range(3):
        assert connection.call("GET", "/tasks").status == 200

    assert server.accepted == 1


def test_a_forked_child_has_a_connection_of_its_own(
    server: Server, connection: ServerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes that share a connection get the answers of each other."""
    monkeypatch.setattr(Handler, "closes", False)
    assert connection.call("GET", "/tasks").status == 200
    child = os.fork()
    if child == 0:
        os._exit(0 if connection.call("GET", "/tasks").status == 200 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert connection.call("GET", "/tasks").status == 200

    assert server.accepted == 2


@pytest.mark.parametrize(
    ("status", "error", "text", "times"),
    [
        (301, ServerAnswerError, "redirected to 'https://elsewhere.example.com/'", 1),
        (401, AccessDeniedError, "was refused: status 401, 'Sign in'", 8),
        (404, ServerAnswerError, "check the URL of the server", 8),
    ],
)
def test_answers_of_another_server_end_a_request(
    server: Server,
    connection: ServerConnection,
    status: int,
    error: type[HoldfastError],
    text: str,
    times: int,
) -> None:
    """A proxy may send one while the server starts."""
    Handler.answers = [(status, b"Sign in")] * 100
    with pytest.raises(error, match=text):
        connection.call("GET", "/tasks")
    assert len(Handler.answers) == 100 - times

    if times > 1:
        Handler.answers = [(status, b"Sign in"), (502, b"Bad gateway")] * 10
        assert connection.call("GET", "/tasks").status == 200


def test_a_proxy_that_takes_no_body_of_this_size_has_answered(
    server: Server, connection: ServerConnection
) -> None:
    Handler.answers = [(413, b"<html>Request Entity Too Large</html>")] * 2
    answer = connection.call("GET", "/tasks")
    assert (answer.status, answer.code, len(Handler.answers)) == (413, "too_large", 1)
    assert server.accepted == 1


def test_a_request_that_is_repeated_again_and_again_is_logged_as_a_warning(
    server: Server, connection: ServerConnection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.remote")
    Handler.answers = [(503, b"")] * 20
    assert connection.call("GET", "/tasks") == Answer(200, {})
    assert [record.levelname for record in caplog.records] == ([*(["INFO"] * 7), "WARNING"] * 3)[:20]


def test_a_request_that_was_given_up_is_not_repeated(server: Server, connection: ServerConnection) -> None:
    abandonment = Abandonment()
    abandonment.give_up()
    with pytest.raises(UnavailableError, match="given up"):
        connection.call("GET", "/tasks", abandonment=abandonment)
    assert server.accepted == 0
