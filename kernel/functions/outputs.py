"""What a durable function reports: log lines, progress, annotations, events, calls of AI models."""

from typing import Final

from holdfast.kernel.functions.protocol import FunctionOutput, OutputKind
from holdfast.ports.errors import InvalidCommandError

OUTPUTS_MAX: Final = 1_000
"""How many annotations, events and model calls together a function may report in one turn."""


class Outputs:
    """Collects what the function reports, and numbers it within the turn of each row.

    The row and the number name an output. They are the same when a turn is executed again after a crash, so that it is
    stored once; and they are no call numbers, so that a deploy may add and remove outputs anywhere.
    """

    __slots__ = ("_kept", "_number", "_row", "new")

    def __init__(self) -> None:
        self.new: list[FunctionOutput] = []
        """The outputs since the last `take`."""
        self._row = 0
        self._number = 0
        self._kept = 0

    def add(self, row: int, kind: OutputKind, content: object, *, is_live: bool) -> None:
        """Count an output of the turn of a row, and collect it with `is_live`.

        Raises InvalidCommandError for too many in one turn; lines of the log and progress do not count.
        """
        if row != self._row:
            self._row, self._number, self._kept = row, 0, 0
        self._number += 1
        self._kept += kind not in {"log", "progress"}
        if self._kept > OUTPUTS_MAX:
            raise InvalidCommandError(
                f"a workflow makes at most {OUTPUTS_MAX:,} annotations, events and model calls between two awaits"
            )
        if is_live:
            self.new.append(FunctionOutput(row=row, number=self._number, kind=kind, content=content))

    def take(self) -> tuple[FunctionOutput, ...]:
        """Return the outputs since the last call, in order."""
        new = tuple(self.new)
        self.new.clear()
        return new
