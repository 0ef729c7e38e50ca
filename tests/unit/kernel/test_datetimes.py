"""Datetimes and times round-trip with zone, zone name and fold."""

from datetime import UTC, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from holdfast.kernel.values import decode, encode

BERLIN = ZoneInfo("Europe/Berlin")
TWICE = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 10, 25, 2, 30),  # noqa: DTZ001
        datetime(2026, 10, 25, 2, 30, tzinfo=UTC),
        TWICE,
        TWICE.replace(fold=1),
        datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN),  # which does not exist
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2))),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2), "summer")),
        time(2, 30),
        time(2, 30, fold=1),
        time(2, 30, tzinfo=UTC),
    ],
    ids=str,
)
def test_a_moment_comes_back_alike(moment: datetime | time) -> None:
    back = decode(encode(moment, type(moment)), type(moment))
    assert isinstance(back, datetime | time)
    assert (back, type(back), back.fold) == (moment, type(moment), moment.fold)
    assert type(back.tzinfo) is type(moment.tzinfo)
    assert str(back.tzinfo) == str(moment.tzinfo)
    assert back.tzname() == moment.tzname()


def test_sums_go_on_in_the_zone() -> None:
    back = decode(encode(TWICE.replace(hour=1), datetime), datetime)
    assert isinstance(back, datetime)
    assert (back + timedelta(hours=2)).utcoffset() == timedelta(hours=1)
