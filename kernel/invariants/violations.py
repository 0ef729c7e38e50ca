"""What is said of an invariant that does not hold."""

import attrs
from typing_extensions import override


@attrs.frozen
class Violation:
    """An invariant that does not hold: which, where (a run, a job, a session), and what was seen."""

    invariant: str
    where: str
    what: str

    @override
    def __str__(self) -> str:
        """Return it in one line."""
        return f"{self.invariant} {self.where}: {self.what}"
