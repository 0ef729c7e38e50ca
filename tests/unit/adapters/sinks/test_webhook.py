"""The requests of a webhook sink, and its treatment of responses."""

import json
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from holdfast.adapters.sinks.signing import Signer
from holdfast.adapters.sinks.ssrf import addresses_of
from holdfast.adapters.sinks.webhook import BATCH_BYTES_MAX, WebhookSink
from holdfast.ports.errors import (
    EventRefusedError,
    InvalidArgumentError,
    InvalidUrlError,
    SinkUnavailableError,
)
from holdfast.testing.conformance.builders import a_key
from holdfast.testing.conformance.events import an_event
from tests.certificates import a_certificate
from tests.sinks import Answer, Receiver, Request, a_receiver


def a_webhook(url: str, **options: Any) -> WebhookSink:
    """A webhook sink for receivers on this machine."""
    return WebhookSink(url, allow_internal=True, **options)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with a_receiver() as receiver:
        yield receiver


def test_an_event_is_a_cloud_event(receiver: Receiver) -> None:
    event = attrs.evolve(an_event(1, 3), item=4, namespace="a b", run_id="order 7")
    a_webhook(receiver.url + "?a=b", batch=1, headers={"Authorization": "Bearer s3cret"}).emit([event])
    (request,) = receiver.requests

    assert request.path == "/hook?a=b"
    assert request.headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    assert request.headers["Authorization"] == "Bearer s3cret"
    assert json.loads(request.body) == {
        "specversion": "1.0",
        "id": f"{a_key(1)}/3",
        "source": "/holdfast/a%20b",
        "type": "holdfast.stage.completed",
        "subject": "order 7",
        "time": "2026-01-01T00:00:00.000003Z",
        "datacontenttype": "application/json",
        "data": {"attempt": 1},
        "holdfastgeneration": 1,
        "holdfastitem": 4,
        "holdfastnamespace": "a b",
        "holdfastnumber": 3,
        "holdfastrun": a_key(1),
        "holdfaststage": "bill",
        "holdfastworkflow": "orders",
    }


def test_names_of_attributes_are_those_that_cloud_events_allow(receiver: Receiver) -> None:
    a_webhook(receiver.url, source="https://shop.example/runs").emit([attrs.evolve(an_event(), item=1)])
    (event,) = json.loads(receiver.requests[0].body)

    assert all(name.isascii() and name.isalnum() and name.islower() for name in event)
    assert all(len(name) <= 20 for name in event)
    assert event["source"] == "https://shop.example/runs"


def test_many_events_are_few_lists_on_one_connection(receiver: Receiver) -> None:
    a_webhook(receiver.url, batch=10).emit([an_event(1, number) for number in range(1, 26)])

    assert [len(json.loads(request.body)) for request in receiver.requests] == [10, 10, 5]
    types = {request.headers["Content-Type"] for request in receiver.requests}
    assert types == {"application/cloudevents-batch+json; charset=utf-8"}
    assert receiver.connections == 1


def test_a_body_does_not_wait_for_the_acknowledgement_of_its_head(receiver: Receiver) -> None:
    """Without TCP_NODELAY each would wait for forty milliseconds."""
    began = time.monotonic()
    a_webhook(receiver.url, batch=1).emit([an_event(1, number) for number in range(1, 76)])

    assert time.monotonic() - began < 75 * 0.04


def test_a_list_is_not_longer_than_most_receivers_take(receiver: Receiver) -> None:
    large = '"' + "x" * 60_000 + '"'
    a_webhook(receiver.url).emit([an_event(1, number, large) for number in range(1, 41)])

    assert len(receiver.events) == 40
    assert max(len(request.body) for request in receiver.requests) < BATCH_BYTES_MAX + 1_000


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_taken(receiver: Receiver, status: int) -> None:
    receiver.answers = lambda _: Answer(status, body=b"fine" if status != 204 else b"")
    sink = a_webhook(receiver.url)
    sink.emit([an_event()])
    sink.emit([an_event(1, 2)])

    assert len(receiver.events) == 2


