"""Durations and instants in JSON output."""

from typing import Final

from holdfast.ports.clock import instant
from holdfast.ports.records.values import Micros

_SECOND: Final = 1_000_000


def seconds_of(length: Micros | None) -> float | None:
    """Return a duration in seconds."""
    return None if length is None else length / _SECOND


def iso(at: Micros | None) -> str | None:
    """Return an instant in ISO 8601, in UTC."""
    return None if at is None else instant(at).isoformat(timespec="microseconds").replace("+00:00", "Z")
