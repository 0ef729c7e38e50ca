"""Hints for error messages about a name that does not exist."""

from collections.abc import Sequence
from typing import Final

_NAMED_MAX: Final = 5


def similar_names(name: str, known: Sequence[str]) -> str:
    """Return a clause that names what exists instead: the most similar name, or else some of them; "" without any."""
    names = sorted(set(known) - {name})
    if not names:
        return ""
    # Imported here, as only an error needs it.
    from difflib import get_close_matches

    if close := get_close_matches(name, names, n=1):
        return f"; did you mean {close[0]!r}?"
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"; registered are {', '.join(map(repr, names[:_NAMED_MAX]))}{more}"
