"""`holdfast schedule next`: when a cron expression fires, without a store and without the user's code."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.hosts.cli.exit_codes import Exit
from tests.calendars import TZDATA
from tests.unit.hosts.cli.conftest import CommandLine

SPRING = ("--after", "2026-03-28T00:00:00Z")


def test_the_next_times_are_shown_with_what_a_clock_change_does(holdfast: CommandLine) -> None:
    answer = holdfast("schedule", "next", "30 2 * * *", "--timezone", "Europe/Paris", *SPRING, "--count", "3")

    assert answer.code == Exit.OK
    assert answer.out.splitlines() == [
        "2026-03-28 02:30 +01:00   2026-03-28T01:30:00Z",
        "2026-03-29 03:30 +02:00   2026-03-29T01:30:00Z   02:30 does not exist on this day: one hour later",
        "2026-03-30 02:30 +02:00   2026-03-30T00:30:00Z",
    ]
    assert answer.err == f"(tzdata {TZDATA.version})\n"


def test_json_is_an_array_of_instants_in_utc(holdfast: CommandLine) -> None:
    answer = holdfast(
        "schedule", "next", "30 2 * * *", "--timezone", "Europe/Berlin", *SPRING, "--count", "3", "--json"
    )

    assert (answer.code, answer.err) == (Exit.OK, "")
    assert answer.json == ["2026-03-28T01:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"]


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ("30 2 * * *", "--timezone", "Europe/Paris", "--gap", "skip", "--after", "2026-03-28T12:00Z"),
            ["2026-03-30 02:30 +02:00   2026-03-30T00:30:00Z"],
        ),
        (
            ("30 2 * * *", "--timezone", "Europe/Paris", "--fold", "both", "--after", "2026-10-24T12:00Z"),
            [
                "2026-10-25 02:30 +02:00   2026-10-25T00:30:00Z   02:30 comes twice on this day: the first time",
                "2026-10-25 02:30 +01:00   2026-10-25T01:30:00Z   02:30 comes twice on this day: the second time",
            ],
        ),
        (
            ("30 2 * * *", "--timezone", "Europe/Paris", "--fold", "last", "--after", "2026-10-24T12:00Z"),
            [
                "2026-10-25 02:30 +01:00   2026-10-25T01:30:00Z   02:30 comes twice on this day: the second time"
            ],
        ),
        (
            ("15 2 * * *", "--timezone", "Australia/Lord_Howe", "--after", "2026-10-03T00:00Z"),
            [
                "2026-10-04 02:45 +11:00   2026-10-03T15:45:00Z   02:15 does not exist on this day: 30 minutes later"
            ],
        ),
        (
            ("30 2 * * *", "--timezone", "Antarctica/Troll", "--after", "2026-03-28T12:00Z"),
            [
                "2026-03-29 04:30 +02:00   2026-03-29T02:30:00Z   02:30 does not exist on this day: 2 hours later"
            ],
        ),
        (
            ("30 23 * * SAT", "--timezone", "America/Nuuk", "--after", "2026-03-28T00:00Z"),
            [
                "2026-03-29 00:30 -01:00   2026-03-29T01:30:00Z   23:30 does not exist on 2026-03-28: one hour later"
            ],
        ),
        (
            ("0 0 */10 * MON", "--days", "both", "--after", "2026-01-01T00:00Z"),
            ["2026-05-11 00:00 +00:00   2026-05-11T00:00:00Z"],
        ),
        (
            ("0 12 * * *", "@hourly", "--after", "2026-01-01T11:30+01:00"),
            [
                "2026-01-01 11:00 +00:00   2026-01-01T11:00:00Z",
                "2026-01-01 12:00 +00:00   2026-01-01T12:00:00Z",
                "2026-01-01 13:00 +00:00   2026-01-01T13:00:00Z",
            ],
        ),
    ],
)
def test_options(holdfast: CommandLine, arguments: tuple[str, ...], lines: list[str]) -> None:
    answer = holdfast("schedule", "next", *arguments, "--count", str(len(lines)))

    assert (answer.code, answer.out.splitlines()) == (Exit.OK, lines)


def test_by_default_five_times_from_now_on_in_utc(holdfast: CommandLine) -> None:
    before = datetime.now(UTC)
    answer = holdfast("schedule", "next", "* * * * *", "--json")

    found = [datetime.fromisoformat(str(one)) for one in answer.json]
    assert len(found) == 5
    assert before < found[0] < before + timedelta(minutes=2)
    aged = holdfast("schedule", "next", "* * * * *", "--json", "--after", "1d")
    assert datetime.fromisoformat(str(aged.json[0])) < before - timedelta(hours=23)


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (
            ("0 0 30 2 *",),
            "definition",
            "never fires: no such day comes within 50 years; correct its day or month",
        ),
        (
            ("0 30 2 * * *",),
            "definition",
            "as in '30 2 * * *'; for seconds, use Every(timedelta(seconds=30))",
        ),
        (
            ("30 2 * 3 SUNL", "--timezone", "Europe/Paris", "--gap", "skip"),
            "definition",
            "these times never fire",
        ),
        (("0 0 * * *", "--timezone", "Europe/Pariss"), "unknown_zone", "did you mean 'Europe/Paris'?"),
        (
            ("0 0 * * *", "--timezone", ""),
            "definition",
            "it must be the name of a time zone, such as 'Europe/Paris'",
        ),
        (
            ("0 0 * * *", "--after", "2026-01-01"),
            "usage",
            "has no offset from UTC: write 2026-01-01T00:00:00Z",
        ),
        (("0 0 * * *", "--after", "soon"), "usage", "'soon' is not a time: write 2026-11-21T08:00Z"),
        (("0 0 * * *", "--after", "99999999w"), "usage", "is out of range"),
        (("0 0 * * *", "--count", "0"), "usage", "0 is not in the range"),
        (("0", "0", "README.md", "docs", "MON"), "usage", 'put the expression in quotes, as in "30 2 * * *"'),
        ((), "usage", "Missing argument 'CRON...'"),
    ],
)
def test_bad_input_is_refused(
    holdfast: CommandLine, arguments: tuple[str, ...], code: str, problem: str
) -> None:
    answer = holdfast("schedule", "next", *arguments, "--json")

    assert (answer.code, answer.out) == (Exit.USAGE, "")
    assert f'"code":"{code}"' in answer.err
    assert problem in answer.err.replace('\\"', '"')


@pytest.mark.slow
def test_it_needs_no_store_and_without_tzdata_says_what_to_install() -> None:
    program = """
import sys
sys.modules["tzdata"] = None
from holdfast.hosts.cli.main import main
print(main(["schedule", "next", "0 0 * * *", "--after", "2026-01-01T00:00Z", "--count", "1"]))
print(main(["schedule", "next", "0 0 * * *", "--timezone", "Europe/Paris"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stdout.splitlines() == ["2026-01-02 00:00 +00:00   2026-01-02T00:00:00Z", "0", "2"]
    assert 'time zones other than UTC need tzdata: pip install "holdfast[schedules]"' in done.stderr
