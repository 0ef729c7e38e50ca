"""Seeds that have found something. They are simulated before all others, always."""

from collections.abc import Mapping
from typing import Final

KEPT: Final[Mapping[int, str]] = {
    16: "a host's clock was ahead of the store's where the question for its time was slow on its way",
    66: "a run with overrides followed a plan without tests: `when` always did its first stage",
    11_458: "what a child gave was refused by the store when its parent was to get it, and was tried for ever",
    30_599: "a host with a clock that was behind set a run back in time, and a sink never got its events",
}
"""What each of them finds if it is put back."""
