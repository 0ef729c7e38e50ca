"""Sinks of events keep the promises of the port, faulty ones too."""

from collections.abc import Sequence

import pytest
from typing_extensions import override

from holdfast.ports.events import Event, EventSink
from holdfast.testing.conformance.events import EventSinkContract
from holdfast.testing.faults import Fault, FaultPlan, FaultySink
from holdfast.testing.sink import MemorySink


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