@pytest.mark.parametrize("status", [400, 406, 409, 413, 415, 422, 499])
def test_what_is_about_the_event_refuses_it(receiver: Receiver, status: int) -> None:
    receiver.answers = lambda _: Answer(status, body=b"no such type")
    with pytest.raises(EventRefusedError, match=f"{status}.*no such type"):
        a_webhook(receiver.url).emit([an_event()])


@pytest.mark.parametrize("status", [301, 302, 307, 308, 401, 403, 404, 408, 410, 429, 500, 502, 503, 599])
def test_what_is_not_about_the_event_does_not(receiver: Receiver, status: int) -> None:
    receiver.answers = lambda _: Answer(status, {"Location": receiver.url})
    with pytest.raises(SinkUnavailableError, match=str(status)) as caught:
        a_webhook(receiver.url).emit([an_event()])

    assert caught.value.retry_after == 0.0
    assert len(receiver.requests) == 1, "a redirect is not followed"


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        ("120", 120, 120),
        (timedelta(seconds=3_600), 3_000, 3_601),
        (timedelta(seconds=-3_600), 0, 0),
        ("soon", 0, 0),
        ("-5", 0, 0),
        ("9" * 400, 86_400, 86_400),
    ],
    ids=["seconds", "later", "before", "words", "negative", "endless"],
)
def test_it_hears_how_long_to_wait(
    receiver: Receiver, header: str | timedelta, low: float, high: float
) -> None:
    text = header if isinstance(header, str) else format_datetime(datetime.now(UTC) + header)
    receiver.answers = lambda _: Answer(503, {"Retry-After": text})
    with pytest.raises(SinkUnavailableError) as caught:
        a_webhook(receiver.url).emit([an_event()])

    assert low <= caught.value.retry_after <= high


def test_nobody_there_is_unavailable() -> None:
    with a_receiver() as gone:
        url = gone.url
    with pytest.raises(SinkUnavailableError, match="ConnectionRefusedError"):
        a_webhook(url).emit([an_event()])


def test_a_receiver_that_hangs_is_given_up_in_time(receiver: Receiver) -> None:
    receiver.answers = lambda _: Answer(waits=20)
    began = time.monotonic()
    with pytest.raises(SinkUnavailableError):
        a_webhook(receiver.url, timeout=0.3).emit([an_event()])

    assert time.monotonic() - began < 3


def test_a_secret_is_shown_nowhere(receiver: Receiver) -> None:
    receiver.answers = lambda _: Answer(500)
    sink = a_webhook(receiver.url + "?key=s3cret", headers={"Authorization": "s3cret"})
    with pytest.raises(SinkUnavailableError) as caught:
        sink.emit([an_event()])

    assert "s3cret" not in repr(sink) + str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hook",
        "ftp://x/hook",
        "file:///etc/passwd",
        "http://",
        "http:///hook",
        "http://x:99999/",
        "http://x:0/",
        "http://user:s3cret@x/hook",
        "http://x/a b",
        "http://x/\r\nHost: y",
        "http://[::1/",
        "http://a..b/",
        f"http://{'a' * 64}.example/",
    ],
)
def test_what_is_no_url_to_post_to_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidUrlError) as caught:
        a_webhook(url)

    assert "s3cret" not in str(caught.value)


def test_settings_that_can_not_be_are_refused() -> None:
    for settings in ({"batch": 0}, {"timeout": 0}, {"timeout": 30}, {"headers": ["a"]}, {"source": 1}):
        with pytest.raises(InvalidArgumentError, match="it must be"):
            WebhookSink("http://x/", **settings)  # pyright: ignore[reportArgumentType]


