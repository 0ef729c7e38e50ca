"""Values that a durable function publishes, by name."""

from holdfast.kernel.functions.protocol import Published


class Publications:
    """Collects published values and counts them by name: rows record the count, so a replay records nothing twice."""

    __slots__ = ("_counts", "_new")

    def __init__(self) -> None:
        self._new: dict[str, Published] = {}
        self._counts: dict[str, int] = {}

    def add(self, name: str, text: str) -> None:
        """Publish a value, given as JSON text."""
        number = self._counts[name] = self._counts.get(name, 0) + 1
        self._new[name] = Published(name=name, number=number, text=text)

    def take(self) -> tuple[Published, ...]:
        """Return the values published since the last call: the latest of each name."""
        new = tuple(self._new.values())
        self._new.clear()
        return new
