"""Loading of the payloads of references: one statement each for history rows, for items, and for maps."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from holdfast.adapters.sql.database import Link, Parameters
from holdfast.adapters.sql.dialect import Dialect, encode_rows
from holdfast.adapters.sql.rows import Row, is_askable, payload_from
from holdfast.ports.json import parse
from holdfast.ports.queries.values import StoredValue
from holdfast.ports.records.history import STAGE_COMPLETED, STAGE_FAILED
from holdfast.ports.records.values import Payload
from holdfast.ports.references import Reference, located

_Key: TypeAlias = tuple[str, Reference]
_Page: TypeAlias = tuple[str, str, int]
_Statement: TypeAlias = tuple[str, Parameters]
_Found: TypeAlias = dict[_Key, tuple[Payload, ...]]


def load_values(
    link: Link, dialect: Dialect, wanted: Iterable[_Key], beside: Sequence[_Statement] = ()
) -> tuple[list[list[Row]], tuple[StoredValue, ...]]:
    """Return the payloads of each reference, in the given order; empty for what does not exist.

    First come the results of the keyed statements `beside`, which share a round trip with the first query.
    """
    wanted = tuple(wanted)
    places = {key: located(*key) for key in wanted}
    rows: dict[_Key, tuple[str, int]] = {}
    items: dict[_Key, tuple[_Page, int]] = {}
    maps: dict[_Key, tuple[str, str, str, int, int]] = {}
    for key in set(places.values()):
        run, reference = key
        match reference:
            case int():
                rows[key] = (run, reference)
            case ("item", str(node), int(page), int(at)):
                items[key] = ((run, node, page), at)
            case ("map" | "failures" as which, str(node), int(first), int(last)):
                maps[key] = (run, node, STAGE_COMPLETED if which == "map" else STAGE_FAILED, first, last)
            case _:
                raise TypeError(f"{reference!r} is not a reference to one value or one map")
    found: _Found = {}
    statements = [*beside, _rows(dialect, rows)] if rows else beside
    answers = link.queries(statements) if statements else []
    if rows:
        _take_rows(answers.pop(), found)
    for load, references in ((_items, items), (_maps, maps)):
        if references:
            cast("Callable[[Link, Dialect, Mapping[_Key, object], _Found], None]", load)(
                link, dialect, references, found
            )
    return answers, tuple(StoredValue(*key, found.get(places[key], ())) for key in wanted)


def _rows(dialect: Dialect, references: Mapping[_Key, tuple[str, int]]) -> _Statement:
    pairs = dialect.table_of("keys", "k", {"run": "text", "number": "bigint"})
    sql = (
        f"SELECT h.run, h.number, h.payload, h.blob FROM {pairs} CROSS JOIN holdfast_history AS h "
        "WHERE h.run = k.run AND h.number = k.number"
    )
    keys = sorted(pair for pair in set(references.values()) if is_askable(pair[0]))
    return dialect.bound(sql), {"keys": encode_rows(("run", "number"), keys)}


def _take_rows(answer: Iterable[Row], found: _Found) -> None:
    for run, number, inline, blob in answer:
        payload = payload_from(inline, blob)
        if payload is not None:
            found[run, number] = (payload,)


def _items(link: Link, dialect: Dialect, references: Mapping[_Key, tuple[_Page, int]], found: _Found) -> None:
    pages = dialect.table_of("pages", "k", {"run": "text", "node": "text", "page": "bigint"})
    sql = (
        f"SELECT i.run, i.node, i.page, i.items FROM {pages} CROSS JOIN holdfast_map_items AS i "
        "WHERE i.run = k.run AND i.node = k.node AND i.page = k.page"
    )
    keys = sorted(page for page in {page for page, _ in references.values()} if is_askable(page[0] + page[1]))
    answers = link.query(dialect.bound(sql), {"pages": encode_rows(("run", "node", "page"), keys)})
    # A page is read and parsed once for all of its items.
    stored = {
        (run, node, page): cast("list[list[str | None]]", parse(items)) for run, node, page, items in answers
    }
    for key, (page, at) in references.items():
        items = stored.get(page, [])
        if 0 <= at < len(items):
            inline, blob = items[at]
            found[key] = (Payload(inline=inline, blob=blob),)


def _maps(
    link: Link, dialect: Dialect, references: Mapping[_Key, tuple[str, str, str, int, int]], found: _Found
) -> None:
    columns = {
        "place": "bigint",
        "run": "text",
        "node": "text",
        "type": "text",
        "first_row": "bigint",
        "last_row": "bigint",
    }
    maps = dialect.table_of("maps", "k", columns)
    sql = (
        f"SELECT k.place, h.payload, h.blob FROM {maps} CROSS JOIN holdfast_history AS h "
        "WHERE h.run = k.run AND h.number BETWEEN k.first_row AND k.last_row "
        "AND h.node = k.node AND h.type = k.type ORDER BY k.place, h.item"
    )
    keys = list(references)
    wanted = [
        (place, *references[key]) for place, key in enumerate(keys) if is_askable(key[0] + references[key][1])
    ]
    parts: dict[int, list[Payload]] = {}
    for place, inline, blob in link.query(dialect.bound(sql), {"maps": encode_rows(tuple(columns), wanted)}):
        payload = payload_from(inline, blob)
        if payload is not None:
            parts.setdefault(place, []).append(payload)
    found.update((keys[place], tuple(payloads)) for place, payloads in parts.items())
