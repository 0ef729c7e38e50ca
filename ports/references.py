"""References to stored values: a job names its input by a reference instead of carrying it (docs/decisions/0002).

A reference is JSON, one of
- `5`: the payload of the run's history row 5;
- `["item", node, page, at]`: the item at index `at` of a page of the items of map `node`;
- `["list", reference, ...]`: a list of these;
- `["map", node, first, last]`: the outputs of map `node`, in the order of its items, in the history rows from
  `first` to `last`;
- `["failures", node, first, last]`: which of its items failed there, and why, in that order;
- `["partial", node, first, last]`: an object of both, `results` and `failures`;
- `["of", run, reference]`: the value of a reference in the run with this key, for example an earlier generation.
  The inner reference is never another `of`, and never a list: see `of_run`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

from holdfast.ports.json import canonical, compact, parse

Reference: TypeAlias = int | tuple[object, ...]


class KeptRows(NamedTuple):
    """History rows of an earlier generation that a fork of a function keeps.

    The history of several generations is numbered through: each part begins where the one before it ends.
    """

    run: str
    """The key of the generation that stores the rows."""
    last: int
    """The number of the last row kept."""


def reference_text(reference: Reference) -> str:
    """Return a reference as stored text."""
    return compact(reference)


def reference_from(text: str) -> Reference:
    """Return the reference stored as this text."""
    return _frozen(cast("object", parse(text)))


def references_text(references: Mapping[str, Reference]) -> str | None:
    """Return references by name as stored text; None for an empty mapping."""
    return canonical(dict(references)) if references else None


def references_from(text: str | None) -> dict[str, Reference]:
    """Return the references by name stored as this text; empty if the text holds a function's kept rows."""
    kept: object = None if text is None else parse(text)
    if not isinstance(kept, dict):
        return {}
    return {name: _frozen(data) for name, data in cast("dict[str, object]", kept).items()}


def kept_rows_text(kept: Sequence[KeptRows]) -> str | None:
    """Return the rows that a function keeps as stored text; None for none."""
    return compact(kept) if kept else None


def kept_rows_from(text: str | None) -> tuple[KeptRows, ...]:
    """Return the kept rows stored as this text, in order; empty if the text holds a pipeline's references."""
    kept: object = None if text is None else parse(text)
    if not isinstance(kept, list):
        return ()
    return tuple(KeptRows(str(run), int(last)) for run, last in cast("list[tuple[str, int]]", kept))


def item_reference(node: str, page: int, at: int) -> Reference:
    """Return a reference to one item of a map."""
    return ("item", node, page, at)


def list_reference(parts: tuple[Reference, ...]) -> Reference:
    """Return a reference to a list of other values."""
    return ("list", *parts)


def map_reference(node: str, first: int, last: int) -> Reference:
    """Return a reference to all outputs of a map."""
    return ("map", node, first, last)


def of_run(run: str, reference: Reference) -> Reference:
    """Return a reference that resolves elsewhere as this one does in `run`. It names the run that stores the value."""
    if isinstance(reference, int):
        return ("of", run, reference)
    match reference[0]:
        case "list":
            return list_reference(tuple(of_run(run, cast("Reference", part)) for part in reference[1:]))
        case "of":
            return reference
        case _:
            return ("of", run, reference)


def located(run: str, reference: Reference) -> tuple[str, Reference]:
    """Return the key of the run whose rows to look up for a reference of `run`, and the reference within that run."""
    if isinstance(reference, tuple) and reference[0] == "of":
        _, elsewhere, there = reference
        return cast("str", elsewhere), cast("Reference", there)
    return run, reference


def is_map(reference: Reference) -> bool:
    """Whether a reference is to all outputs or failures of a map, in this run or another; true for an empty list."""
    inner = located("", reference)[1]
    return isinstance(inner, tuple) and (inner[0] in {"map", "failures"} or inner == ("list",))


def is_partial(reference: Reference) -> bool:
    """Whether a reference is to the result of a map that may lose items, in this run or another."""
    inner = located("", reference)[1]
    return isinstance(inner, tuple) and inner[0] == "partial"


def partial_reference(node: str, first: int, last: int) -> Reference:
    """Return a reference to the outputs and the failures of a map that may lose items."""
    return ("partial", node, first, last)


def parts_of(partial: Reference) -> tuple[Reference, Reference]:
    """Return the references to the results and to the failures of a partial reference."""
    run, there = located("", partial)
    assert isinstance(there, tuple)
    results: Reference = ("map", *there[1:])
    failures: Reference = ("failures", *there[1:])
    return (of_run(run, results), of_run(run, failures)) if run else (results, failures)


def leaves(reference: Reference) -> Iterator[Reference]:
    """Yield the references in a reference that stand for stored values, neither lists nor partial ones."""
    match reference:
        case ("list", *parts):
            for part in parts:
                yield from leaves(cast("Reference", part))
        case _ if is_partial(reference):
            yield from parts_of(reference)
        case _:
            yield reference


def _frozen(data: object) -> Reference:
    return tuple(map(_part, cast("list[object]", data))) if isinstance(data, list) else cast("int", data)


def _part(data: object) -> object:
    return _frozen(cast("object", data)) if isinstance(data, list) else data
