"""Which steps are the last ones of their functions, as far as earlier runs show.

The result of such a step is fed before it is stored, so that it is stored together with the end of the function
(docs/decisions/0126). A wrong guess costs a transaction that would have been shared with other runs, so a step of which
one was made is not expected to be the last for a while.
"""

from typing import Final

KNOWN_MAX: Final = 10_000
"""How many steps are remembered."""
PENALTY: Final = 64
"""How often a step must have been the last one after a wrong guess."""


class LastSteps:
    """The steps that were last in functions of this process. Safe from any thread."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], int] = {}

    def expects(self, definition: str, call: str) -> bool:
        """Return whether a call is probably the last step of a function of this definition."""
        return self._known.get((definition, call), 0) > 0

    def confirm(self, definition: str, call: str) -> None:
        """Note that a call was the last step of a function that returned."""
        key, known = (definition, call), self._known
        if len(known) >= KNOWN_MAX and key not in known:
            known.clear()
        known[key] = min(known.get(key, 0) + 1, 1)

    def refute(self, definition: str, call: str) -> None:
        """Note that a call was expected to be the last step of a function, and was not."""
        self._known[definition, call] = -PENALTY
