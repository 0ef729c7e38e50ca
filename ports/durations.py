"""Durations as callers pass them: a timedelta or a number of seconds."""

import math
from datetime import timedelta
from typing import Final, TypeAlias

Duration: TypeAlias = timedelta | float
"""A timedelta, or a number of seconds."""

NO_TIME: Final = timedelta(0)
SHORTEST: Final = timedelta(microseconds=1)
"""The shortest duration above zero: durations are stored in microseconds."""


def length_of(value: object) -> timedelta | None:
    """Return a duration as a timedelta, seconds rounded to whole microseconds; None if the value is not a duration."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    try:
        return timedelta(seconds=value)
    except OverflowError:
        return None


def length_within(value: object, least: timedelta, most: timedelta = timedelta.max) -> timedelta | None:
    """Return a duration as a timedelta; None if it is not a duration between `least` and `most`."""
    length = length_of(value)
    return length if length is not None and least <= length <= most else None


def wanted_length(least: timedelta, most: timedelta = timedelta.max) -> str:
    """Return the allowed durations in words, for a message after `it must be`."""
    if least == SHORTEST:
        bounds = "longer than nothing"
    elif least == NO_TIME:
        bounds = "not negative"
    else:
        bounds = f"of at least {_seconds(least)}"
    if most < timedelta.max:
        bounds += f" and at most {_seconds(most)}"
    return f"a timedelta or a number of seconds, {bounds}"


def _seconds(length: timedelta) -> str:
    number = f"{length.total_seconds():,.6f}".rstrip("0").rstrip(".")
    return f"{number} second" if number == "1" else f"{number} seconds"
