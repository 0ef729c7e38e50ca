"""How long these tests go on, and what they have counted.

They have a short form for every day, and a full one with the numbers that the contract asks for (`make chaos`). What
they count is shown at the end of the session, whether they pass or not: a fault that never fired has proved nothing.
"""

import os
from typing import Final, TypeVar

T = TypeVar("T")

FULL: Final = os.environ.get("HOLDFAST_CHAOS") == "full"

_reported: list[str] = []


def pick(short: T, full: T) -> T:
    """Return what the form that is asked for takes."""
    return full if FULL else short


def report(figures: object) -> None:
    """Have what was counted shown under the name of the test that runs."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2].removesuffix(" (call)")
    _reported.append(f"{test}: {figures}")


def reported() -> list[str]:
    """Return what was counted so far."""
    return list(_reported)
