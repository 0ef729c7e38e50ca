"""Searches for waiting runs and jobs by lateral joins (`queries.waiting_searches`)."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.queries.waiting_searches import Searches, Source, all_used


def _waiting_after(source: Source, namespace: str, key: str) -> str:
    """Return the search for the first row that waits for the next key."""
    return (
        f"FROM {source.table} AS w WHERE {source.waits} AND (w.namespace, w.{source.key}) > ({namespace}, {key}) "
        f"ORDER BY w.namespace, w.{source.key}, {source.order} LIMIT 1"
    )


def lateral_searches(dialect: Dialect, source: Source) -> Searches:
    """Build the statements: what waits for a key is the head of an index, which LATERAL reads for each key."""
    places = dialect.table_of("places", "p", {"namespace": "text", "key": "text"})
    wanted = dialect.table_of("wanted", "p", {"namespace": "text", "key": "text", "most": "bigint"})
    spans = dialect.table_of("spans", "s", {"namespace": "text", "first": "text", "beyond": "text"})
    head = f"w.namespace, w.{source.key}, w.concurrency_limit, {source.extra.format('w')}"
    heads = source.heads("h.rate_limit, h.rate_period, h.concurrency_outer, h.queue_position")
    first_of = f"FROM {source.table} AS w WHERE {source.waits} AND"
    in_order = f"ORDER BY w.{source.key}, {source.order} LIMIT 1"
    return Searches(
        waited_for=f"SELECT {heads} FROM {places} CROSS JOIN LATERAL "
        f"(SELECT {head} {source.waiting_for('p')} LIMIT 1) AS h ORDER BY h.namespace, h.{source.key}",
        in_spans=f"WITH RECURSIVE h AS (SELECT f.*, s.beyond, 1 AS place FROM {spans} CROSS JOIN LATERAL "
        f"(SELECT {head} {first_of} w.namespace = s.namespace AND w.{source.key} >= s.first "
        f"AND w.{source.key} < s.beyond {in_order}) AS f UNION ALL "
        f"SELECT f.*, h.beyond, h.place + 1 FROM h CROSS JOIN LATERAL "
        f"(SELECT {head} {first_of} w.namespace = h.namespace AND w.{source.key} > h.{source.key} "
        f"AND w.{source.key} < h.beyond {in_order}) AS f WHERE h.place < :limit) "
        f"SELECT {heads} FROM h ORDER BY h.namespace, h.{source.key}",
        all_waited_for=f"WITH RECURSIVE h AS ((SELECT {head}, 1 AS place "
        f"{_waiting_after(source, ':namespace', ':key')}) UNION ALL "
        f"SELECT following.* FROM h CROSS JOIN LATERAL (SELECT {head}, h.place + 1 "
        f"{_waiting_after(source, 'h.namespace', f'h.{source.key}')}) AS following WHERE h.place < :limit) "
        f"SELECT {heads} FROM h ORDER BY h.namespace, h.{source.key}",
        first=f"SELECT f.* FROM {wanted} CROSS JOIN LATERAL "
        f"(SELECT {source.names} {source.waiting_for('p')} LIMIT p.most) AS f",
        used=all_used(dialect, source),
    )
