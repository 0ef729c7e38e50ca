"""Code changes guarded by `patched("name")`, and the decision of each run about them."""

from collections.abc import Iterable


class Patches:
    """Decides for each patch, by name, whether the run has the new code. The decision for a name never changes."""

    __slots__ = ("_decisions", "_new")

    def __init__(self) -> None:
        self._new: list[str] = []
        """Patches decided as new that are not recorded yet."""
        self._decisions: dict[str, bool] = {}

    def know(self, names: Iterable[str]) -> None:
        """Add patches that are recorded in the history."""
        self._decisions.update(dict.fromkeys(names, True))

    def has(self, name: str, *, is_replaying: bool) -> bool:
        """Return whether the run has a patch: it is recorded, or first checked when nothing is replayed."""
        if name not in self._decisions:
            self._decisions[name] = not is_replaying
            if self._decisions[name]:
                self._new.append(name)
        return self._decisions[name]

    def take(self) -> tuple[str, ...]:
        """Return the patches to record, decided since the last call."""
        new = tuple(self._new)
        self._new.clear()
        return new
