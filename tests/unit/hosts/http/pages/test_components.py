"""Durations, sizes and instants for people."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.hosts.http.pages.components import duration, instant, long_text, shortened, size
from holdfast.hosts.http.pages.html import Html


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-1, "0 s"),
        (0, "0 ms"),
        (0.0042, "4 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (1.25, "1.2 s"),
        (59.9, "59.9 s"),
        (59.96, "1 min"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3_600, "1 h"),
        (3_661, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (86_400 * 400, "400 d"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, expected: str) -> None:
    assert duration(timedelta(seconds=seconds)) == expected


def test_no_duration_is_no_text() -> None:
    assert duration(None) == ""


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (1_500_000, "1.5 MB"), (2_000_000_000, "2.0 GB")],
)
def test_a_size_has_a_unit(number: int, expected: str) -> None:
    assert size(number) == expected


def test_an_instant_is_in_utc() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))
    found = instant(at)
    assert found is not None
    assert found.markup == '<time datetime="2026-01-02T01:04:05.000006Z">2026-01-02 01:04:05Z</time>'
    assert instant(None) is None
    assert instant(at) == instant(at.astimezone(UTC))


def test_a_long_text_is_cut_and_its_size_stays_known() -> None:
    short, long = shortened("x" * 120), shortened("x" * 1_000_000)
    assert short == "x" * 120
    assert isinstance(long, Html)
    assert len(long.markup) < 1_500
    text = long_text("é" * 1_000_000).markup
    assert "The first 16,384 of 1,000,000 characters (2.0 MB)." in text
    assert len(text) < 20_000
