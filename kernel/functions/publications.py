"""What a function shows to the world: by name, the last value of each."""

from holdfast.kernel.functions.protocol import Published


class Publications:
    """Counts what is published under each name: what is recorded of it says how far that is."""

    __slots__ = ("_counts", "_new")

    def __init__(self) -> None:
        self._new: dict[str, Published] = {}
        self._counts: dict[str, int] = {}

    def add(self, name: str, text: str) -> None:
        """Take in a value: its JSON text."""
        number = self._counts[name] = self._counts.get(name, 0) + 1
        self._new[name] = Published(name=name, number=number, text=text)

    def take(self) -> tuple[Published, ...]:
        """Return what was published since this was called last: of each name the last."""
        new = tuple(self._new.values())
        self._new.clear()
        return new
