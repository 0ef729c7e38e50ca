"""Validation of names: characters that no store can keep, or that break a line, are refused."""

from typing import Final
from unicodedata import category

from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.run import attribute_texts
from holdfast.ports.validation import is_unicode

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


def check_texts(what: str, stored: str | None) -> None:
    """Raise InvalidCommandError if a text in a JSON object has half of a surrogate pair. None passes."""
    if stored is None or (stored.isascii() and "\\" not in stored):
        return
    for name, text in attribute_texts(stored).items():
        if not (is_unicode(name) and is_unicode(text)):
            raise InvalidCommandError(
                f"{what} has {name!r:.50}: {text!r:.50}, a text with half of a surrogate pair; use another text"
            )


def text_fault(text: str, most: int, least: int = 0) -> str | None:
    """Return why a text can't be stored in a command: its length, or a character; None if it can."""
    if not least <= len(text) <= most:
        return f"it has {len(text)} characters; {least} to {most} are possible"
    if "\0" in text or not is_unicode(text):
        return "no database can keep a NUL or half a surrogate pair"
    return None
