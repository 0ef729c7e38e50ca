"""Conformance of the clocks and id generators."""

import time

from typing_extensions import override

from holdfast.adapters.system.clock import SystemClock
from holdfast.adapters.system.ids import UlidIds
from holdfast.ports.clock import Clock, Ids, micros
from holdfast.testing.clock import DEFAULT_START, ManualClock
from holdfast.testing.conformance.clock import ClockContract, IdsContract
from holdfast.testing.ids import SeededIds


class TestSystemClock(ClockContract):
    @override
    def make_clock(self) -> Clock:
        return SystemClock()


class TestManualClock(ClockContract):
    @override
    def make_clock(self) -> Clock:
        return ManualClock()


class TestUlidIds(IdsContract):
    @override
    def make_ids(self) -> Ids:
        return UlidIds()

    @override
    def milliseconds(self) -> int:
        return time.time_ns() // 1_000_000


class TestSeededIds(IdsContract):
    @override
    def make_ids(self) -> Ids:
        return SeededIds(1)

    @override
    def milliseconds(self) -> int:
        return micros(DEFAULT_START) // 1_000


class TestSeededIdsWithClock(IdsContract):
    @override
    def make_ids(self) -> Ids:
        return SeededIds(1, ManualClock())

    @override
    def milliseconds(self) -> int:
        return micros(DEFAULT_START) // 1_000
