"""The documents of an issuer over real HTTP: no redirects, no more than so many bytes, and an issuer that is down."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, cast

import anyio
import pytest
from typing_extensions import override

from holdfast.errors import UnavailableError
from holdfast.hosts.http.authentication.documents import DOCUMENT_MAX, fetch_document
from holdfast.hosts.http.authentication.key_set import KeySet

KEY: Final = {"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": "AA"}


class _Server(ThreadingHTTPServer):
    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = cast("_Server", self.server).url
        match self.path:
            case "/.well-known/openid-configuration":
                self._answer(200, json.dumps({"issuer": url, "jwks_uri": f"{url}/keys"}).encode())
            case "/keys":
                self._answer(200, json.dumps({"keys": [KEY]}).encode())
            case "/moved":
                self._answer(302, b"", ("Location", f"{url}/keys"))
            case "/large":
                self._answer(200, b" " * (DOCUMENT_MAX + 1))
            case _:
                self._answer(404, b"{}")

    def _answer(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def server() -> Iterator[_Server]:
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_keys_are_found_by_discovery(server: _Server) -> None:
    assert [*anyio.run(KeySet(server.url).keys, "one")] == [KEY]


@pytest.mark.parametrize("path", ["moved", "large", "missing"])
def test_a_document_that_is_elsewhere_or_too_large_is_not_read(server: _Server, path: str) -> None:
    with pytest.raises((OSError, ValueError)):
        fetch_document(f"{server.url}/{path}")
    with pytest.raises(UnavailableError):
        anyio.run(KeySet(server.url, f"{server.url}/{path}").keys, "one")


def test_an_issuer_that_is_down_has_no_keys(server: _Server) -> None:
    url = server.url
    server.server_close()
    with pytest.raises(UnavailableError):
        anyio.run(KeySet(url).keys, None)
