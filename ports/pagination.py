"""Cursors for lists that are ordered by time and id."""

from typing import Final, NamedTuple

_NUMBER_DIGITS: Final = 18
_ID_LENGTH: Final = 64


class ListPlace(NamedTuple):
    """The position of a row in such a list."""

    at: int
    """Microseconds since the epoch."""
    id: str

    @property
    def text(self) -> str:
        """The cursor as text, to pass to the next call."""
        return f"{self.at}.{self.id}"


def list_place(text: str) -> ListPlace:
    """Return the position that a cursor encodes. ValueError if the text is not a cursor."""
    at, dot, id_ = text.partition(".")
    is_number = at.isascii() and at.isdigit() and len(at) <= _NUMBER_DIGITS
    if not dot or not is_number or not (id_.isascii() and id_.isalnum()) or len(id_) > _ID_LENGTH:
        raise ValueError(f"{text[:100]!r} is not a cursor; a cursor looks like <number>.<id>")
    return ListPlace(int(at), id_)
