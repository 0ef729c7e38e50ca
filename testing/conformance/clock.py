"""The contracts of `Clock` and `Ids`."""

import re
from abc import ABC, abstractmethod
from datetime import UTC, timedelta

import pytest

from holdfast.adapters.system.ids import ulid_milliseconds
from holdfast.ports.clock import Clock, Ids, instant, micros
from holdfast.testing.conformance.threads import in_threads

_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


class ClockContract(ABC):
    """Every promise of `Clock`. Derive a test class and define `make_clock`."""

    @abstractmethod
    def make_clock(self) -> Clock:
        """Return a clock."""

    def test_the_instant_is_aware_and_in_utc(self) -> None:
        """`now` needs no conversion."""
        now = self.make_clock().now()

        assert now.tzinfo is UTC
        assert now.utcoffset() == timedelta()
        assert now == instant(micros(now))

    def test_monotonic_never_goes_back(self) -> None:
        """Read from one thread."""
        clock = self.make_clock()
        seen = [clock.monotonic() for _ in range(1_000)]

        assert sorted(seen) == seen

    def test_monotonic_never_goes_back_between_threads(self) -> None:
        """A later call in any thread returns no less than an earlier one."""
        clock = self.make_clock()
        start = clock.monotonic()

        assert all(seen >= start for seen in in_threads(4, lambda _: clock.monotonic()))
        assert clock.monotonic() >= start

    @pytest.mark.parametrize("seconds", [0.02, 0.001, 1e-7, 0.0, -1.0])
    def test_sleep_takes_at_least_as_long(self, seconds: float) -> None:
        """By `monotonic`. Zero and negative lengths are allowed."""
        clock = self.make_clock()
        before = clock.monotonic()
        clock.sleep(seconds)

        assert clock.monotonic() - before >= seconds

    def test_the_wall_clock_goes_on_during_sleep(self) -> None:
        """Unless the clock is set, which does not happen here."""
        clock = self.make_clock()
        before = clock.now()
        clock.sleep(0.02)

        assert clock.now() > before


class IdsContract(ABC):
    """Every promise of `Ids`. Derive a test class and define `make_ids`."""

    @abstractmethod
    def make_ids(self) -> Ids:
        """Return a source that has not produced an id yet."""

    @abstractmethod
    def milliseconds(self) -> int:
        """Return the time, in milliseconds since 1970, that the ids of a source created now should have."""

    def test_an_id_is_a_ulid(self) -> None:
        """26 characters of Crockford's base 32."""
        ids = self.make_ids()

        assert all(_ULID.fullmatch(ids.new()) for _ in range(1_000))

    def test_an_id_begins_with_the_time(self) -> None:
        """In milliseconds."""
        before = self.milliseconds()
        ids = self.make_ids()
        times = [ulid_milliseconds(ids.new()) for _ in range(10)]

        # One more than now: a source may run ahead by the millisecond in which its process was forked.
        assert all(before <= time <= self.milliseconds() + 1 for time in times)

    def test_no_id_comes_twice_and_later_ones_sort_after_earlier_ones(self) -> None:
        """However many are generated in a millisecond."""
        ids = self.make_ids()
        drawn = [ids.new() for _ in range(20_000)]

        assert sorted(set(drawn)) == drawn

    def test_no_id_comes_twice_in_several_threads(self) -> None:
        """And those of each thread ascend."""
        ids = self.make_ids()
        drawn = in_threads(4, lambda _: [ids.new() for _ in range(5_000)])

        assert len({each for of_thread in drawn for each in of_thread}) == 20_000
        assert all(sorted(of_thread) == of_thread for of_thread in drawn)
