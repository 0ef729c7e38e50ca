"""Headers of runs: short texts that travel to steps and child runs, and that no search finds (docs/decisions/0121)."""

import re
from collections.abc import Mapping
from typing import Final, cast

from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.run import attribute_texts
from holdfast.ports.validation import Wanted, is_unicode

HEADERS_MAX: Final = 16
"""How many headers a run may have, those of its parent included."""
HEADER_NAME_MAX: Final = 64
HEADERS_LENGTH_MAX: Final = 4_096
"""Maximum length of all headers of a run together, as JSON text. They are read with the run wherever it is read."""

_WORDS: Final = (
    f"a dict of at most {HEADERS_MAX} texts by names of 1 to {HEADER_NAME_MAX} letters, digits, and _ . -, all together"
    f" at most {HEADERS_LENGTH_MAX:,} characters as JSON"
)
_NAME: Final = re.compile(rf"[A-Za-z0-9_.-]{{1,{HEADER_NAME_MAX}}}", re.ASCII)


def _are_headers(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    items = cast("Mapping[object, object]", value)
    return (
        len(items) <= HEADERS_MAX
        and all(isinstance(name, str) and _NAME.fullmatch(name) for name in items)
        and all(isinstance(text, str) for text in items.values())
        and len(canonical(dict(items))) <= HEADERS_LENGTH_MAX
    )


def _are_unicode(value: object) -> bool:
    return _are_headers(value) and all(map(is_unicode, cast("Mapping[str, str]", value).values()))


HEADERS: Final = Wanted(f"{_WORDS}, without half of a surrogate pair", _are_unicode)
"""What the headers of a run must be."""


def check_headers(stored: str | None) -> None:
    """Raise InvalidCommandError if a JSON text can't be the headers of a run.

    Halves of surrogate pairs pass: a child run may have such headers from a parent that was stored with them.
    """
    if stored is None:
        return
    try:
        found: object = parse(stored)
    except (ValueError, RecursionError):
        found = None
    if not _are_headers(found):
        raise InvalidCommandError(f"headers is {stored[:100]!r}; it must be the JSON of {_WORDS}")


def headers_of(stored: str | None) -> Mapping[str, str]:
    """Return the headers of a run, which are stored as JSON text or None."""
    return attribute_texts(stored)


def headers_text(headers: Mapping[str, str]) -> str | None:
    """Return headers as they are stored: JSON text, or None for none."""
    return canonical(dict(headers)) if headers else None


def joined_headers(inherited: str | None, given: str | None) -> str | None:
    """Return the headers of a child run as JSON text; None if it has those of its parent alone.

    Args:
        inherited: Those of its parent.
        given: Those of its start. Under a name that both have, this text counts.
    """
    return None if given is None else canonical({**headers_of(inherited), **headers_of(given)})
