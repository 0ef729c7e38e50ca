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
        f"{first} AND w.namespace = {namespace} AND w.concurrency_key > {key} "
        f"ORDER BY w.concurrency_key, {source.order} LIMIT 1"
    )
    order = f"w.namespace, w.concurrency_key, {source.order}"
    of_the_next = f"{first} AND w.namespace > {namespace} ORDER BY {order} LIMIT 1"
    return f"COALESCE(({of_the_same}), ({of_the_next}))"


def rowid_searches(dialect: Dialect, source: Source) -> Searches:
    """SQLite has no lateral joins, and LIMIT can't be a column: `:most` is the largest number requested."""
    places = dialect.table_of("places", "p", {"namespace": "text", "key": "text"})
    wanted = dialect.table_of("wanted", "p", {"namespace": "text", "key": "text", "most": "bigint"})
    heads = source.heads(source.rate.format("h"))
    return Searches(
        waited_for=f"SELECT {heads} FROM {places} CROSS JOIN {source.table} AS h "
        f"WHERE h.rowid = (SELECT w.rowid {source.waiting_for('p')} LIMIT 1) "
        "ORDER BY h.namespace, h.concurrency_key",
        all_waited_for="WITH RECURSIVE found(id, place) AS (SELECT "
        f"{_rowid_after(source, ':namespace', ':key')}, 1 UNION ALL "
        f"SELECT {_rowid_after(source, 'h.namespace', 'h.concurrency_key')}, f.place + 1 "
        f"FROM found AS f CROSS JOIN {source.table} AS h WHERE h.rowid = f.id AND f.place < :limit) "
        f"SELECT {heads} FROM found AS f CROSS JOIN {source.table} AS h WHERE h.rowid = f.id "
        "ORDER BY h.namespace, h.concurrency_key",
        first=f"SELECT {', '.join(source.keys)} FROM (SELECT p.most, {source.names}, row_number() OVER "
        f"(PARTITION BY w.namespace, w.concurrency_key ORDER BY {source.order}) AS place "
        f"FROM {wanted} CROSS JOIN {source.table} AS w "
        f"WHERE w.rowid IN (SELECT w.rowid {source.waiting_for('p')} LIMIT :most)) WHERE place <= most",
        used=all_used(dialect, source),
    )
