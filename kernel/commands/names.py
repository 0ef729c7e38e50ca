"""Validation of names: characters that no store can keep, or that break a line, are refused."""

from unicodedata import category

from holdfast.ports.errors import InvalidCommandError

_UNFIT = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories of control characters, surrogates and line separators."""


def check_name(what: str, name: str | None) -> None:
    """Raise InvalidCommandError if a name contains forbidden characters. None passes."""
    if name is None or (name.isascii() and name.isprintable()):
        return
    for place, char in enumerate(name):
        if category(char) in _UNFIT:
            raise InvalidCommandError(
                f"{what} {name!r} has a character, its {place + 1}., that is a control character, a line break or half "
                "of a surrogate pair; use others"
            )
