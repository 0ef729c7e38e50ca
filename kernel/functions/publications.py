"""What a function shows to the world: by name, the last value of each."""

from holdfast.kernel.functions.asked import Published


class Publications:
    """Counts what is published under each name: what is recorded of it says how far that is."""

    def __init__(self) -> None:
        self.new: dict[str, Published] = {}
        """What was published since this was emptied: of each name the last."""
        self._counts: dict[str, int] = {}

    def add(self, name: str, text: str) -> None:
        """Take in a value: its JSON text."""
        number = self._counts[name] = self._counts.get(name, 0) + 1
        self.new[name] = Published(name=name, number=number, text=text)
