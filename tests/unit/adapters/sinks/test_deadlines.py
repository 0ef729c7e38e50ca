"""A webhook delivery ends in time whatever its receiver does, and reports how far it got."""

import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from holdfast.adapters.sinks.webhook import WebhookSink
from holdfast.hosts.events.delivery import DeliveryProgress, PendingEvents, deliver
from holdfast.kernel.commands import StreamProgress
from holdfast.ports.errors import EventRefusedError, HoldfastError, SinkUnavailableError
from holdfast.testing.conformance.events import an_event
from tests.certificates import a_certificate
from tests.sinks import Answer, Request, a_receiver

WITHIN: Final = 0.4
LATE: Final = 1.2
"""Far from the 3 seconds for which each of these receivers keeps a request."""

_Serves = Callable[[socket.socket], None]


@contextmanager
def a_server(serves: _Serves, context: ssl.SSLContext | None = None) -> Generator[int]:
    """A server with arbitrary behaviour once it has read a request; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve(raw: socket.socket) -> None:
            with (
                suppress(OSError),
                raw if context is None else context.wrap_socket(raw, server_side=True) as one,
            ):
                one.recv(100_000)
                serves(one)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def dripping(head: bytes, drop: bytes = b"a") -> _Serves:
    def serves(one: socket.socket) -> None:
        one.sendall(head)
        for _ in range(60):
            time.sleep(0.05)
            one.sendall(drop)

    return serves


def at_once(answer: bytes) -> _Serves:
    def serves(one: socket.socket) -> None:
        one.sendall(answer)
        time.sleep(1)  # to close with a request that is not read would take back what was sent

    return serves


ANSWERS: Final[dict[str, tuple[_Serves, str]]] = {
    "status line": (dripping(b"HTTP/1.1 2"), "TimeoutError"),
    "head": (dripping(b"HTTP/1.1 200 OK\r\nX: "), "TimeoutError"),
    "lines of a head": (dripping(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), "TimeoutError"),
    "one more head": (
        dripping(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"),
        "TimeoutError",
    ),
    "body": (dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n"), "taken"),
    "last body": (dripping(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 60\r\n\r\n"), "taken"),
    "body of HTTP/1.0": (dripping(b"HTTP/1.0 200 OK\r\n\r\n"), "taken"),
    "chunks": (dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"), "taken"),
    "size of a chunk": (dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"), "taken"),
    "trailer": (
        dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n"),
        "taken",
    ),
    "body of a redirect": (dripping(b"HTTP/1.1 307 No\r\nConnection: close\r\n\r\n"), "answered 307"),
    "body of an error": (dripping(b"HTTP/1.1 503 No\r\nConnection: close\r\n\r\n"), "answered 503"),
    "body of an error of HTTP/1.0": (dripping(b"HTTP/1.0 503 No\r\n\r\n"), "answered 503"),
    "body of a refusal": (dripping(b"HTTP/1.1 400 No\r\nConnection: close\r\n\r\n"), "answered 400"),
    "nothing": (lambda one: time.sleep(2), "TimeoutError"),
    "endless head": (
        at_once(b"HTTP/1.1 200 OK\r\n" + (b"X: " + b"y" * 900 + b"\r\n") * 90),
        "AnswerTooLongError",
    ),
    "endless heads": (at_once(b"HTTP/1.1 100 Continue\r\n\r\n" * 9_000), "AnswerTooLongError"),
}


def came_of(port: int, context: ssl.SSLContext | None) -> tuple[str, float]:
    scheme = "http" if context is None else "https"
    sink = WebhookSink(f"{scheme}://127.0.0.1:{port}/", allow_internal=True, timeout=WITHIN, context=context)
    began = time.monotonic()
    try:
        sink.emit([an_event()])
    except HoldfastError as error:
        return str(error), time.monotonic() - began
    return "taken", time.monotonic() - began


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_part_of_an_answer_is_waited_for_beyond_the_timeout(tmp_path: Path, scheme: str) -> None:
    server, client = a_certificate("127.0.0.1", tmp_path) if scheme == "https" else (None, None)

    def one(serves: _Serves) -> tuple[str, float]:
        with a_server(serves, server) as port:
            return came_of(port, client)

    with ThreadPoolExecutor(len(ANSWERS)) as threads:
        came = dict(zip(ANSWERS, threads.map(one, [serves for serves, _ in ANSWERS.values()]), strict=True))

    wrong = {
        name: (text, seconds)
        for name, (text, seconds) in came.items()
        if seconds > LATE or ANSWERS[name][1] not in text
    }
    assert not wrong


def test_a_handshake_that_drips_is_not_waited_for_beyond_the_timeout(tmp_path: Path) -> None:
    _, client = a_certificate("127.0.0.1", tmp_path)
    with a_server(dripping(b"\x16\x03\x03\x40\x00", b"\x02")) as port:  # a record of 16 KiB, byte by byte
        text, seconds = came_of(port, client)

    assert "TimeoutError" in text
    assert seconds < LATE


def test_a_receiver_that_reads_nothing_is_not_waited_for_beyond_the_timeout() -> None:
    with a_server(lambda one: time.sleep(2)) as port:
        sink = WebhookSink(f"http://127.0.0.1:{port}/", allow_internal=True, timeout=WITHIN)
        large = f'"{"x" * 900_000}"'
        began = time.monotonic()
        with pytest.raises(SinkUnavailableError, match="TimeoutError"):
            sink.emit([an_event(1, number, large) for number in range(1, 9)])

    assert time.monotonic() - began < LATE


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_receiver_that_reads_slowly_is_not_waited_for_beyond_the_timeout(
    tmp_path: Path, scheme: str
) -> None:
    def sips(one: socket.socket) -> None:
        for _ in range(60):
            one.recv(262_144)
            time.sleep(0.05)

    server, client = a_certificate("127.0.0.1", tmp_path) if scheme == "https" else (None, None)
    with a_server(sips, server) as port:
        sink = WebhookSink(
            f"{scheme}://127.0.0.1:{port}/", allow_internal=True, timeout=WITHIN, context=client
        )
        began = time.monotonic()
        with pytest.raises(SinkUnavailableError, match="TimeoutError"):
            sink.emit([an_event(1, 1, f'"{"x" * 16_000_000}"')])

    assert time.monotonic() - began < LATE


def test_a_resolver_that_hangs_is_not_waited_for_beyond_the_timeout() -> None:
    done = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        del host, port
        done.wait(5)
        return ["127.0.0.1"]

    began = time.monotonic()
    with pytest.raises(SinkUnavailableError, match="not found in time"):
        WebhookSink("http://hook.example/", resolve=resolve, timeout=0.2).emit([an_event()])
    done.set()

    assert time.monotonic() - began < LATE


@pytest.mark.parametrize("found", [["hook.example"], ["127.0.0.1.evil.example"], [""], []])
def test_what_a_resolver_returns_is_not_looked_up_again(found: list[str]) -> None:
    sink = WebhookSink("http://hook.example/", resolve=lambda host, port: found, allow_internal=True)
    with pytest.raises(SinkUnavailableError, match="has no address"):
        sink.emit([an_event()])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no second address by themselves")
def test_an_address_that_swallows_everything_leaves_time_for_the_next() -> None:
    with a_receiver() as receiver, socket.socket() as swallows, ExitStack() as pending:
        port = int(receiver.url.rsplit(":", 1)[1].split("/")[0])
        swallows.bind(("127.0.0.2", port))
        swallows.listen(0)
        for _ in range(3):  # nobody accepts them: once there are enough, the system answers no more
            one = pending.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.2", port))
        WebhookSink(
            receiver.url.replace("127.0.0.1", "hook.example"),
            resolve=lambda host, port: ["127.0.0.2", "127.0.0.1"],
            allow_internal=True,
            timeout=0.6,
        ).emit([an_event()])

        assert len(receiver.events) == 1


def test_all_requests_of_a_call_share_one_timeout_and_what_was_taken_is_said() -> None:
    with a_receiver() as receiver:
        receiver.answers = lambda _: Answer(waits=0.15)
        sink = WebhookSink(receiver.url, allow_internal=True, batch=2, timeout=0.4)
        began = time.monotonic()
        with pytest.raises(SinkUnavailableError) as caught:
            sink.emit([an_event(1, number) for number in range(1, 21)])

        assert time.monotonic() - began < LATE
        assert caught.value.taken == 4


def test_what_was_taken_before_the_timeout_does_not_come_again() -> None:
    with a_receiver() as receiver:
        receiver.answers = lambda _: Answer(503 if len(receiver.requests) > 4 else 204)
        sink = WebhookSink(receiver.url, allow_internal=True, batch=1)
        pending = [
            PendingEvents(run=str(run), events=tuple(an_event(run, n) for n in (1, 2)), before=0, end=7)
            for run in (1, 2, 3, 4)
        ]
        delivery = DeliveryProgress()
        deliver(sink, pending, delivery, failing=False, may_go_on=lambda: True)

    assert delivery.delivered == [StreamProgress(run="1", number=7), StreamProgress(run="2", number=7)]
    assert delivery.untouched == ["3", "4"]
    assert delivery.error is not None
    assert delivery.events == 4


def test_a_run_of_which_a_part_was_taken_goes_on_after_that() -> None:
    with a_receiver() as receiver:
        receiver.answers = lambda _: Answer(503 if len(receiver.requests) == 3 else 204)
        sink = WebhookSink(receiver.url, allow_internal=True, batch=1)
        one = PendingEvents(run="1", events=tuple(an_event(1, n) for n in (1, 2, 3, 4)), before=0, end=9)
        delivery = DeliveryProgress()
        deliver(sink, [one], delivery, failing=True, may_go_on=lambda: True)

    assert delivery.delivered == [StreamProgress(run="1", number=9)]
    assert [re.findall(r'"holdfastnumber":(\d)', one.body) for one in receiver.requests] == [
        ["1"], ["2"], ["3"], ["3"], ["4"],
    ]  # fmt: skip


def _answer(answer: Answer, _: Request) -> Answer:
    return answer


def test_what_a_receiver_answers_stays_in_its_line() -> None:
    reason = "no\n2026-01-01T00:00:00Z  INFO     worker stopped\x1b[2J\u202e\u2028"
    with a_receiver() as receiver:
        for status, kind in ((400, EventRefusedError), (503, SinkUnavailableError)):
            answer = Answer(status, body=reason.encode())
            receiver.answers = partial(_answer, answer)
            with pytest.raises(kind) as caught:
                WebhookSink(receiver.url, allow_internal=True).emit([an_event()])

            assert str(caught.value).isprintable()
            assert r"no\n2026" in str(caught.value)
