"""The sizes of tests: small by default, full in `make test-slow`."""

import os
from typing import Final

IS_FULL: Final = os.environ.get("HOLDFAST_TESTS") == "full"
"""Whether tests marked `sized` do all they can; `make test-slow` runs them so."""


def sized(usual: int, full: int) -> int:
    """Return how much of something a test does, of which it has to see enough either way."""
    return full if IS_FULL else usual
