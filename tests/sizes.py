"""The sizes of tests: small by default, full in `make test-full`."""

import os
from typing import Final

import pytest

IS_FULL: Final = os.environ.get("HOLDFAST_TESTS") == "full"
"""Whether tests marked `sized` run in full, as in `make test-full`."""


only_full: Final = pytest.mark.skipif(not IS_FULL, reason="make test-full runs it")
"""Marks a test of minutes that shows more of the same than a shorter one, which always runs."""


STORES: Final = (
    "sqlite",
    pytest.param("postgres", marks=[pytest.mark.service, pytest.mark.other_store]),
    *([pytest.param("memory", marks=pytest.mark.other_store)] if IS_FULL else []),
)
"""The stores on which tests of hosts run. What the memory store promises is held by the conformance suite."""


def sized(usual: int, full: int) -> int:
    """Return the usual or the full size of a test; both must be enough to fail on a bug."""
    return full if IS_FULL else usual
