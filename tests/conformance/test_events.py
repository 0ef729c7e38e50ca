"""Conformance of the event sinks, faulty ones included."""

from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import cycle

import pytest
from typing_extensions import override

from holdfast.adapters.memory.sink import MemorySink
from holdfast.adapters.sinks.log import LogSink
from holdfast.adapters.sinks.webhook import WebhookSink
from holdfast.ports.events import Event, EventSink
from holdfast.testing.conformance.events import EventSinkContract
from holdfast.testing.faults import Fault, FaultPlan, FaultySink
from tests.sinks import Answer, a_receiver, events_in_lines


class TestMemorySink(EventSinkContract):
    @override
    def make_sink(self) -> EventSink:
        return MemorySink()

    @override
    def taken(self, sink: EventSink) -> Sequence[Event]:
        assert isinstance(sink, MemorySink)
        return sink.events


class TestFaultySink(EventSinkContract):
    """A sink of which every other call fails, half of them after it took the events."""

    @pytest.fixture(autouse=True)
    def inner(self) -> None:
        self.memory = MemorySink()

    @override
    def make_sink(self) -> EventSink:
        fault = (Fault.FAILS_BEFORE, None, Fault.LOST_ANSWER, None)
        return FaultySink(self.memory, FaultPlan(fault * 1_000))

    @override
    def taken(self, sink: EventSink) -> Sequence[Event]:
        assert isinstance(sink, FaultySink)
        assert sink.fired[Fault.FAILS_BEFORE] > 0
        return self.memory.events


class TestLogSink(EventSinkContract):
    @override
    def make_sink(self) -> EventSink:
        self.out = StringIO()
        return LogSink(self.out)

    @override
    def taken(self, sink: EventSink) -> Sequence[Event]:
        return events_in_lines(self.out.getvalue())


class WebhookCase(EventSinkContract):
    """A webhook and a receiver on this machine."""

    batch = 100

    @pytest.fixture(autouse=True)
    def _receiving(self) -> Iterator[None]:
        with a_receiver() as self.receiver:
            yield

    @override
    def make_sink(self) -> EventSink:
        return WebhookSink(self.receiver.url, batch=self.batch, allow_internal=True)

    @override
    def taken(self, sink: EventSink) -> Sequence[Event]:
        return self.receiver.events


class TestWebhookSink(WebhookCase):
    """A request has up to a hundred events."""


class TestStructuredWebhookSink(WebhookCase):
    """A request has one event."""

    batch = 1


class TestWebhookSinkWithFaults(WebhookCase):
    """A receiver that fails in every way, before or after it took the events."""

    @override
    def make_sink(self) -> EventSink:
        ways = (
            Answer(503, takes=False),
            Answer(0, takes=False),
            Answer(),
            Answer(500),
            Answer(0),
            Answer(),
            Answer(),
            Answer(),
            Answer(429, {"Retry-After": "1"}, takes=False),
            *[Answer()] * 6,
        )
        answers = cycle(ways)
        self.receiver.answers = lambda _: next(answers)
        return super().make_sink()

    @override
    def taken(self, sink: EventSink) -> Sequence[Event]:
        return self.receiver.events
