"""Durations: a timedelta, or a number of seconds."""

import math
from datetime import timedelta

import pytest

from holdfast.ports.durations import NO_TIME, SHORTEST, length_of, length_within, wanted_length

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("given", "length"),
    [
        (SECOND, SECOND),
        (1, SECOND),
        (1.5, timedelta(milliseconds=1500)),
        (-1, -SECOND),
        (0, NO_TIME),
        (1e-9, NO_TIME),
    ],
)
def test_a_length_is_a_timedelta_or_a_number_of_seconds(given: object, length: timedelta) -> None:
    assert length_of(given) == length


@pytest.mark.parametrize("given", [None, True, False, "1", b"1", math.nan, math.inf, 1e300, [1], object()])
def test_what_is_no_length_is_none(given: object) -> None:
    assert length_of(given) is None
    assert length_within(given, timedelta.min) is None


def test_bounds_belong_to_what_is_possible() -> None:
    assert length_within(1, SECOND, SECOND) == SECOND
    assert length_within(0.999999, SECOND) is None
    assert length_within(1.000001, NO_TIME, SECOND) is None
    assert length_within(0, SHORTEST) is None


def test_what_is_wanted_is_said_in_words() -> None:
    assert wanted_length(SHORTEST) == "a timedelta or a number of seconds, longer than nothing"
    assert wanted_length(NO_TIME) == "a timedelta or a number of seconds, not negative"
    assert wanted_length(SECOND) == "a timedelta or a number of seconds, of at least 1 second"
    assert wanted_length(NO_TIME, timedelta(hours=1)).endswith("not negative and at most 3,600 seconds")
