"""Searches for waiting runs and jobs by `rowid` (`queries.waiting_searches`)."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.queries.waiting_searches import Searches, Source, all_used


def _rowid_after(source: Source, namespace: str, key: str) -> str:
    """Return the search for the rowid of the first row that waits for the next key.

    In two parts, because SQLite uses only the first column of a row comparison for the index, and would then read all
    waiting rows of the namespace.
    """
    first = f"SELECT w.rowid FROM {source.table} AS w WHERE {source.waits}"
    of_the_same = (
        f"{first} AND w.namespace = {namespace} AND w.{source.key} > {key} "
        f"ORDER BY w.{source.key}, {source.order} LIMIT 1"
    )
    order = f"w.namespace, w.{source.key}, {source.order}"
    of_the_next = f"{first} AND w.namespace > {namespace} ORDER BY {order} LIMIT 1"
    return f"COALESCE(({of_the_same}), ({of_the_next}))"


def rowid_searches(dialect: Dialect, source: Source) -> Searches:
    """SQLite has no lateral joins, and LIMIT can't be a column: `:most` is the largest number requested."""
    places = dialect.table_of("places", "p", {"namespace": "text", "key": "text"})
    wanted = dialect.table_of("wanted", "p", {"namespace": "text", "key": "text", "most": "bigint"})
    spans = dialect.table_of("spans", "s", {"namespace": "text", "first": "text", "beyond": "text"})
    heads = source.heads(source.extra.format("h"))
    rowid_of = f"(SELECT w.rowid FROM {source.table} AS w WHERE {source.waits} AND"
    in_order = f"ORDER BY w.{source.key}, {source.order} LIMIT 1)"
    return Searches(
        waited_for=f"SELECT {heads} FROM {places} CROSS JOIN {source.table} AS h "
        f"WHERE h.rowid = (SELECT w.rowid {source.waiting_for('p')} LIMIT 1) "
        f"ORDER BY h.namespace, h.{source.key}",
        in_spans=f"WITH RECURSIVE found(id, beyond, place) AS (SELECT {rowid_of} w.namespace = s.namespace "
        f"AND w.{source.key} >= s.first AND w.{source.key} < s.beyond {in_order}, s.beyond, 1 FROM {spans} "
        f"UNION ALL SELECT {rowid_of} w.namespace = h.namespace AND w.{source.key} > h.{source.key} "
        f"AND w.{source.key} < f.beyond {in_order}, f.beyond, f.place + 1 "
        f"FROM found AS f CROSS JOIN {source.table} AS h WHERE h.rowid = f.id AND f.place < :limit) "
        f"SELECT {heads} FROM found AS f CROSS JOIN {source.table} AS h WHERE h.rowid = f.id "
        f"ORDER BY h.namespace, h.{source.key}",
        all_waited_for="WITH RECURSIVE found(id, place) AS (SELECT "
        f"{_rowid_after(source, ':namespace', ':key')}, 1 UNION ALL "
        f"SELECT {_rowid_after(source, 'h.namespace', f'h.{source.key}')}, f.place + 1 "
        f"FROM found AS f CROSS JOIN {source.table} AS h WHERE h.rowid = f.id AND f.place < :limit) "
        f"SELECT {heads} FROM found AS f CROSS JOIN {source.table} AS h WHERE h.rowid = f.id "
        f"ORDER BY h.namespace, h.{source.key}",
        first=f"SELECT {', '.join(source.keys)} FROM (SELECT p.most, {source.names}, row_number() OVER "
        f"(PARTITION BY w.namespace, w.{source.key} ORDER BY {source.order}) AS place "
        f"FROM {wanted} CROSS JOIN {source.table} AS w "
        f"WHERE w.rowid IN (SELECT w.rowid {source.waiting_for('p')} LIMIT :most)) WHERE place <= most",
        used=all_used(dialect, source),
    )
