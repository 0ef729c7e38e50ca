"""The tables of time zones, as they are read from the package tzdata."""

import struct
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from zoneinfo import ZoneInfo

import pytest

from holdfast.adapters.system.zones import TzdataZones, parse_rule, read_table
from holdfast.kernel.calendars.zone_periods import period_at
from holdfast.ports.errors import InvalidArgumentError, UnknownZoneError
from holdfast.ports.zones import UTC_TABLE, DayOfYear, WeekdayOfMonth, YearlyRule, ZoneTable, ZoneTables
from tests.calendars import TZDATA, at, zone_names
from tests.sizes import sized

UTC_SECONDS = at("2026-01-01T00:00Z") // 1_000_000


def tzif(times: Sequence[int], offsets: Sequence[int], footer: str, *, leap_seconds: int = 0) -> bytes:
    """Return a TZif file with one type for each transition, and one before."""

    def part(size: str, times: Sequence[int], offsets: Sequence[int], leap_seconds: int) -> bytes:
        header = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, leap_seconds, len(times), len(offsets), 4)
        return b"".join(
            (
                header,
                struct.pack(f">{len(times)}{size}", *times),
                bytes(range(1, len(times) + 1)),
                *(struct.pack(">lBB", offset, 0, 0) for offset in offsets),
                b"LMT\0",
                bytes(leap_seconds * (12 if size == "q" else 8)),
            )
        )

    return part("l", [0], [0, 0], 0) + part("q", times, offsets, leap_seconds) + f"\n{footer}\n".encode()


def test_the_version_is_that_of_the_data() -> None:
    zones: ZoneTables = TzdataZones()

    assert zones.version == files("tzdata").joinpath("zoneinfo", "tzdata.zi").read_text()[10:15]
    assert zones.table("Europe/Paris").version == zones.version


def test_a_table_is_read_once() -> None:
    zones = TzdataZones()

    assert zones.table("Europe/Paris") is zones.table("Europe/Paris")


def test_a_link_is_a_zone() -> None:
    link, zone = TZDATA.table("Asia/Calcutta"), TZDATA.table("Asia/Kolkata")

    assert (link.transitions, link.offsets, link.rule) == (zone.transitions, zone.offsets, zone.rule)
    assert link.name == "Asia/Calcutta"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("europe/paris", "; did you mean 'Europe/Paris'?"),
        ("New York", "; did you mean 'America/New_York'?"),
        ("Europe/Pariss", "; did you mean 'Europe/Paris'"),
        ("utc", "; did you mean 'UTC'?"),
        ("../../etc/passwd", "; names are those of the IANA database, such as 'Europe/Paris'"),
        ("", "; names are those of the IANA database, such as 'Europe/Paris'"),
    ],
)
def test_the_error_for_an_unknown_zone_names_similar_ones(name: str, advice: str) -> None:
    with pytest.raises(UnknownZoneError) as raised:
        TZDATA.table(name)

    assert str(raised.value).startswith(f"there is no time zone {name!r} in tzdata {TZDATA.version}{advice}")
    assert isinstance(raised.value, InvalidArgumentError)
    assert raised.value.argument == "zone"


def test_without_the_package_there_is_utc_and_for_others_what_to_install() -> None:
    program = """
import sys
sys.modules["tzdata"] = None
from holdfast.adapters.system.zones import TzdataZones
print(TzdataZones().table("UTC").name)
try:
    TzdataZones().table("Europe/Paris")
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "UTC",
        'time zones other than UTC need tzdata: pip install "holdfast[schedules]"',
    ]


def test_nothing_is_read_before_a_zone_is_needed() -> None:
    program = """
