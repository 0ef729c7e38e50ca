"""Requests as bytes: where one ends is never a matter of opinion, and each has an end."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from httpx import URL

from holdfast import Engine
from holdfast.http import asgi_app
from tests.integration.http.api import NAMESPACE, authenticate
from tests.integration.http.live import served
from tests.integration.http.programs import report

RUNS = f"/v1/namespaces/{NAMESPACE}/runs"
HEAD = "Host: localhost\r\nAuthorization: Bearer all\r\n"
SECOND = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""What one server takes for a request, and another for a part of the body before it."""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[URL]:
    with (
        Engine.open(f"sqlite:///{tmp_path / 'holdfast.db'}", workflows=[report]).sync as engine,
        served(asgi_app(engine, authenticate=authenticate)) as server,
    ):
        yield URL(server)


def answers(url: URL, *lines: str, body: str) -> list[str]:
    """Send a request, and return what comes back until the server closes the connection, or is silent, by answer."""
    head = "\r\n".join((*lines, "Host: localhost", "Authorization: Bearer all", "\r\n"))
    received = b""
    with socket.create_connection((url.host, url.port or 80), 20) as client:
        client.sendall((head + body).encode())
        client.settimeout(1.0)
        try:
            while chunk := client.recv(65_536):
                received += chunk
        except TimeoutError:
            received += b"(open)"
    return [f"HTTP/1.1 {one}" for one in received.decode().split("HTTP/1.1 ")[1:]]


ENDLESS = {
    "the first line": (f"GET {RUNS}/".encode(), b"a" * 65_536),
    "one header": (f"GET {RUNS} HTTP/1.1\r\nX-Long: ".encode(), b"a" * 65_536),
    "many headers": (
        f"GET {RUNS} HTTP/1.1\r\n{HEAD}".encode(),
        b"X-Many: abcdefgh\r\n" * 4_096,
    ),
    "the size of a chunk": (
        f"POST {RUNS} HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n1;name=".encode(),
        b"a" * 65_536,
    ),
    "trailers": (
        f"POST {RUNS} HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n".encode(),
        b"X-Many: abcdefgh\r\n" * 4_096,
    ),
}
"""What comes first, and what follows it for ever."""
SENT_MAX = 100 * 65_536
"""Far more than a request may have, and what the buffers of the system hold."""


@pytest.mark.parametrize("part", ENDLESS)
def test_a_head_without_an_end_is_refused(url: URL, part: str) -> None:
    (first, following), sent = ENDLESS[part], 0
    with socket.create_connection((url.host, url.port or 80), 20) as client:
        client.sendall(first)
        with contextlib.suppress(OSError):  # the server has closed the connection
            while sent < SENT_MAX:
                client.sendall(following)
                sent += len(following)

    assert sent < SENT_MAX
    assert httpx.get(url.join("/livez")).status_code == 200


@pytest.mark.parametrize("path", [RUNS, "/nothing", "/livez"])
def test_a_body_with_a_length_and_chunks_is_refused_with_what_follows(url: URL, path: str) -> None:
    found = answers(
        url,
        f"POST {path} HTTP/1.1",
        "Content-Type: application/json",
        f"Content-Length: {5 + len(SECOND)}",
        "Transfer-Encoding: chunked",
        body=f"0\r\n\r\n{SECOND}",
    )

    assert [one[:12] for one in found] == ["HTTP/1.1 400"]
    assert "a length or chunks, not both" in found[0]
    assert "(open)" not in found[0]


def test_a_request_that_offers_an_upgrade_keeps_its_body(url: URL) -> None:
    body = '{"workflow": "report", "input": 7, "id": "offered"}'
    found = answers(
        url,
        f"POST {RUNS} HTTP/1.1",
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQAAP__",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        body=body,
    )

    assert [one[:12] for one in found] == ["HTTP/1.1 201"]
    assert '"run_id":"offered"' in found[0]
