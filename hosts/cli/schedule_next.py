"""The command `holdfast schedule next`."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Final

import click
from rich.text import Text

from holdfast.hosts.cli.console import Screen
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.cli.filter_options import moment
from holdfast.hosts.wiring.stores import zone_tables
from holdfast.kernel.calendars.occurrences import (
    ClockChange,
    Occurrence,
    occurrences,
    required_next,
    zones_of,
)
from holdfast.kernel.calendars.patterns import Fold, Match
from holdfast.kernel.calendars.specs import Cron, Gap
from holdfast.ports.clock import instant, micros
from holdfast.ports.records.values import Micros

_COUNT: Final = 5
_COUNT_MAX: Final = 10_000
_LATEST: Final = micros(datetime(9990, 1, 1, tzinfo=UTC))
_PASSES: Final = {ClockChange.FIRST_OF_TWO: "first", ClockChange.SECOND_OF_TWO: "second"}


def _after(text: str) -> datetime | timedelta:
    """Parse an instant with an offset, or an age. Raises BadParameter."""
    found = moment(text)
    if isinstance(found, datetime) and found.tzinfo is None:
        raise click.BadParameter(
            f"{text!r} has no offset from UTC: write {found.isoformat()}Z, or another offset such as +01:00"
        )
    return found


@click.command("next", epilog=exits(Exit.OK, Exit.USAGE))
@click.argument("texts", nargs=-1, required=True, metavar="CRON...")
@click.option(
    "--timezone",
    "zone",
    default="UTC",
    metavar="ZONE",
    help="The zone whose clock is meant, such as Europe/Paris.  [default: UTC]",
)
@click.option(
    "--after",
    type=_after,
    metavar="TIME",
    help="Times later than this: 2026-03-28T00:00:00Z, or an age such as 7d.  [default: now]",
)
@click.option(
    "--count",
    type=click.IntRange(1, _COUNT_MAX),
    default=_COUNT,
    metavar="N",
    help=f"How many times.  [default: {_COUNT}]",
)
@click.option(
    "--gap",
    type=click.Choice(["shift", "skip"]),
    default="shift",
    help="A time that the clock skips is later by the length of the gap, or does not fire.  [default: shift]",
)
@click.option(
    "--fold",
    type=click.Choice(["first", "last", "both"]),
    help="Which pass of a time that the clock repeats fires.  [default: both if every hour is allowed, else first]",
)
@click.option(
    "--days",
    type=click.Choice(["either", "both"]),
    help="Whether one or both of day of month and day of week must match.  [default: either]",
)
@click.option("--json", "as_json", is_flag=True, help="Write a JSON array of instants in UTC, for programs.")
def next_command(
    *,
    texts: tuple[str, ...],
    zone: str,
    after: datetime | timedelta | None,
    count: int,
    gap: Gap,
    fold: Fold | None,
    days: Match | None,
    as_json: bool,
) -> None:
    """Show when cron expressions fire next, in local time and in UTC, and what clock changes do to them.

    CRON has five fields, in quotes: minute, hour, day of month, month, day of week. All times of several expressions
    are shown. Needs neither a store nor your code.
    """
    screen = Screen(as_json=as_json)
    if len(texts) > 1 and not any(" " in text or text.startswith("@") for text in texts):
        raise click.UsageError(
            'put the expression in quotes, as in "30 2 * * *": the shell replaces a bare *'
        )
    specs = [Cron(texts, zone=zone, gap=gap, fold=fold, days=days)]
    tables = zone_tables()
    zones = {name: tables.table(name) for name in zones_of(specs)}
    start = _start(after)
    required_next(specs, zones, start)
    found = occurrences(specs, zones, after=start, until=_LATEST, limit=count)
    if as_json:
        screen.data([_in_utc(one.at) for one in found])
        return
    for one in found:
        screen.write(Text(_line(one)))
    for table in zones.values():
        screen.note(f"(tzdata {table.version})")


def _start(after: datetime | timedelta | None) -> Micros:
    now = datetime.now(UTC)
    try:
        return micros(now - after if isinstance(after, timedelta) else after or now)
    except OverflowError:
        raise click.UsageError(f"--after {after} is out of range") from None


def _in_utc(at: Micros) -> str:
    return f"{instant(at).replace(tzinfo=None).isoformat()}Z"


def _line(one: Occurrence) -> str:
    local = instant(one.at).astimezone(timezone(timedelta(seconds=one.offset)))
    shown = local.isoformat(" ", timespec="minutes")
    remark = _remark(one, local)
    return f"{shown[:16]} {shown[16:]}   {_in_utc(one.at)}" + (f"   {remark}" if remark else "")


def _remark(one: Occurrence, local: datetime) -> str:
    """Return what a clock change does to an occurrence, "" for nothing."""
    if one.change is ClockChange.SHIFTED:
        named = local - timedelta(seconds=one.shift)
        day = "this day" if named.date() == local.date() else f"{named:%Y-%m-%d}"
        return f"{named:%H:%M} does not exist on {day}: {_length(one.shift)} later"
    if one.change in _PASSES:
        return f"{local:%H:%M} comes twice on this day: the {_PASSES[one.change]} time"
    return ""


def _length(seconds: int) -> str:
    if seconds % 3_600:
        return f"{seconds // 60} minutes"
    return "one hour" if seconds == 3_600 else f"{seconds // 3_600} hours"
