"""Validation of names: characters that no store can keep, or that break a line, are refused."""

from typing import Final
from unicodedata import category

from holdfast.ports.errors import InvalidCommandError

NAME_MAX: Final = 200
"""Longest name of an annotation, artifact, topic or model, and longest part of an actor, in characters."""
IDEMPOTENCY_KEY_MAX: Final = 255
"""Longest idempotency key of a command, in characters."""
CONCURRENCY_KEY_MAX: Final = 256
"""Longest concurrency key, in characters."""
_UNFIT: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
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


def text_fault(text: str, most: int, least: int = 0) -> str | None:
    """Return why a text can't be stored in a command: its length, or a character; None if it can."""
    if not least <= len(text) <= most:
        return f"it has {len(text)} characters; {least} to {most} are possible"
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        return "no database can keep a NUL or half a surrogate pair"
    return None
