"""Conformance of the job transports, unreliable ones included."""

from datetime import timedelta

import pytest
from typing_extensions import override

from holdfast.adapters.memory.transport import MemoryTransport
from holdfast.ports.transport import JobTransport
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.transport import JobTransportContract, RedeliveryContract
from holdfast.testing.transport import FaultyTransport, memory_transport


class TestMemoryTransport(JobTransportContract):
    """On the machine's clock."""

    @override
    def make_transport(self) -> JobTransport:
        return MemoryTransport()


class TestMemoryTransportWithClock(RedeliveryContract):
    """On a clock that stands still between the steps of a test."""

    @override
    def make_transport(self) -> JobTransport:
        self.clock = ManualClock()
        return memory_transport(self.clock, visibility_seconds=self.visibility_seconds)

    @override
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))


@pytest.mark.parametrize("seed", range(5))
class TestFaultyTransport(JobTransportContract):
    """One that loses, repeats, delays and reorders."""

    @pytest.fixture(autouse=True)
    def chances(self, seed: int) -> None:
        self.seed = seed

    @override
    def make_transport(self) -> JobTransport:
        inner = MemoryTransport()
        return FaultyTransport(inner, self.seed, loses=0.3, repeats=0.3, delays=0.2, reorders=0.5)
