"""The ports for time and ids, so that tests and the simulator can control both."""

from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from holdfast.ports.records.values import Micros

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Clock(Protocol):
    """A wall clock, a monotonic clock, and a way to sleep.

    - `now` is aware and in UTC.
    - `monotonic` never goes back.
    - `sleep` takes at least as long as requested.
    """

    def now(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some fixed moment. Never decreases, whatever happens to the wall clock."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Block until that many seconds have passed by `monotonic`."""
        ...


class Ids(Protocol):
    """A generator of ids: never the same twice, and sorted in the order of generation."""

    def new(self) -> str:
        """Return a new id: 26 characters of `0-9A-Z` (a ULID, whose first ten are the time)."""
        ...


def micros(instant: datetime) -> Micros:
    """Return an aware datetime as microseconds since the epoch. ValueError if it is naive."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant!r} has no time zone; use datetime.now(UTC) or another aware datetime")
    return (instant - _EPOCH) // _MICROSECOND


def instant(value: Micros) -> datetime:
    """Return the aware UTC datetime for microseconds since the epoch."""
    return _EPOCH + timedelta(microseconds=value)
