"""What a durable function reports: log lines, progress, annotations, events, calls of AI models."""

from holdfast.kernel.functions.protocol import FunctionOutput, OutputKind


class Outputs:
    """Collects what the function reports, and numbers it within the turn of each row.

    The row and the number name an output. They are the same when a turn is executed again after a crash, so that it is
    stored once; and they are no call numbers, so that a deploy may add and remove outputs anywhere.
    """

    __slots__ = ("_new", "_number", "_row")

    def __init__(self) -> None:
        self._new: list[FunctionOutput] = []
        self._row = 0
        self._number = 0

    def add(self, row: int, kind: OutputKind, content: object) -> None:
        """Add an output of the turn of a row."""
        self._number = self._number + 1 if row == self._row else 1
        self._row = row
        self._new.append(FunctionOutput(row=row, number=self._number, kind=kind, content=content))

    def take(self) -> tuple[FunctionOutput, ...]:
        """Return the outputs since the last call, in order."""
        new = tuple(self._new)
        self._new.clear()
        return new