import sys
from holdfast.adapters.system.zones import TzdataZones
TzdataZones().table("UTC")
print("tzdata" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stdout == "False\n"


@pytest.mark.slow
@pytest.mark.sized
def test_every_zone_has_the_offsets_that_zoneinfo_has() -> None:
    """At each change from 1970 on, a second before it, and in each month to the year 2100."""
    names = zone_names()
    for name in names[:: sized(12, 1)]:
        table = TZDATA.table(name)
        with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
            zone = ZoneInfo.from_file(data)
        seconds = {one for change in table.transitions if change > 0 for one in (change - 1, change)}
        seconds.update(range(0, at("2100-01-01T00:00Z") // 1_000_000, 2_592_000))
        for second in seconds:
            expected = (
                (datetime.fromtimestamp(0, UTC) + timedelta(seconds=second)).astimezone(zone).utcoffset()
            )
            assert timedelta(seconds=period_at(table, second).offset) == expected, (name, second)


def test_no_zone_changes_twice_within_the_length_of_a_change() -> None:
    """The evaluator relies on it: a gap is over before the next change."""
    for name in zone_names():
        table = TZDATA.table(name)
        changes = [
            abs(after - before) for before, after in zip(table.offsets, table.offsets[1:], strict=False)
        ]
        for one, other, *lengths in zip(
            table.transitions, table.transitions[1:], changes, changes[1:], strict=False
        ):
            assert other - one > max(lengths), name


def test_a_transition_that_changes_no_offset_is_left_out() -> None:
    table = read_table("Test/Zone", "2026f", tzif([100, 200, 300], [0, 3_600, 3_600, 0], ""))

    assert table == ZoneTable("Test/Zone", "2026f", (100, 300), (0, 3_600, 0))


def test_the_last_transition_is_kept_because_the_rule_holds_from_then_on() -> None:
    """America/Grand_Turk was at -4 for years before it took up the rule of New York in March 2018."""
    table = read_table(
        "Test/Zone", "2026f", tzif([100, 200], [0, 3_600, 3_600], "CET-1CEST,M3.5.0,M10.5.0/3")
    )

    assert table.transitions == (100, 200)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"TZif" + bytes(40), "not in the format TZif of version 2"),
        (b"ZONE" + bytes(40), "not in the format TZif of version 2"),
        (tzif([], [0], "", leap_seconds=1), "counts leap seconds"),
        (tzif([], [0], "CET-1CEST"), "the rule 'CET-1CEST' of a time zone can't be read"),
    ],
)
def test_a_file_in_another_format_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_table("Test/Zone", "2026f", data)


@pytest.mark.parametrize(
    ("footer", "rule"),
    [
        ("", None),
        ("<+0545>-5:45", None),
        (
            "CET-1CEST,M3.5.0,M10.5.0/3",
            YearlyRule(3_600, 7_200, WeekdayOfMonth(3, 5, 0, 7_200), WeekdayOfMonth(10, 5, 0, 10_800)),
        ),
        (
            "IST-1GMT0,M10.5.0,M3.5.0/1",
            YearlyRule(3_600, 0, WeekdayOfMonth(10, 5, 0, 7_200), WeekdayOfMonth(3, 5, 0, 3_600)),
        ),
        (
            "<-02>2<-01>,M3.5.0/-1,M10.5.0/0",
            YearlyRule(-7_200, -3_600, WeekdayOfMonth(3, 5, 0, -3_600), WeekdayOfMonth(10, 5, 0, 0)),
        ),
        (
            "<+1245>-12:45<+1345>,M9.5.0/2:45,M4.1.0/3:45",
            YearlyRule(45_900, 49_500, WeekdayOfMonth(9, 5, 0, 9_900), WeekdayOfMonth(4, 1, 0, 13_500)),
        ),
        (
            "AAA3BBB,J60/0,300/26:30:15",
            YearlyRule(
                -10_800,
                -7_200,
                DayOfYear(59, counts_leap_day=False, time=0),
                DayOfYear(300, counts_leap_day=True, time=95_415),
            ),
        ),
        ("XXX3EDT4,0/0,J365/23", None),
    ],
)
def test_the_rule_after_the_last_transition(footer: str, rule: YearlyRule | None) -> None:
    assert parse_rule(footer) == rule


def test_days_of_the_year_are_counted_with_and_without_february_29() -> None:
    rule = YearlyRule(
        0,
        3_600,
        DayOfYear(59, counts_leap_day=False, time=0),
        DayOfYear(300, counts_leap_day=True, time=3_600),
    )
    table = ZoneTable("Test/Zone", "2026f", (), (0,), rule)

    changes: list[str] = []
    second = UTC_SECONDS
    for _ in range(6):
        second = period_at(table, second).end
        changes.append(datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%MZ"))

    assert changes == [
        "2026-03-01T00:00Z",
        "2026-10-28T00:00Z",
        "2027-03-01T00:00Z",
        "2027-10-28T00:00Z",
        "2028-03-01T00:00Z",
        "2028-10-27T00:00Z",
    ]


def test_utc_has_one_period() -> None:
    period = period_at(UTC_TABLE, UTC_SECONDS)

    assert period.begin < -(10**15) < 10**15 < period.end
    assert (period.before, period.offset, period.after) == (0, 0, 0)


def test_a_table_with_unequal_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="1 transitions and 1 offsets"):
        ZoneTable("Test/Zone", "2026f", (1,), (0,))
    with pytest.raises(ValueError, match="out of order"):
        ZoneTable("Test/Zone", "2026f", (2, 1), (0, 1, 0))
