"""What a webhook sends, and what it makes of the answers."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import attrs
import pytest

from holdfast.adapters.sinks.webhook import BATCH_BYTES_MAX, WebhookSink
from holdfast.ports.errors import (
    EventRefusedError,
    InvalidArgumentError,
    InvalidUrlError,
    SinkUnavailableError,
)
from holdfast.testing.conformance.builders import a_key
from holdfast.testing.conformance.events import an_event
from tests.sinks import Answer, Receiver, a_receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with a_receiver() as receiver:
        yield receiver


def test_an_event_is_a_cloud_event(receiver: Receiver) -> None:
    event = attrs.evolve(an_event(1, 3), item=4, namespace="a b", run_id="order 7")
    WebhookSink(receiver.url + "?a=b", batch=1, headers={"Authorization": "Bearer s3cret"}).emit([event])
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
    WebhookSink(receiver.url, source="https://shop.example/runs").emit([attrs.evolve(an_event(), item=1)])
    (event,) = json.loads(receiver.requests[0].body)

    assert all(name.isascii() and name.isalnum() and name.islower() for name in event)
    assert all(len(name) <= 20 for name in event)
    assert event["source"] == "https://shop.example/runs"


def test_many_events_are_few_lists_on_one_connection(receiver: Receiver) -> None:
    WebhookSink(receiver.url, batch=10).emit([an_event(1, number) for number in range(1, 26)])

    assert [len(json.loads(request.body)) for request in receiver.requests] == [10, 10, 5]
    types = {request.headers["Content-Type"] for request in receiver.requests}
    assert types == {"application/cloudevents-batch+json; charset=utf-8"}
    assert receiver.connections == 1


def test_a_list_is_not_longer_than_most_receivers_take(receiver: Receiver) -> None:
    large = '"' + "x" * 60_000 + '"'
    WebhookSink(receiver.url).emit([an_event(1, number, large) for number in range(1, 41)])

    assert len(receiver.events) == 40
    assert max(len(request.body) for request in receiver.requests) < BATCH_BYTES_MAX + 1_000


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_taken(receiver: Receiver, status: int) -> None:
    receiver.answers = lambda _: Answer(status, body=b"fine" if status != 204 else b"")
    sink = WebhookSink(receiver.url)
    sink.emit([an_event()])
    sink.emit([an_event(1, 2)])

    assert len(receiver.events) == 2


@pytest.mark.parametrize("status", [400, 406, 409, 413, 415, 422, 499])
def test_what_is_about_the_event_refuses_it(receiver: Receiver, status: int) -> None:
    receiver.answers = lambda _: Answer(status, body=b"no such type")
    with pytest.raises(EventRefusedError, match=f"{status}.*no such type"):
        WebhookSink(receiver.url).emit([an_event()])


@pytest.mark.parametrize("status", [301, 302, 307, 308, 401, 403, 404, 408, 410, 429, 500, 502, 503, 599])
def test_what_is_not_about_the_event_does_not(receiver: Receiver, status: int) -> None:
    receiver.answers = lambda _: Answer(status, {"Location": receiver.url})
    with pytest.raises(SinkUnavailableError, match=str(status)) as caught:
        WebhookSink(receiver.url).emit([an_event()])

    assert caught.value.retry_after == 0.0
    assert len(receiver.requests) == 1, "a redirect is not followed"


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        ("120", 120, 120),
        (format_datetime(datetime.now(UTC) + timedelta(seconds=3_600)), 3_000, 3_601),
        (format_datetime(datetime.now(UTC) - timedelta(seconds=3_600)), 0, 0),
        ("soon", 0, 0),
        ("-5", 0, 0),
        ("9" * 400, 86_400, 86_400),
    ],
    ids=["seconds", "later", "before", "words", "negative", "endless"],
)
def test_it_hears_how_long_to_wait(receiver: Receiver, header: str, low: float, high: float) -> None:
    receiver.answers = lambda _: Answer(503, {"Retry-After": header})
    with pytest.raises(SinkUnavailableError) as caught:
        WebhookSink(receiver.url).emit([an_event()])

    assert low <= caught.value.retry_after <= high


def test_nobody_there_is_unavailable() -> None:
    with a_receiver() as gone:
        url = gone.url
    with pytest.raises(SinkUnavailableError, match="ConnectionRefusedError"):
        WebhookSink(url).emit([an_event()])


def test_a_receiver_that_hangs_is_given_up_in_time(receiver: Receiver) -> None:
    receiver.answers = lambda _: Answer(waits=20)
    began = time.monotonic()
    with pytest.raises(SinkUnavailableError):
        WebhookSink(receiver.url, timeout=0.3).emit([an_event()])

    assert time.monotonic() - began < 3


def test_a_secret_is_shown_nowhere(receiver: Receiver) -> None:
    receiver.answers = lambda _: Answer(500)
    sink = WebhookSink(receiver.url + "?key=s3cret", headers={"Authorization": "s3cret"})
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
    ],
)
def test_what_is_no_url_to_post_to_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidUrlError) as caught:
        WebhookSink(url)

    assert "s3cret" not in str(caught.value)


def test_settings_that_can_not_be_are_refused() -> None:
    for settings in ({"batch": 0}, {"timeout": 0}, {"timeout": 30}, {"headers": ["a"]}, {"source": 1}):
        with pytest.raises(InvalidArgumentError, match="it must be"):
            WebhookSink("http://x/", **settings)  # pyright: ignore[reportArgumentType]
