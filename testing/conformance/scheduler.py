"""The contract of `Scheduler`."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Final

import pytest

from holdfast.ports.clock import instant
from holdfast.ports.scheduler import Scheduler
from holdfast.testing.conformance.builders import NOW

_START: Final = instant(NOW)
_HOUR: Final = timedelta(hours=1)


class SchedulerContract(ABC):
    """Every promise of `Scheduler`. Derive a test class and define `make_scheduler` and `sent`.

    A real scheduler may send late, twice or never; the tests cover its behaviour without faults. Set `takes_back` to
    False if a wake-up that is due soon may be sent although it was cancelled.
    """

    takes_back: bool = True

    @abstractmethod
    def make_scheduler(self) -> Scheduler:
        """Return a scheduler without wake-ups, whose clock is before 2026-01-01T00:00Z."""

    @abstractmethod
    def sent(self, scheduler: Scheduler, now: datetime, /) -> Sequence[str]:
        """Set the time to `now`, and return the commands sent since the last call."""

    def test_a_command_is_sent_at_its_time(self) -> None:
        """Not before."""
        scheduler = self.make_scheduler()
        scheduler.schedule("key", '{"type":"x"}', _START + _HOUR)

        assert list(self.sent(scheduler, _START)) == []
        assert list(self.sent(scheduler, _START + _HOUR - timedelta(seconds=1))) == []
        assert '{"type":"x"}' in self.sent(scheduler, _START + _HOUR)

    def test_a_command_whose_time_has_passed_is_sent(self) -> None:
        """It is sent late rather than never."""
        scheduler = self.make_scheduler()
        scheduler.schedule("key", "late", _START - _HOUR)

        assert "late" in self.sent(scheduler, _START)

    def test_a_wake_up_of_the_same_key_is_replaced(self) -> None:
        """By a later one and by an earlier one; the old command is not sent."""
        scheduler = self.make_scheduler()
        scheduler.schedule("later", "old", _START + _HOUR)
        scheduler.schedule("later", "new", _START + 3 * _HOUR)
        scheduler.schedule("earlier", "old", _START + 3 * _HOUR)
        scheduler.schedule("earlier", "new", _START + _HOUR)

        assert {"new"} == set(self.sent(scheduler, _START + _HOUR))
        assert list(self.sent(scheduler, _START + 2 * _HOUR)) == []
        assert {"new"} == set(self.sent(scheduler, _START + 3 * _HOUR))

    def test_wake_ups_of_other_keys_are_independent(self) -> None:
        """Also at the same instant, and with the same command."""
        scheduler = self.make_scheduler()
        for key in ("a", "b", "A", "a/b", "ä"):
            scheduler.schedule(key, f"command of {key}", _START)
        if self.takes_back:
            scheduler.cancel("b")
        left = ("a", "A", "a/b", "ä") if self.takes_back else ("a", "b", "A", "a/b", "ä")

        assert {f"command of {key}" for key in left} == set(self.sent(scheduler, _START))

    def test_a_cancelled_wake_up_is_not_sent(self) -> None:
        """And its key can be used again."""
        scheduler = self.make_scheduler()
        scheduler.schedule("key", "old", _START)
        scheduler.cancel("key")
        assert list(self.sent(scheduler, _START)) == [] or not self.takes_back

        scheduler.schedule("key", "new", _START)
        assert "new" in self.sent(scheduler, _START)

    def test_cancelling_what_is_not_there_does_nothing(self) -> None:
        """Neither before nor after it was sent."""
        scheduler = self.make_scheduler()
        scheduler.cancel("key")
        scheduler.schedule("key", "command", _START)
        self.sent(scheduler, _START)

        scheduler.cancel("key")
        scheduler.cancel("key")

    def test_an_instant_of_any_time_zone_is_the_same_instant(self) -> None:
        """Two o'clock in a zone two hours ahead is midnight."""
        scheduler = self.make_scheduler()
        scheduler.schedule("key", "command", (_START + _HOUR).astimezone(timezone(2 * _HOUR)))

        assert list(self.sent(scheduler, _START)) == []
        assert "command" in self.sent(scheduler, _START + _HOUR)

    def test_a_naive_instant_is_a_value_error(self) -> None:
        """Its instant is undefined."""
        scheduler = self.make_scheduler()
        with pytest.raises(ValueError, match="time zone"):
            scheduler.schedule("key", "command", _START.replace(tzinfo=None))
