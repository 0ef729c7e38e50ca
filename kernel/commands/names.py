"""Names that callers give: what no store could keep, or no line could show, is refused before anything is stored."""

from unicodedata import category

from holdfast.ports.errors import InvalidCommandError

_UNFIT = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode's categories of control characters, halves of surrogate pairs, and what breaks lines."""


def check_name(what: str, name: str | None) -> None:
    """Raise InvalidCommandError if a name has characters that names can't have. None is no name, and may be."""
    if name is None or (name.isascii() and name.isprintable()):
        return
    for place, char in enumerate(name):
        if category(char) in _UNFIT:
            raise InvalidCommandError(
                f"{what} {name!r} has a character, its {place + 1}., that is a control character, a line break or half "
                "of a surrogate pair; use others"
            )
