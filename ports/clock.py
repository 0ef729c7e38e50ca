"""Time and identity, which come in from outside."""

from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from holdfast.ports.records import Micros

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Clock(Protocol):
    """A clock. Promises: `now` is aware and in UTC; `monotonic` never goes back; `sleep` takes at least as long."""

    def now(self) -> datetime:
        """Return the instant, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never less than before, whatever happens to the wall clock."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Return when that many seconds have passed by `monotonic`."""
        ...


class Ids(Protocol):
    """A source of fresh ids. Promises: never the same twice; later ones sort after earlier ones of this source."""

    def new(self) -> str:
        """Return 26 characters of `0-9A-Z` (a ULID: its first ten are the time)."""
        ...


def micros(instant: datetime) -> Micros:
    """Return an aware datetime as microseconds since the epoch. ValueError if it is naive."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant!r} has no time zone; use datetime.now(UTC) or another aware datetime")
    return (instant - _EPOCH) // _MICROSECOND


def instant(value: Micros) -> datetime:
    """Return the aware UTC datetime that a count of microseconds since the epoch stands for."""
    return _EPOCH + timedelta(microseconds=value)
