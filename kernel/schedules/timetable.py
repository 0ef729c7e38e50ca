"""What is due of a schedule: pure functions of its row, the calendar and the time."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from typing import Final

import attrs

from holdfast.kernel.calendars.occurrences import (
    SECOND,
    Occurrence,
    count_occurrences,
    last_until,
    next_after,
    occurrences,
    zones_of,
)
from holdfast.kernel.calendars.specs import Cron, Spec
from holdfast.kernel.calendars.zone_periods import period_at
from holdfast.kernel.commands.schedules import Missed, SchedulePolicy, StartKind
from holdfast.kernel.schedules.row_data import policy_of, specs_of
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen
from holdfast.ports.zones import ZoneTable, ZoneTables

LATE_AFTER: Final[Micros] = 300_000_000
"""A run that is started later than this after its nominal time is one that makes up for a missed time."""
_DAY: Final[Micros] = 86_400_000_000
MISSED_COUNTED_MAX: Final = 1_000
"""How many missed times one firing counts at most: counting takes microseconds for each."""
_MANUAL: Final = "manual"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@frozen(kw_only=True)
class Timetable:
    """The nominal times of a schedule."""

    specs: Sequence[Spec]
    zones: Mapping[str, ZoneTable]
    """The tables of the zones of `specs`."""

    @property
    def version(self) -> str:
        """The version of the time zone data; empty if the nominal times depend on none."""
        return next((table.version for table in self.zones.values()), "")

    def after(self, instant: Micros) -> Occurrence | None:
        """Return the first nominal time after an instant."""
        return next_after(self.specs, self.zones, instant)

    def is_nominal(self, instant: Micros) -> bool:
        """Whether an instant is a nominal time."""
        found = self.after(instant - 1)
        return found is not None and found.at == instant


def timetable_of(timing: str, zones: ZoneTables | None) -> Timetable:
    """Return the nominal times that the timing of a schedule describes.

    Raises UnknownZoneError; InvalidCommandError if this process has no time zone data and needs it; DefinitionError or
    one of PARSE_ERRORS for a damaged text.
    """
    specs = specs_of(timing)
    names = zones_of(specs)
    if names and zones is None:
        raise InvalidCommandError(
            f"the schedule needs the time zone {min(names)}, and this process has no time zone data: "
            'pip install "holdfast[schedules]"'
        )
    return Timetable(
        specs=specs, zones={} if zones is None else {name: zones.table(name) for name in sorted(names)}
    )


def remaining_times(row: ScheduleRow, zones: ZoneTables | None) -> Timetable:
    """Return the nominal times of a schedule, without local times that it handled by other time zone data.

    If the clock of the zone now shows an earlier time for the last nominal time than it did when that was handled, it
    will show the times in between again: the expressions of that zone begin after them. Raises what `timetable_of`
    raises.
    """
    timetable = timetable_of(row.timing, zones)
    if row.last_local is None:
        return timetable
    text, _, zone = row.last_local.partition(" ")
    table = timetable.zones.get(zone)
    if table is None:
        return timetable
    shown = datetime.fromisoformat(text)
    last, offset = micros(shown) // SECOND, shown.utcoffset() or timedelta()
    again = int(offset.total_seconds()) - period_at(table, last).offset
    if again <= 0:
        return timetable
    begin = instant((last + again + 1) * SECOND)
    specs = [
        spec.starting(begin) if isinstance(spec, Cron) and spec.zone == zone else spec
        for spec in timetable.specs
    ]
    return Timetable(specs=specs, zones=timetable.zones)


@attrs.frozen(kw_only=True)
class DueTime:
    """A nominal time for which a run is to be started."""

    occurrence: Occurrence
    kind: StartKind


@attrs.frozen(kw_only=True)
class DueTimes:
    """What is due of a schedule."""

    times: Sequence[DueTime]
    """Ascending."""
    missed: int
    """How many nominal times are not made up for. Of one firing, `MISSED_COUNTED_MAX` are counted."""
    handled_until: Micros
    """All nominal times up to this are among `times`, or missed."""


def due_times(row: ScheduleRow, timetable: Timetable, now: Micros, limit: int) -> DueTimes:
    """Return what is due of a schedule at an instant, at most `limit` times."""
    policy, since = policy_of(row), row.handled_until
    if now <= since:
        return DueTimes(times=(), missed=0, handled_until=since)
    if policy.missed is Missed.ALL:
        return _all_due(policy, timetable, since, now, limit)
    last = last_until(timetable.specs, timetable.zones, now, since=since)
    if last is None:
        return DueTimes(times=(), missed=0, handled_until=since)
    missed = _count(timetable, since, last.at - 1)
    window = policy.window
    if window is None and policy.missed is Missed.NONE:
        window = LATE_AFTER
    if window is not None and now - last.at > window:
        return DueTimes(times=(), missed=missed + 1, handled_until=last.at)
    return DueTimes(times=(_due(last, now),), missed=missed, handled_until=last.at)


def _all_due(
    policy: SchedulePolicy, timetable: Timetable, since: Micros, now: Micros, limit: int
) -> DueTimes:
    """Return the times within the window, oldest first."""
    begins = max(since, now - (_DAY if policy.window is None else policy.window) - 1)
    found = occurrences(timetable.specs, timetable.zones, after=begins, until=now, limit=limit)
    return DueTimes(
        times=tuple(_due(one, now) for one in found),
        missed=_count(timetable, since, begins),
        handled_until=found[-1].at if found else begins,
    )


def _due(one: Occurrence, now: Micros) -> DueTime:
    kind = StartKind.DUE if now - one.at <= LATE_AFTER else StartKind.MADE_UP
    return DueTime(occurrence=one, kind=kind)


def _count(timetable: Timetable, after: Micros, until: Micros) -> int:
    if until <= after:
        return 0
    return count_occurrences(
        timetable.specs, timetable.zones, after=after, until=until, most=MISSED_COUNTED_MAX
    )


def local_text(one: Occurrence) -> str:
    """Return the local time and the zone of a nominal time: `2026-10-25T02:30:00+02:00 Europe/Paris`."""
    shown = (_EPOCH + timedelta(microseconds=one.at)).astimezone(timezone(timedelta(seconds=one.offset)))
    return f"{shown.isoformat()} {one.zone}"


def run_id_of(schedule: str, at: Micros) -> str:
    """Return the id of the run for a nominal time: `nightly/2026-10-25T00:30:00Z`."""
    return f"{schedule}/{utc_text(at)}"


def manual_run_id(schedule: str, unique: str) -> str:
    """Return the id of a run that is triggered by hand."""
    return f"{schedule}/{_MANUAL}/{unique}"


def utc_text(at: Micros) -> str:
    """Return an instant as text: `2026-10-25T00:30:00Z`."""
    return (_EPOCH + timedelta(microseconds=at)).replace(tzinfo=None).isoformat() + "Z"


def jitter_of(row: ScheduleRow, policy: SchedulePolicy, at: Micros) -> Micros:
    """Return by how much the run for a nominal time starts later. The same for every host that computes it."""
    if not policy.jitter:
        return 0
    digest = sha256(f"{row.key}/{at}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % (policy.jitter + 1)
