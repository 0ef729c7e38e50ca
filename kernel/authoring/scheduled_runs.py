"""Which schedule started a run, and for which time."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Literal, TypeAlias

import attrs

from holdfast.kernel.schedules.row_data import scheduled_start
from holdfast.ports.clock import instant

StartKindName: TypeAlias = Literal["due", "made_up", "backfill", "manual"]


@attrs.frozen(kw_only=True)
class Scheduled:
    """Which schedule started a run, and for which time."""

    name: str
    """Name of the schedule."""
    at: datetime
    """The nominal time, aware, with the offset that the schedule's zone had then; of a triggered run, in UTC, when it
    was triggered."""
    zone: str
    """Name of the zone of `at`."""
    previous: datetime | None
    """The nominal time of the run that the schedule started before, in UTC; None if there was none."""
    kind: StartKindName
    """Why it was started: its time was "due"; a missed time was "made_up"; a "backfill" covered it; or it was triggered
    by hand, "manual"."""


def scheduled_from(text: str | None) -> Scheduled | None:
    """Return which schedule started a run, of the text in its row; None if none did."""
    start = scheduled_start(text)
    if start is None:
        return None
    zone = UTC if start.zone == "UTC" else timezone(timedelta(seconds=start.offset))
    return Scheduled(
        name=start.schedule,
        at=instant(start.at).astimezone(zone),
        zone=start.zone,
        previous=None if start.previous is None else instant(start.previous),
        kind=start.kind.value,
    )
