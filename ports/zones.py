"""Time zones: the table of one zone, and the port that supplies tables."""

from typing import Final, Protocol, TypeAlias

import attrs


@attrs.frozen(cache_hash=True)
class WeekdayOfMonth:
    """A yearly date: the first to fourth, or the last, of a weekday in a month."""

    month: int
    """1 to 12."""
    week: int
    """1 to 4; 5 for the last."""
    weekday: int
    """0 to 6, from Sunday."""
    time: int
    """Seconds from the midnight that begins the day, by the clock before the change: from -167 to 167 hours."""


@attrs.frozen(cache_hash=True)
class DayOfYear:
    """A yearly date: a day of the year."""

    day: int
    """0 to 365, from January 1."""
    counts_leap_day: bool
    """Whether February 29 is counted. If not, the same number is the same date in every year."""
    time: int
    """Seconds from the midnight that begins the day, by the clock before the change."""


YearlyDate: TypeAlias = WeekdayOfMonth | DayOfYear


@attrs.frozen(cache_hash=True)
class YearlyRule:
    """Two clock changes a year, for ever. Offsets are seconds east of UTC."""

    standard: int
    daylight: int
    begin: YearlyDate
    """When daylight time begins, by the clock of standard time."""
    end: YearlyDate
    """When it ends, by the clock of daylight time."""


@attrs.frozen
class ZoneTable:
    """The UTC offsets of a time zone, for all time: each change that is listed, then a rule.

    Changes are further apart than the length by which either moves the clock.
    """

    name: str
    version: str
    """The release of the time zone database, such as `2026f`."""
    transitions: tuple[int, ...]
    """When the offset changes: seconds since 1970-01-01T00:00Z, ascending. At the last one it may stay the same."""
    offsets: tuple[int, ...]
    """Seconds east of UTC: before the first transition, then from each transition on."""
    rule: YearlyRule | None = None
    """The changes after the last transition; without a rule the last offset stays."""

    def __attrs_post_init__(self) -> None:
        if len(self.offsets) != len(self.transitions) + 1:
            raise ValueError(
                f"{self.name} has {len(self.transitions)} transitions and {len(self.offsets)} offsets"
            )
        if any(one >= other for one, other in zip(self.transitions, self.transitions[1:], strict=False)):
            raise ValueError(f"{self.name} has transitions out of order")


UTC_TABLE: Final = ZoneTable("UTC", "", (), (0,))
"""The table of UTC, which needs no database."""


class ZoneTables(Protocol):
    """The tables of all time zones, of one release of the time zone database.

    - A table is the same object, or an equal one, in every call.
    - `UTC` is UTC_TABLE, whatever the database.
    - Names are those of the database, links such as `Asia/Calcutta` included. Case matters.
    """

    @property
    def version(self) -> str:
        """The release of the database, such as `2026f`."""
        ...

    def table(self, name: str) -> ZoneTable:
        """Return the table of a zone.

        Raises:
            UnknownZoneError: The database has no zone of this name.
        """
        ...
