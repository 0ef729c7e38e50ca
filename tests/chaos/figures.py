"""Sizes of the chaos tests, and the figures that they report.

Each test has a short form for every day and a full one with the numbers that the contract asks for (`make chaos`). The
figures are printed at the end of the session, pass or fail: a fault that never fired proves nothing.
"""

import os
from typing import Final, TypeVar

T = TypeVar("T")

FULL: Final = os.environ.get("HOLDFAST_CHAOS") == "full"

_reported: list[str] = []


def pick(short: T, full: T) -> T:
    """Return the value for the short or the full form."""
    return full if FULL else short


def report(figures: object) -> None:
    """Report figures under the name of the running test."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2].removesuffix(" (call)")
    _reported.append(f"{test}: {figures}")


def reported() -> list[str]:
    """Return the figures reported so far."""
    return list(_reported)
