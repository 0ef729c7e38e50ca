"""Which changes of its code a run has with it."""

from collections.abc import Iterable


class Patches:
    """Says of each change, by name, whether a run has it: always the same of one name."""

    def __init__(self) -> None:
        self.is_replaying = False
        """Whether there are rows of the history that the function has not been told yet."""
        self.new: list[str] = []
        """Those that were said yes to since this was emptied, and of which nothing is recorded yet."""
        self._said: dict[str, bool] = {}

    def know(self, names: Iterable[str]) -> None:
        """Take in what is recorded: these are said yes to."""
        self._said.update(dict.fromkeys(names, True))

    def has(self, name: str) -> bool:
        """Whether the run has a change. What is asked for the first time while nothing is replayed, it has."""
        if name not in self._said:
            self._said[name] = not self.is_replaying
            if self._said[name]:
                self.new.append(name)
        return self._said[name]
