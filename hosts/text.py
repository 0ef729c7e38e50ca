"""Formatting for people: durations, instants, and text without characters that databases reject."""

import re
from datetime import UTC, tzinfo
from typing import Final, cast

from holdfast.ports.clock import instant
from holdfast.ports.records.values import Micros

ERROR_MAX: Final = 500
"""The maximum number of characters of an error in a log line."""
_UNPRINTABLE: Final = re.compile(r"[\x00\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with NUL characters and surrogates replaced, which databases can't store."""
    return _UNPRINTABLE.sub("\ufffd", text)


def first_of(error: BaseException) -> BaseException:
    """Return an error itself, or the first one of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def counted(number: int, noun: str) -> str:
    """Return a number with a noun, which is in the plural unless the number is 1: `1 run`, `2,000 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


_SECOND: Final = 1_000_000
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


def format_duration(length: Micros) -> str:
    """Return a duration in at most two units: `3m 12s`, `2d 4h`, `1.4s`, `85ms`."""
    if length < 0:
        return f"-{format_duration(-length)}"
    if length < _SECOND // 1000:
        return "0ms" if length == 0 else "<1ms"
    if length < _SECOND:
        return f"{length // 1000}ms"
    if length < 10 * _SECOND:
        return f"{length // (_SECOND // 10) / 10:.1f}s"
    seconds = length // _SECOND
    if seconds < _MINUTE:
        return f"{seconds}s"
    if seconds < _HOUR:
        return _two(seconds, _MINUTE, "m", 1, "s")
    if seconds < _DAY:
        return _two(seconds, _HOUR, "h", _MINUTE, "m")
    return _two(seconds, _DAY, "d", _HOUR, "h")


def format_instant(at: Micros, zone: tzinfo | None, *, fine: bool = False) -> str:
    """Return an instant as text in a time zone, the local one if None. `fine` adds milliseconds."""
    there = instant(at).astimezone(zone)
    text = there.strftime("%Y-%m-%d %H:%M:%S")
    if fine:
        text = f"{text}.{there.microsecond // 1000:03}"
    return f"{text}Z" if zone is UTC else text


def _two(seconds: int, large: int, large_name: str, small: int, small_name: str) -> str:
    remainder = seconds % large // small
    return f"{seconds // large}{large_name}" + (f" {remainder}{small_name}" if remainder else "")


def one_line(text: str) -> str:
    """Return a text as one line for a log, shortened to `ERROR_MAX` characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= ERROR_MAX else f"{line[:ERROR_MAX]}…"
