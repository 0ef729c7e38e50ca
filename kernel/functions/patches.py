"""Which changes of its code a run has with it."""

from collections.abc import Iterable


class Patches:
    """Says of each change, by name, whether a run has it: always the same of one name."""

    __slots__ = ("_decisions", "_new")

    def __init__(self) -> None:
        self._new: list[str] = []
        """Those that were said yes to, and that nobody has taken yet."""
        self._decisions: dict[str, bool] = {}

    def know(self, names: Iterable[str]) -> None:
        """Take in what is recorded: these are said yes to."""
        self._decisions.update(dict.fromkeys(names, True))

    def has(self, name: str, *, is_replaying: bool) -> bool:
        """Whether the run has a change. What is asked for the first time while nothing is replayed, it has."""
        if name not in self._decisions:
            self._decisions[name] = not is_replaying
            if self._decisions[name]:
                self._new.append(name)
        return self._decisions[name]

    def take(self) -> tuple[str, ...]:
        """Return those that were said yes to since this was called last: nothing is recorded of them yet."""
        new = tuple(self._new)
        self._new.clear()
        return new
