"""Lengths of time as callers give them: a timedelta, or a number of seconds, wherever one is asked for."""

import math
from datetime import timedelta
from typing import Final, TypeAlias

Duration: TypeAlias = timedelta | float
"""A length of time: a timedelta, or a number of seconds."""

NO_TIME: Final = timedelta(0)
SHORTEST: Final = timedelta(microseconds=1)
"""The shortest that is longer than nothing: what is shorter can't be kept."""


def length_of(value: object) -> timedelta | None:
    """Return a length of time as a timedelta; None if it is none. Seconds are rounded to whole microseconds."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    try:
        return timedelta(seconds=value)
    except OverflowError:
        return None


def length_within(value: object, least: timedelta, most: timedelta = timedelta.max) -> timedelta | None:
    """Return a length of time as a timedelta; None if it is none, shorter than `least` or longer than `most`."""
    length = length_of(value)
    return length if length is not None and least <= length <= most else None


def wanted_length(least: timedelta, most: timedelta = timedelta.max) -> str:
    """Return in words what lengths of time are possible: what a message says after `it must be`."""
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
