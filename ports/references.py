"""References to stored values: how a job says what its body gets, without carrying it.

A reference is JSON, one of
- `5`: the payload of the run's history row 5;
- `["item", node, page, at]`: the item at place `at` of a page of the items that map `node` goes over;
- `["list", reference, ...]`: a list of these;
- `["map", node, first, last]`: the outputs of map `node`, in the order of its items, which stand in the history
  rows from `first` to `last`.
"""

from collections.abc import Iterator
from typing import TypeAlias, cast

from holdfast.ports.json import compact, parse

Reference: TypeAlias = int | tuple[object, ...]


def reference_text(reference: Reference) -> str:
    """Return the stored form."""
    return compact(reference)


def reference_from(text: str) -> Reference:
    """Return the reference that was stored as this text."""
    return _frozen(cast("object", parse(text)))


def item_reference(node: str, page: int, at: int) -> Reference:
    """Refer to one item of a map."""
    return ("item", node, page, at)


def list_reference(parts: tuple[Reference, ...]) -> Reference:
    """Refer to a list of other values."""
    return ("list", *parts)


def map_reference(node: str, first: int, last: int) -> Reference:
    """Refer to all outputs of a map."""
    return ("map", node, first, last)


def leaves(reference: Reference) -> Iterator[Reference]:
    """Yield the references in it that are not lists."""
    if isinstance(reference, tuple) and reference[0] == "list":
        for part in reference[1:]:
            yield from leaves(cast("Reference", part))
    else:
        yield reference


def _frozen(data: object) -> Reference:
    return tuple(map(_part, cast("list[object]", data))) if isinstance(data, list) else cast("int", data)


def _part(data: object) -> object:
    return _frozen(cast("object", data)) if isinstance(data, list) else data