# Signatures -----------------------------------------------------------------------------------------------------------

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def signed(request: Request, secret: str = SECRET) -> bool:
    """Return whether one of a request's signatures is valid."""
    said = Signer("x", secret).headers(
        request.headers["webhook-id"], int(request.headers["webhook-timestamp"]), request.body.encode()
    )
    return said["webhook-signature"] in request.headers["webhook-signature"].split(" ")


def test_a_request_is_signed_with_all_that_is_in_it_and_says_when_it_is_sent(receiver: Receiver) -> None:
    other = "whsec_" + "A" * 32
    sink = a_webhook(receiver.url, batch=1, secrets=[other, SECRET], now=lambda: 1_614_265_330.9)
    sink.emit([an_event(1, 1, '"Größe"'), an_event(1, 2)])

    assert [request.headers["webhook-id"] for request in receiver.requests] == [
        an_event(1, 1).id,
        an_event(1, 2).id,
    ]
    assert {request.headers["webhook-timestamp"] for request in receiver.requests} == {"1614265330"}
    assert all(signed(request, secret) for request in receiver.requests for secret in (SECRET, other))
    assert not signed(attrs.evolve(receiver.requests[0], body=receiver.requests[1].body))


def test_a_list_that_comes_again_has_the_same_id_and_another_one_has_not(receiver: Receiver) -> None:
    sink = a_webhook(receiver.url, batch=2, secrets=SECRET)
    events = [an_event(1, number) for number in (1, 2, 3, 4)]
    sink.emit(events)
    sink.emit(events[2:])
    first, second, again = (request.headers["webhook-id"] for request in receiver.requests)

    assert (again == second, first == second) == (True, False)
    assert all(signed(request) for request in receiver.requests)


def test_without_secrets_nothing_is_signed(receiver: Receiver) -> None:
    a_webhook(receiver.url).emit([an_event()])

    assert not any(name.lower().startswith("webhook-") for name in receiver.requests[0].headers)


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": b"s3cret"}, {"X": "s3cret\r\nHost: y"}, {"X": "s3crét"}, {"": "s3cret"}, ["s3cret"]],
)
def test_headers_that_can_not_be_sent_are_refused_and_not_shown(headers: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="plain characters in one line") as caught:
        WebhookSink("http://x/", headers=headers)

    assert "s3cr" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Host",
            "content-length",
            "Transfer-Encoding",
            "CONNECTION",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Upgrade",
        ),
        *("Expect", "Proxy-Connection", "Content-Type", "Content-Encoding", "Accept-Encoding"),
        *("webhook-id", "Webhook-Timestamp", "WEBHOOK-SIGNATURE", "ce-id", "CE-Type"),
        *("X Y", "X:Y", "X(Y)", "X,Y", "X/Y", "X=Y", "X@Y", '"X"', "X;Y", "[X]"),
    ],
)
def test_headers_that_are_none_or_not_the_users_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        WebhookSink("http://x/", headers={"X-A": "s3cret", name: "s3cret"})

    assert caught.value.argument == "headers"
    assert "s3cret" not in str(caught.value)


def test_headers_are_each_there_once_and_not_too_many() -> None:
    for headers in ({"X-A": "1", "x-a": "2"}, {"X-A": "y" * 9_000}, {f"X-{n}": "y" * 90 for n in range(90)}):
        with pytest.raises(InvalidArgumentError, match="headers are not shown here"):
            WebhookSink("http://x/", headers=headers)


def test_headers_of_the_user_are_sent(receiver: Receiver) -> None:
    given = {"authorization": "Bearer s3cret", "user-agent": "mine", "X-Tag!#$%&'*+.^_`|~": "a b"}
    a_webhook(receiver.url, headers=given).emit([an_event()])
    sent = receiver.requests[0].headers

    assert given.items() <= sent.items()
    assert [name for name in sent if name.lower() == "user-agent"] == ["user-agent"]


