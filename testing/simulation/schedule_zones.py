"""Made-up time zones in two releases of zone data, whose clocks change every few hours or days."""

from collections.abc import Mapping
from random import Random
from typing import Final

import attrs

from holdfast.ports.errors import UnknownZoneError
from holdfast.ports.zones import UTC_TABLE, ZoneTable
from holdfast.testing.simulation.fibers import START

NEW_ZONE: Final = "Test/New"
"""A zone that the older release does not have."""
_HOUR: Final = 3_600
_DAY: Final = 24 * _HOUR
_BEGIN: Final = START // 1_000_000 - 2 * _DAY
_END: Final = START // 1_000_000 + 25 * _DAY
_OFFSETS: Final = (-5 * _HOUR, 0, _HOUR, 19_800, 45_900)
_SHIFTS: Final = (1_800, _HOUR, 2 * _HOUR)
_PERIODS: Final = (4 * _HOUR, 5 * _HOUR, 9 * _HOUR, 30 * _HOUR, 100 * _HOUR)


@attrs.frozen
class ZoneRelease:
    """A release of zone data."""

    version: str
    tables: Mapping[str, ZoneTable]

    def table(self, name: str) -> ZoneTable:
        """See `ZoneTables.table`."""
        if name == UTC_TABLE.name:
            return UTC_TABLE
        if name not in self.tables:
            raise UnknownZoneError(name, self.version, "")
        return self.tables[name]


def draw_releases(random: Random) -> tuple[ZoneRelease, ZoneRelease]:
    """Draw an older and a newer release. They differ from some time on, which may have passed."""
    names = ("Test/East", "Test/West")
    older = {name: _draw_table(random, name, "2026a") for name in names}
    newer = {name: _changed(random, table, "2026b") for name, table in older.items()}
    newer[NEW_ZONE] = _draw_table(random, NEW_ZONE, "2026b")
    return ZoneRelease("2026a", older), ZoneRelease("2026b", newer)


def _draw_table(random: Random, name: str, version: str) -> ZoneTable:
    offset = random.choice(_OFFSETS)
    changes, offsets = _draw_changes(random, offset, _BEGIN)
    return ZoneTable(name, version, tuple(changes), (offset, *offsets))


def _draw_changes(random: Random, base: int, begin: int) -> tuple[list[int], list[int]]:
    """Draw clock changes between a standard time and one that is ahead of it."""
    at, is_ahead, changes, offsets = begin, False, list[int](), list[int]()
    while (at := at + random.choice(_PERIODS) + random.choice((0, 1_800))) < _END:
        is_ahead = not is_ahead
        changes.append(at)
        offsets.append(base + random.choice(_SHIFTS) if is_ahead else base)
    return changes, offsets


def _changed(random: Random, table: ZoneTable, version: str) -> ZoneTable:
    """Draw other clock changes of a zone from some time on; some zones stay as they are."""
    if random.random() < 0.2:
        return attrs.evolve(table, version=version)
    since = START // 1_000_000 + random.randrange(-6, 30) * _HOUR
    kept = [at for at in table.transitions if at < since]
    last = max(kept, default=_BEGIN)
    first = max(since, last + 4 * _HOUR)
    usual, before = table.offsets[0], table.offsets[len(kept)]
    base = random.choice([one for one in (usual, usual + _HOUR, usual - _HOUR) if one != before])
    changes, offsets = _draw_changes(random, base, first)
    return ZoneTable(
        table.name,
        version,
        (*kept, first, *changes),
        (*table.offsets[: len(kept) + 1], base, *offsets),
    )
