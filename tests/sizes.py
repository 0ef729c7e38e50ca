"""The sizes of tests: small by default, full in `make test-slow`."""

import os
from typing import Final

IS_FULL: Final = os.environ.get("HOLDFAST_TESTS") == "full"
"""Whether tests marked `sized` run in full, as in `make test-slow`."""


def sized(usual: int, full: int) -> int:
    """Return the usual or the full size of a test; both must be enough to fail on a bug."""
    return full if IS_FULL else usual
