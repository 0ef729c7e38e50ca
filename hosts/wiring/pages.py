"""Pages of lists in the store."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from holdfast.ports.pagination import ListPlace

Record = TypeVar("Record")
Place = TypeVar("Place")


class HasPlace(Protocol):
    """A record that has a position in a list."""

    @property
    def place(self) -> ListPlace:
        """The position."""
        ...


def place_of(record: HasPlace) -> ListPlace:
    """Return the position of a record in lists that are ordered by time and id."""
    return record.place


def pages_of(
    read: Callable[[Place | None, int], Sequence[Record]],
    size: int,
    after: Place | None,
    limit: int | None,
    position: Callable[[Record], Place],
) -> Iterator[Sequence[Record]]:
    """Yield pages of a list, which may be empty.

    Paging by position visits each record once, even if it changes in between.

    Args:
        read: Returns the records after a position, up to a number of them.
        size: The number of records of a page.
        after: The position to start after; None for the start of the list.
        limit: The maximum number of records; None for no limit.
        position: Returns the position of a record.
    """
    left = limit
    while left is None or left > 0:
        wanted = size if left is None else min(size, left)
        page = read(after, wanted)
        yield page
        if len(page) < wanted:
            return
        after, left = position(page[-1]), None if left is None else left - wanted
