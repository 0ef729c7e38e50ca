"""References to stored values: how a job says what its body gets, without carrying it.

A reference is JSON, one of
- `5`: the payload of the run's history row 5;
- `["item", node, page, at]`: the item at place `at` of a page of the items that map `node` goes over;
- `["list", reference, ...]`: a list of these;
- `["map", node, first, last]`: the outputs of map `node`, in the order of its items, which stand in the history
  rows from `first` to `last`;
- `["failures", node, first, last]`: which of its items failed there, and why, in that order;
- `["partial", node, first, last]`: an object of both, `results` and `failures`;
- `["of", run, reference]`: what the reference stands for in the run of this key, an earlier generation, say. That is
  never one of these itself, and never a list: see `of_run`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

from holdfast.ports.json import canonical, compact, parse

Reference: TypeAlias = int | tuple[object, ...]


class KeptRows(NamedTuple):
    """Rows of the history of run `run`, up to number `last`, that a later generation of a function keeps.

    They begin where those of the generation before it end: so a history of several is numbered through.
    """

    run: str
    last: int


def reference_text(reference: Reference) -> str:
    """Return the stored form."""
    return compact(reference)


def reference_from(text: str) -> Reference:
    """Return the reference that was stored as this text."""
    return _frozen(cast("object", parse(text)))


def references_text(references: Mapping[str, Reference]) -> str | None:
    """Return the stored form of references by name; None for none."""
    return canonical(dict(references)) if references else None


def references_from(text: str | None) -> dict[str, Reference]:
    """Return the references by name that were stored as this text; none if that is what a function keeps."""
    kept: object = None if text is None else parse(text)
    if not isinstance(kept, dict):
        return {}
    return {name: _frozen(data) for name, data in cast("dict[str, object]", kept).items()}


def kept_rows_text(kept: Sequence[KeptRows]) -> str | None:
    """Return the stored form of the rows that a function keeps; None for none."""
    return compact(kept) if kept else None


def kept_rows_from(text: str | None) -> tuple[KeptRows, ...]:
    """Return the rows that were stored as this text, the first first; none if a pipeline keeps what it has."""
    kept: object = None if text is None else parse(text)
    if not isinstance(kept, list):
        return ()
    return tuple(KeptRows(str(run), int(last)) for run, last in cast("list[tuple[str, int]]", kept))


def item_reference(node: str, page: int, at: int) -> Reference:
    """Refer to one item of a map."""
    return ("item", node, page, at)


def list_reference(parts: tuple[Reference, ...]) -> Reference:
    """Refer to a list of other values."""
    return ("list", *parts)


def map_reference(node: str, first: int, last: int) -> Reference:
    """Refer to all outputs of a map."""
    return ("map", node, first, last)


def of_run(run: str, reference: Reference) -> Reference:
    """Refer from elsewhere to what a reference of this run stands for: always to where the value really is."""
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
    """Return the key of the run in whose rows a reference of `run` is to be looked up, and what as."""
    if isinstance(reference, tuple) and reference[0] == "of":
        _, elsewhere, there = reference
        return cast("str", elsewhere), cast("Reference", there)
    return run, reference


def is_map(reference: Reference) -> bool:
    """Whether it stands for all outputs of a map, or all its failures, here or elsewhere; also if that has none."""
    inner = located("", reference)[1]
    return isinstance(inner, tuple) and (inner[0] in {"map", "failures"} or inner == ("list",))


def is_partial(reference: Reference) -> bool:
    """Whether it stands for what a map gave that may lose items, here or elsewhere."""
    inner = located("", reference)[1]
    return isinstance(inner, tuple) and inner[0] == "partial"


def partial_reference(node: str, first: int, last: int) -> Reference:
    """Refer to all outputs of a map that may lose items, and to what became of those."""
    return ("partial", node, first, last)


def parts_of(partial: Reference) -> tuple[Reference, Reference]:
    """Return the references to the results and to the failures of a partial one."""
    run, there = located("", partial)
    assert isinstance(there, tuple)
    results: Reference = ("map", *there[1:])
    failures: Reference = ("failures", *there[1:])
    return (of_run(run, results), of_run(run, failures)) if run else (results, failures)


def leaves(reference: Reference) -> Iterator[Reference]:
    """Yield the references in it that stand for what is stored: those that are neither lists nor partial."""
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