def test_a_receiver_that_says_what_it_was_sent_gives_no_secret_away(receiver: Receiver) -> None:
    receiver.answers = lambda request: Answer(500, body=f"{request.path} {dict(request.headers)}".encode())
    sink = a_webhook(receiver.url + "/t0p5ecret?key=s3cret", headers={"Authorization": "Bearer s3same"})
    with pytest.raises(SinkUnavailableError) as caught:
        sink.emit([an_event()])

    assert "Content-Type" in str(caught.value)
    assert not any(secret in repr(sink) + str(caught.value) for secret in ("t0p5ecret", "s3cret", "s3same"))


# Internal addresses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "https://10.0.0.1:8443/x", "http://[::1]:80/", "http://[::ffff:169.254.169.254]/"],
)
def test_an_internal_address_in_the_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidUrlError, match="allow_internal=True"):
        WebhookSink(url)
    a_webhook(url)


@pytest.mark.parametrize("host", ["localhost", "2130706433", "0x7f.1", "hook.example"])
def test_a_name_of_an_internal_address_is_not_connected_to(receiver: Receiver, host: str) -> None:
    url = receiver.url.replace("127.0.0.1", host)

    def resolve(name: str, port: int) -> list[str]:
        return ["127.0.0.1"] if name == "hook.example" else addresses_of(name, port)

    sink = WebhookSink(url, resolve=resolve)
    with pytest.raises(SinkUnavailableError, match="is an internal address; pass allow_internal=True"):
        sink.emit([an_event()])

    assert receiver.connections == 0


def test_a_name_that_means_something_else_a_moment_later_leads_nowhere_else(receiver: Receiver) -> None:
    asked: list[tuple[str, int]] = []

    def resolve(host: str, port: int) -> list[str]:
        """Resolve a name that no DNS server has: a second look-up would fail."""
        asked.append((host, port))
        return ["127.0.0.1"] if len(asked) == 1 else ["10.255.255.1"]

    url = receiver.url.replace("127.0.0.1", "no-such-host.invalid")
    a_webhook(url, resolve=resolve, batch=1).emit([an_event(1, 1), an_event(1, 2)])
    port = int(url.split(":")[2].split("/")[0])

    assert receiver.requests[0].headers["Host"] == f"no-such-host.invalid:{port}"
    assert (asked, receiver.connections) == ([("no-such-host.invalid", port)], 1)


def test_an_address_that_nobody_answers_at_is_followed_by_the_next(receiver: Receiver) -> None:
    def resolve(host: str, port: int) -> list[str]:
        del host, port
        return ["::1", "127.0.0.1"]

    a_webhook(receiver.url.replace("127.0.0.1", "hook.example"), resolve=resolve).emit([an_event()])

    assert len(receiver.events) == 1


def test_a_redirect_to_an_internal_address_is_not_followed(receiver: Receiver) -> None:
    with a_receiver() as inside:
        receiver.answers = lambda _: Answer(307, {"Location": inside.url})
        with pytest.raises(SinkUnavailableError, match="307"):
            a_webhook(receiver.url).emit([an_event()])
        assert inside.connections == 0


# TLS ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "is_taken"), [("hook.example", True), ("other.example", False)])
def test_a_server_proves_to_have_the_name_that_was_looked_up(
    tmp_path: Path, name: str, *, is_taken: bool
) -> None:
    server, client = a_certificate(name, tmp_path)
    with a_receiver(server) as receiver:
        url = receiver.url.replace("127.0.0.1", "hook.example")
        sink = a_webhook(url, context=client, resolve=here, batch=1)
        if is_taken:
            sink.emit([an_event(1, 1), an_event(1, 2)])
        else:
            with pytest.raises(SinkUnavailableError, match="certificate verify failed"):
                sink.emit([an_event()])

        assert len(receiver.events) == (2 if is_taken else 0)


def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(SinkUnavailableError):
            a_webhook(f"https://127.0.0.1:{silent.getsockname()[1]}/", timeout=0.3).emit([an_event()])

    assert time.monotonic() - began < 3


def here(host: str, port: int) -> list[str]:
    """Resolve every name to this machine."""
    del host, port
    return ["127.0.0.1"]
