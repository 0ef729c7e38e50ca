"""Violations of invariants."""

import attrs
from typing_extensions import override


@attrs.frozen
class Violation:
    """One violation of an invariant."""

    invariant: str
    """Name of the invariant, such as `S7`."""
    where: str
    """Key of the run, or id of the session, slot, rate limit or plan."""
    what: str
    """The observed state, for people."""

    @override
    def __str__(self) -> str:
        """Return the violation as one line."""
        return f"{self.invariant} {self.where}: {self.what}"
