"""Places in ordered lists: what pages of rows go on from."""

from typing import Final, NamedTuple

_NUMBER_DIGITS: Final = 18
_ID_LENGTH: Final = 64


class ListPlace(NamedTuple):
    """Where a row is in a list that is ordered by instants: its instant, in microseconds, and its id."""

    at: int
    id: str

    @property
    def text(self) -> str:
        """The place as people hand it on, to go on listing from there."""
        return f"{self.at}.{self.id}"


def list_place(text: str) -> ListPlace:
    """Return the place that a text names. ValueError if it names none."""
    at, dot, id_ = text.partition(".")
    is_number = at.isascii() and at.isdigit() and len(at) <= _NUMBER_DIGITS
    if not dot or not is_number or not (id_.isascii() and id_.isalnum()) or len(id_) > _ID_LENGTH:
        raise ValueError(f"{text[:100]!r} is no place in a list; one looks like <number>.<id>")
    return ListPlace(int(at), id_)
