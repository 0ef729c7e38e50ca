"""Clients that send nothing, or too slowly, or read nothing: they hold up nobody else."""

import contextlib
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from holdfast import Engine
from holdfast.hosts.http import request_bodies
from holdfast.http import asgi_app
from tests.integration.http.api import NAMESPACE, authenticate
from tests.integration.http.live import served
from tests.integration.http.programs import report
from tests.sizes import sized

RUNS = f"/v1/namespaces/{NAMESPACE}/runs"
HEAD = "Host: localhost\r\nAuthorization: Bearer all\r\n"
PARTS = {
    "nothing": "",
    "half a line": f"GET {RUNS} HT",
    "half of the headers": f"GET {RUNS} HTTP/1.1\r\n{HEAD}",
    "half a body": f"POST {RUNS} HTTP/1.1\r\n{HEAD}Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{{",
    "a stream that is not read": f"GET {RUNS}/one/history HTTP/1.1\r\n{HEAD}Accept: text/event-stream\r\n\r\n",
}
"""What slow clients send before they do nothing more."""


@pytest.fixture
def url(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """One store is enough: these clients do not get as far as a store."""
    return new_sqlite(tmp_path / "holdfast.db")


@contextmanager
def slow_clients(server: str, number: int) -> Generator[dict[str, list[socket.socket]]]:
    """Open connections of each kind, and close them at the end of the block."""
    place = urlsplit(server)
    assert place.hostname is not None
    with contextlib.ExitStack() as stack:
        opened: dict[str, list[socket.socket]] = {}
        for name, text in PARTS.items():
            for _ in range(number):
                one = stack.enter_context(socket.create_connection((place.hostname, place.port or 80), 20))
                one.sendall(text.encode())
                opened.setdefault(name, []).append(one)
        yield opened


@pytest.fixture
def client_of(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    monkeypatch.setattr(request_bodies, "BODY_SECONDS", 1.0)
    engine.sync.start(report(1), id="one")
    with (
        served(asgi_app(engine, authenticate=authenticate)) as server,
        httpx.Client(base_url=server, timeout=20, headers={"Authorization": "Bearer all"}) as client,
    ):
        yield client


@pytest.mark.slow
@pytest.mark.sized
def test_clients_that_stall_do_not_hold_up_others(client_of: httpx.Client) -> None:
    with slow_clients(str(client_of.base_url), sized(20, 150)) as opened:
        for _ in range(10):
            assert client_of.get(RUNS).status_code == 200
        assert client_of.post(RUNS, json={"workflow": "report", "input": 1}).status_code == 201
        for one in opened["half a body"]:
            assert one.recv(4_096).startswith(b"HTTP/1.1 408 ")
        assert client_of.get("/livez").status_code == 200
