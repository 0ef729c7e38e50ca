"""Bounds of the protocol between a server and its remote workers, which both sides know."""

from datetime import timedelta
from typing import Final

LEASE_MIN: Final = timedelta(seconds=5)
"""The shortest lease of a worker."""
LEASE_MAX: Final = timedelta(hours=1)
"""The longest lease of a worker."""
BEATS: Final = 3
"""How many heartbeats a lease has time for."""
HELD_MAX: Final = 1_000
"""The most tasks that a worker holds."""
CLAIMED_MAX: Final = 100
"""The most tasks of one claim."""
SETTLED_MAX: Final = 100
"""The most tasks whose outcomes are sent together."""
LARGE: Final = 64 * 1024
"""The length in bytes from which the JSON text of an input or output is large, and has an address of its own."""
