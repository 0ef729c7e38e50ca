"""Seeds that have found something. They are simulated before all others, always."""

from collections.abc import Mapping
from typing import Final

KEPT: Final[Mapping[int, str]] = {}
"""What each of them finds if it is put back."""
