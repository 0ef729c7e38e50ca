"""The webhook receiver of the documentation withstands arbitrary requests."""

import io
import socket
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from holdfast.adapters.sinks.signing import Signer
from holdfast.adapters.sinks.webhook import WebhookSink
from holdfast.ports.errors import SinkUnavailableError
from holdfast.testing.conformance.events import an_event
from tests.integration.examples.pages import DOCS, blocks

NUMBERS = ("", "x", "-1", "1e3", "²", "١٢", "9" * 5_000, "0x10", "1.5", " 1", "1_0", "nan", "\xff")
TEXTS = ("", "v1,", "v1,é", "\xff\xfe", "v1, v1,", "," * 200, "v1," + "A" * 9_000, "v2,AAAA", "\x00", "a\tb")


@pytest.fixture
def page() -> Iterator[dict[str, Any]]:
    """The names that the page's first two programs define. Its server runs until the end."""
    found: dict[str, Any] = {"__name__": "page"}
    for block in blocks(DOCS / "howto" / "webhooks.md")[:2]:
        exec(compile(block.code, "webhooks.md", "exec"), found)
    yield found
    server: ThreadingHTTPServer = found["server"]
    server.shutdown()
    server.server_close()


def test_no_header_that_can_be_forged_raises(page: dict[str, Any]) -> None:
    secret: str = page["SECRETS"][0]
    for number in NUMBERS:
        for text in TEXTS:
            for name in ("x", text):
                headers = {"webhook-id": name, "webhook-timestamp": number, "webhook-signature": text}
                assert page["is_genuine"](headers, b"[]") is False
                assert page["is_genuine"](dict(list(headers.items())[:2]), b"[]") is False
    assert page["is_genuine"]({}, b"") is False
    signed = Signer("x", secret).headers("x", int(page["time"].time()), b"[]")
    assert page["is_genuine"](signed, b"[]") is True


def answer(port: int, head: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 5) as one:
        one.settimeout(5)
        with suppress(ConnectionError):
            one.sendall(head)
            one.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: one.recv(1_000), b""))
    return b""


def test_the_server_answers_whatever_is_sent_and_goes_on(page: dict[str, Any]) -> None:
    port: int = page["server"].server_address[1]
    errors = io.StringIO()
    with redirect_stderr(errors):
        for length in NUMBERS:
            head = f"POST /hook HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode(
                errors="replace"
            )
            assert answer(port, head)[:12] in {
                b"HTTP/1.0 401",
                b"HTTP/1.0 411",
                b"HTTP/1.0 413",
                b"HTTP/1.0 431",
            }, length
        for number in NUMBERS[:-1]:
            head = (
                "POST /hook HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                f"webhook-id: é\r\nwebhook-timestamp: {number[:900]}\r\nwebhook-signature: v1,é\r\n\r\n[]"
            ).encode()
            assert answer(port, head)[:12] == b"HTTP/1.0 401", number
    assert errors.getvalue() == ""

    url = f"http://127.0.0.1:{port}/hook"
    with redirect_stdout(io.StringIO()) as printed:
        for batch in (1, 100):
            WebhookSink(url, secrets=page["SECRETS"], allow_internal=True, batch=batch).emit(
                [an_event(1, batch)]
            )
    assert printed.getvalue().count("holdfast.stage.completed") == 2
    with pytest.raises(SinkUnavailableError, match="401"):
        WebhookSink(url, secrets="whsec_" + "A" * 32, allow_internal=True).emit([an_event()])
