"""Conformance of the NATS adapters, on a real server."""

import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from nats.js.api import StreamConfig
from typing_extensions import override

from holdfast.adapters.nats.connection import NatsConnection
from holdfast.adapters.nats.sink import NatsSink
from holdfast.adapters.nats.transport import NatsJobTransport
from holdfast.ports.events import Event, EventSink
from holdfast.ports.transport import JobTransport
from holdfast.testing.conformance.events import EventSinkContract, an_event
from holdfast.testing.conformance.transport import JobTransportContract, RedeliveryContract, a_hint
from tests.nats import any_nats
from tests.sinks import events_in

pytestmark = pytest.mark.service


class Streams:
    """Streams of a server that nobody else has, and that are gone afterwards."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._numbers = count(1)
        self._connection = NatsConnection("Streams", url)
        self._made: list[str] = []

    def name(self) -> str:
        """Return a name that is used for nothing else; a stream of it is deleted afterwards."""
        name = f"holdfast-test-{time.time_ns()}-{next(self._numbers)}"
        self._made.append(name)
        return name

    def make(self, subject: str) -> str:
        """Make a stream for all below a subject; return its name."""
        name = self.name()

        async def make(client: Any) -> None:
            await client.jetstream().add_stream(StreamConfig(name=name, subjects=[f"{subject}.>"]))

        self._connection.run("make a stream", make, 5)
        return name

    def messages(self, name: str) -> list[tuple[str, dict[str, str], str]]:
        """Return the subjects, headers and texts of all that a stream has."""

        async def read(client: Any) -> list[tuple[str, dict[str, str], str]]:
            stream = client.jetstream()
            state = (await stream.stream_info(name)).state
            numbers = range(state.first_seq, state.last_seq + 1) if state.messages else ()
            found = [await stream.get_msg(name, number) for number in numbers]
            return [(one.subject or "", dict(one.headers or {}), (one.data or b"").decode()) for one in found]

        return self._connection.run("read a stream", read, 30)

    def clean_up(self) -> None:
        """Delete the streams."""

        async def delete(client: Any) -> None:
            there = {one.config.name for one in await client.jetstream().streams_info()}
            for name in there.intersection(self._made):
                await client.jetstream().delete_stream(name)

        self._connection.run("delete streams", delete, 30)
        self._connection.close()


@pytest.fixture(scope="module")
def streams() -> Iterator[Streams]:
    with any_nats() as url:
        made = Streams(url)
        yield made
        made.clean_up()


class NatsTransportCase(JobTransportContract):
    """Over a stream that is made when it is first used."""

    delivers_run_hints = False
    visibility = 30.0

    @pytest.fixture(autouse=True)
    def server(self, streams: Streams) -> Iterator[None]:
        self.streams = streams
        self.made: list[JobTransport] = []
        yield
        for transport in self.made:
            transport.close()

    @override
    def make_transport(self) -> JobTransport:
        name = self.streams.name()
        made = NatsJobTransport(self.streams.url, stream=name, subject=name, visibility=self.visibility)
        self.made.append(made)
        return made


class TestNatsJobTransport(NatsTransportCase):
    """Whatever takes no time."""


@pytest.mark.slow
class TestNatsRedelivery(NatsTransportCase, RedeliveryContract):
    """What takes time, for it is the server's time that passes."""

    is_exact = False
    visibility = 1.0
    visibility_seconds = 1.0

    @override
    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)


class TestNatsSink(EventSinkContract):
    """To a stream."""

    @pytest.fixture(autouse=True)
    def server(self, streams: Streams) -> Iterator[None]:
        self.streams = streams
        self.sinks: list[NatsSink] = []
        yield
        for sink in self.sinks:
            sink.close()

    @override
    def make_sink(self) -> EventSink:
        subject = f"test.{time.time_ns()}"
        self.stream = self.streams.make(subject)
        sink = NatsSink(self.streams.url, subject=subject)
        self.sinks.append(sink)
        return sink

    @override
    def taken(self, sink: EventSink) -> Sequence[Event]:
        return [event for *_, text in self.streams.messages(self.stream) for event in events_in(text)]


def test_an_event_has_its_type_as_its_subject_and_comes_once(streams: Streams) -> None:
    stream = streams.make("shop.events")
    sink = NatsSink(streams.url, subject="shop.events")
    sink.emit([an_event(1, 1)])
    sink.emit([an_event(1, 1), an_event(1, 2)])
    sink.close()
    found = streams.messages(stream)

    assert [subject for subject, *_ in found] == ["shop.events.stage.completed"] * 2
    assert [headers["Nats-Msg-Id"] for _, headers, _ in found] == [an_event(1, 1).id, an_event(1, 2).id]
    assert found[0][1]["content-type"] == "application/cloudevents+json; charset=utf-8"


@pytest.mark.slow
def test_what_one_process_did_not_acknowledge_comes_to_another(streams: Streams) -> None:
    """A receiver that dies has acknowledged nothing: it does so after the commit."""
    name = streams.name()
    first, second = (
        NatsJobTransport(streams.url, stream=name, subject=name, visibility=0.5) for _ in range(2)
    )
    first.announce([a_hint(1), a_hint(2)])
    deliveries = first.receive(10, 1)
    assert {delivery.hint for delivery in deliveries} == {a_hint(1), a_hint(2)}
    done = next(delivery for delivery in deliveries if delivery.hint == a_hint(1))
    first.ack(done.receipt)
    first.close()

    assert [delivery.hint for delivery in second.receive(10, 5)] == [a_hint(2)]
    second.close()


def test_a_hint_that_is_sent_twice_at_once_comes_once(streams: Streams) -> None:
    name = streams.name()
    transport = NatsJobTransport(streams.url, stream=name, subject=name)
    transport.announce([a_hint(1)])
    transport.announce([a_hint(1), a_hint(1, epoch=1)])

    assert [delivery.hint for delivery in transport.receive(10, 1)] == [a_hint(1), a_hint(1, epoch=1)]
    transport.close()
