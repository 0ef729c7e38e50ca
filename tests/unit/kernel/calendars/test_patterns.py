"""Cron expressions as text: what each means, and what is wrong with the others."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from holdfast.kernel.calendars.occurrences import occurrences
from holdfast.kernel.calendars.patterns import LAST, Pattern, parse_pattern
from holdfast.kernel.calendars.specs import Cron, Every
from holdfast.ports.errors import DefinitionError
from tests.calendars import at, shown

FAR = at("9000-01-01T00:00Z")


def pattern(text: str) -> Pattern:
    return parse_pattern(text, None, None)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("0 0-23 * * *", "0 * * * *"),
        ("0-59 * * * *", "* * * * *"),
        ("*/1 */1 */1 */1 */1", "* * * * *"),
        ("0,15,30,45 2 * * *", "*/15 2 * * *"),
        ("5,5,5 2 * * *", "5 2 * * *"),
        ("0 9-17/4 * * *", "0 9,13,17 * * *"),
        ("0 0 * JAN-MAR *", "0 0 * 1,2,3 *"),
        ("0 0 * jan,Dec *", "0 0 * 1,12 *"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * SUN", "0 0 * * 0"),
        ("0 0 * * MON-FRI", "0 0 * * 1-5"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 * * FRI-SUN", "0 0 * * 0,5,6"),
        ("0 0 * * SAT-SUN", "0 0 * * 6,0"),
        ("0 0 * * 0-6", "0 0 * * *"),
        ("0 0 * * 1-7", "0 0 * * *"),
        ("0 0 * * */2", "0 0 * * 0,2,4,6"),
        ("0 0 ? * MON", "0 0 * * MON"),
        ("0 0 1 * ?", "0 0 1 * *"),
        ("0 0 *,5 * MON", "0 0 * * MON"),
        ("0 0 l * *", "0 0 L * *"),
        ("0 0 * * fri#2", "0 0 * * 5#2"),
        ("0 0 * * FRIL", "0 0 * * 5L"),
        ("0 0 * * SUN#1", "0 0 * * 7#1"),
        ("  0   0\t1 * *  ", "0 0 1 * *"),
        ("*/60 */24 * */12 *", "0 0 * 1 *"),
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@Annually", "0 0 1 1 *"),
    ],
)
def test_two_texts_with_the_same_sets_are_the_same(text: str, same: str) -> None:
    assert pattern(text) == pattern(same)


def test_the_sets_of_an_expression() -> None:
    one = pattern("30 2,14 15,L,LW 2-4 MON#1,FRIL,SUN")

    assert (one.minutes, one.hours, one.months) == ((30,), (2, 14), (2, 3, 4))
    assert (one.days.month_days, one.days.last_day, one.days.last_workday) == ((15,), True, True)
    assert one.days.weekdays == (0,)
    assert one.days.nth_weekdays == ((1, 1), (5, LAST))
    assert one.days.match == "either"
    assert one.times == (9_000, 52_200)


@pytest.mark.parametrize(
    ("text", "days", "expected"),
    [
        (
            "0 0 13 * FRI",
            None,
            "2026-11-06 2026-11-13 2026-11-20 2026-11-27 2026-12-04 2026-12-11 2026-12-13",
        ),
        ("0 0 13 * FRI", "both", "2026-11-13 2027-08-13 2028-10-13"),
        ("0 0 */10 * MON", "either", "2026-11-01 2026-11-02 2026-11-09 2026-11-11 2026-11-16"),
        ("0 0 */10 * MON", "both", "2026-12-21 2027-01-11 2027-02-01"),
        ("0 0 1-31 * MON", "both", "2026-11-02 2026-11-09 2026-11-16"),
        ("0 0 1-31 * MON", "either", "2026-11-01 2026-11-02 2026-11-03"),
        ("0 0 1-31 * 0-6", None, "2026-11-01 2026-11-02 2026-11-03"),
        ("0 0 1-7 * MON", "both", "2026-11-02 2026-12-07 2027-01-04"),
        ("0 0 L * FRI", "both", "2027-04-30 2027-12-31"),
        ("0 0 LW * *", None, "2026-11-30 2026-12-31 2027-01-29 2027-02-26"),
        ("0 0 15,L * *", None, "2026-11-15 2026-11-30 2026-12-15 2026-12-31 2027-01-15"),
        ("0 0 * * FRI#2,FRIL", None, "2026-11-13 2026-11-27 2026-12-11 2026-12-25"),
        ("0 0 * * WED#5", None, "2026-12-30 2027-03-31"),
        ("0 0 29 2 MON", "both", "2044-02-29 2072-02-29 2112-02-29"),
    ],
)
def test_the_days_of_an_expression(text: str, days: Any, expected: str) -> None:
    cron = Cron(text, days=days)

    found = occurrences([cron], {}, after=at("2026-10-31T12:00Z"), until=FAR, limit=len(expected.split()))

    assert [shown(one.at)[:10] for one in found] == expected.split()


FIVE = "there are five: minute, hour, day of month, month, day of week"


@pytest.mark.parametrize(
    ("text", "problem", "advice"),
    [
        ("", f"has 0 fields, and {FIVE}", "write all of them, as in '30 2 * * *'"),
        ("daily", f"has 1 field, and {FIVE}", "write all of them"),
        ("0 0 1 *", f"has 4 fields, and {FIVE}", "write all of them"),
        (
            "0 30 2 * * *",
            f"has 6 fields, and {FIVE}",
            "as in '30 2 * * *'; for seconds, use Every(timedelta(sec",
        ),
        (
            "*/30 * * * * *",
            f"has 6 fields, and {FIVE}",
            "leave out the seconds and the year, as in '* * * * *'",
        ),
        ("30 2 * * * 2026", f"has 6 fields, and {FIVE}", "as in '30 2 * * *'"),
        ("0 0 12 1 1 ? 2026", f"has 7 fields, and {FIVE}", "as in '0 12 1 1 ?'"),
        ("0 0 1 * * * * *", f"has 8 fields, and {FIVE}", "write all of them"),
        ("CRON_TZ=Europe/Paris 0 2 * * *", "begins with a time zone", "pass it as zone="),
        ("@every 5m", "is not cron", "use Every(timedelta(hours=6))"),
        ("@reboot", "has no time", "start a run in your program"),
        (
            "@fortnightly",
            "is not known",
            "write one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly",
        ),
        ("60 * * * *", "minute '60' is out of range", "write 0 to 59"),
        ("* 24 * * *", "hour '24' is out of range", "write 0 to 23"),
        ("0 0 0 * *", "day of month '0' is out of range", "write 1 to 31"),
        ("0 0 32 * *", "day of month '32' is out of range", "write 1 to 31"),
        ("0 0 * 0 *", "month '0' is out of range", "write 1 to 12, or JAN to DEC"),
        ("0 0 * 13 *", "month '13' is out of range", "write 1 to 12, or JAN to DEC"),
        ("0 0 * * 8", "day of week '8' is out of range", "write 0 to 7, or SUN to SAT"),
        ("0 0 * * 99999", "day of week '99999' can't be read", "write 0 to 7, or SUN to SAT"),
        ("-1 * * * *", "minute '-1' can't be read", "write 0 to 59"),
        ("1.5 * * * *", "minute '1.5' can't be read", "write 0 to 59"),
        ("٣ * * * *", "minute '٣' can't be read", "write 0 to 59"),
        ("x * * * *", "minute 'X' can't be read", "write 0 to 59"),
        ("0 0 * * MONDAY", "day of week 'MONDAY' can't be read", "write MON"),
        ("0 0 * JUNE *", "month 'JUNE' can't be read", "write JUN"),
        ("0 0 * MON *", "month 'MON' can't be read", "write 1 to 12, or JAN to DEC"),
        ("H * * * *", "minute 'H' leaves the choice to a program", "write a number, 0 to 59"),
        ("H(0-29)/10 * * * *", "minute 'H(0-29)/10' leaves the choice", "write a number, 0 to 59"),
        ("0 22-2 * * *", "hour '22-2' runs backwards", "write 22-23,0-2"),
        ("50-10 * * * *", "minute '50-10' runs backwards", "write 50-59,0-10"),
        ("0 0 * * FRI-MON", "day of week 'FRI-MON' runs backwards", "write FRI-6,0-MON"),
        ("0 22-2/2 * * *", "hour '22-2/2' runs backwards", "list its values, separated by commas"),
        ("0 0 * NOV-FEB *", "month 'NOV-FEB' runs backwards", "write NOV-12,1-FEB"),
        ("5/15 * * * *", "minute '5/15' has a step without a range", "write 5-59/15"),
        ("0 0 * * 1/2", "day of week '1/2' has a step without a range", "write 1-6/2"),
        ("*/0 * * * *", "minute '*/0' has no possible step", "write a step from 1 to 60"),
        (
            "*/90 * * * *",
            "minute '*/90' has no possible step",
            "or Every(timedelta(minutes=90)) for a length",
        ),
        ("0 */36 * * *", "hour '*/36' has no possible step", "or Every(timedelta(hours=36)) for a length"),
        ("*/x * * * *", "minute '*/X' has no possible step", "write a step from 1 to 60"),
        ("*/ * * * *", "minute '*/' has no possible step", "write a step from 1 to 60"),
        ("1, * * * *", "minute '1,' has an empty part", "remove the extra comma"),
        ("1- * * * *", "minute '1-' can't be read", "write 0 to 59"),
        ("0 0 15W * *", "day of month '15W' is not supported", "of workdays, only LW can be written"),
        ("0 0 L-3 * *", "day of month 'L-3' is not supported", "write L alone for the last day"),
        ("0 0 * * L", "day of week 'L' names no weekday", "write SAT, or FRIL for the last Friday"),
        (
            "0 0 * * FRI#6",
            "day of week 'FRI#6' has no ordinal from 1 to 5",
            "write FRI#2 for the second Friday",
        ),
        ("0 0 * * FRI#", "day of week 'FRI#' has no ordinal", "write FRI#2 for the second Friday"),
        ("0 0 * * #2", "day of week '#2' can't be read", "write 0 to 7, or SUN to SAT"),
        (
            "0 0 */2 * MON",
            "has a day of month and a day of week, and '*/2' is read as either",
            "add days='either', for days",
        ),
        (
            "0 0 1 * */2",
            "has a day of month and a day of week, and '*/2' is read as either",
            "or days='both'",
        ),
        (
            "0 0 1-31 * MON",
            "has a day of month and a day of week, and '1-31' allows every day",
            "write * instead",
        ),
        (
            "0 0 13 * 0-6",
            "has a day of month and a day of week, and '0-6' allows every day",
            "or add days='either'",
        ),
        ("0 0 30 2 *", "never fires: no such day comes within 50 years", "correct its day or month"),
        ("0 0 31 4,6,9,11 *", "never fires", "correct its day or month"),
    ],
)
def test_a_wrong_expression_is_refused_with_what_to_write_instead(
    text: str, problem: str, advice: str
) -> None:
    with pytest.raises(DefinitionError) as raised:
        Cron(text)

    message = str(raised.value)
    assert message.startswith(f"Cron: {text!r} {problem}")
    assert advice in message.partition(problem)[2]


def test_days_that_never_meet_are_refused() -> None:
    with pytest.raises(DefinitionError, match="never fires"):
        Cron("0 0 8 * MON#1", days="both")


def test_every_suggestion_of_a_range_can_be_read() -> None:
    for text in ("0 22-23,0-2 * * *", "0 0 * * FRI-6,0-MON", "0 0 * NOV-12,1-FEB *", "5-59/15 * * * *"):
        Cron(text)


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001  # it has to be refused
AWARE = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (5, {}, r"text is 5; it must be a cron expression, or a list of 1 to 50 of them"),
        ([], {}, r"text is \[\]; it must be a cron expression, or a list of 1 to 50 of them"),
        (["0 0 * * *"] * 51, {}, r"a list of 1 to 50 of them"),
        ([5], {}, r"5 is not an expression; write a string such as '30 2 \* \* \*'"),
        ("0," * 500 + "0 * * * *", {}, r"has 1,009 characters, and at most 1,000 are allowed"),
        (b"0 0 * * *", {}, r"it must be a cron expression"),
        (
            "0 0 * * *",
            {"zone": ""},
            r"zone is ''; it must be the name of a time zone, such as 'Europe/Paris'",
        ),
        ("0 0 * * *", {"zone": "../etc"}, r"zone is '\.\./etc'; it must be the name of a time zone"),
        ("0 0 * * *", {"zone": "/Europe/Paris"}, r"it must be the name of a time zone"),
        ("0 0 * * *", {"zone": "+01:00"}, r"it must be the name of a time zone"),
        ("0 0 * * *", {"zone": "x" * 101}, r"it must be the name of a time zone"),
        ("0 0 * * *", {"zone": None}, r"zone is None; it must be the name of a time zone"),
        ("0 0 * * *", {"zone": UTC}, r"it must be the name of a time zone"),
        ("0 0 * * *", {"zone": ZoneInfo("Europe/Paris")}, r"; write zone='Europe/Paris'$"),
        ("0 0 * * *", {"gap": "later"}, r"gap is 'later'; it must be 'shift' or 'skip'"),
        ("0 0 * * *", {"fold": "second"}, r"fold is 'second'; it must be 'first', 'last', 'both' or None"),
        ("0 0 * * *", {"days": "or"}, r"days is 'or'; it must be 'either', 'both' or None"),
        (
            "0 0 * * *",
            {"except_on": "2026-12-25"},
            r"it must be a list of dates, such as \[date\(2026, 12, 25\)\]",
        ),
        (
            "0 0 * * *",
            {"except_on": ["2026-12-25"]},
            r"except_on is '2026-12-25'; it must be a list of dates",
        ),
        ("0 0 * * *", {"except_on": [AWARE]}, r"a list of dates, .* without times"),
        ("0 0 * * *", {"except_on": [date(1969, 1, 1)]}, r"it must be dates from 1970 to 9989"),
        (
            "0 0 * * *",
            {"except_on": [date(2026, 1, 1) + timedelta(days=one) for one in range(1_001)]},
            r"except_on has 1,001 dates, and at most 1,000 are allowed",
        ),
        (
            "0 0 * * *",
            {"start": NAIVE},
            r"start is datetime.*; it must be an aware datetime, such as datetime.now",
        ),
        ("0 0 * * *", {"end": NAIVE}, r"end is datetime.*; it must be an aware datetime"),
        ("0 0 * * *", {"end": date(2026, 1, 1)}, r"end is datetime.date\(2026, 1, 1\); it must be an aware"),
        (
            "0 0 * * *",
            {"start": datetime(1969, 1, 1, tzinfo=UTC)},
            r"start is .*; it must be from 1970 to 9989",
        ),
        ("0 0 * * *", {"start": AWARE, "end": AWARE}, r"end is .* not after start, .*; give a later end"),
    ],
)
def test_wrong_options_of_cron_are_refused(text: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=rf"^Cron: .*{message}"):
        Cron(text, **options)


@pytest.mark.parametrize(
    ("length", "options", "message"),
    [
        (
            0,
            {},
            r"length is datetime.timedelta\(0\); it must be a timedelta or a number of seconds, of at least 1 sec",
        ),
        (0.5, {}, r"of at least 1 second.*; for times of the clock, use Cron"),
        (-60, {}, r"it must be a timedelta or a number of seconds"),
        (timedelta(days=40_000), {}, r"of 100 years at most"),
        ("6h", {}, r"length is '6h'; it must be a timedelta or a number of seconds"),
        (True, {}, r"length is True; it must be a timedelta or a number of seconds"),
        (60, {"anchor": NAIVE}, r"anchor is .*; it must be an aware datetime"),
        (60, {"anchor": datetime(1969, 1, 1, tzinfo=UTC)}, r"anchor is .*; it must be from 1970 to 9989"),
        (60, {"start": NAIVE}, r"start is .*; it must be an aware datetime"),
        (60, {"start": AWARE, "end": AWARE}, r"end is .* not after start, .*; give a later end"),
    ],
)
def test_wrong_options_of_every_are_refused(length: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=rf"^Every: .*{message}"):
        Every(length, **options)


def test_a_list_of_texts_is_their_union_and_keeps_what_was_written() -> None:
    cron = Cron(["0 8 * * *", "@daily", "00 00 * * *"])

    assert cron.text == ("0 8 * * *", "@daily", "00 00 * * *")
    assert cron.patterns == (pattern("0 8 * * *"), pattern("0 0 * * *"))


def test_equal_values_are_equal() -> None:
    assert Cron("0 8 * * *") == Cron(["0 8 * * *"])
    assert hash(Cron("0 8 * * *")) == hash(Cron(("0 8 * * *",)))
    assert Cron("0 8 * * *") != Cron("0 8 * * *", zone="Europe/Paris")
    assert Every(60) == Every(timedelta(minutes=1))
    assert Cron("0 8 * * *", except_on=[date(2026, 1, 2), date(2026, 1, 1), date(2026, 1, 2)]).except_on == (
        date(2026, 1, 1),
        date(2026, 1, 2),
    )
