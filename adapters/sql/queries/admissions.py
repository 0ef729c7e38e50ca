"""Searches for runs and jobs that wait for slots, at a cost that does not depend on how many wait.

The keys with waiting runs or jobs are found by an index skip scan: seek to the first one of each key.
"""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.schema import tables
from holdfast.ports.searches import Waiting

PLACE: Final = ("namespace", "key")
WANTED: Final = ("namespace", "key", "most")


@attrs.frozen(kw_only=True)
class Source:
    """A table of waiting runs or jobs and of holders of slots.

    The conditions must match those of the partial indexes exactly.
    """

    table: str
    keys: Sequence[str]
    waits: str
    """The condition of rows that wait."""
    holds: str
    """The condition of rows that hold a slot."""
    rate: str
    """A format for the columns of the rate limit."""

    @property
    def order(self) -> str:
        """The order of admission within a key."""
        return ", ".join(("w.queue_position", *(f"w.{key}" for key in self.keys)))

    @property
    def names(self) -> str:
        """The columns of the row's key."""
        return ", ".join(f"w.{key}" for key in self.keys)


SOURCES: Final[Mapping[Waiting, Source]] = {
    Waiting.RUNS: Source(
        table="holdfast_runs",
        keys=("key",),
        waits="w.status = 'pending' AND w.start_at IS NULL AND w.concurrency_key IS NOT NULL",
        holds=f"w.status NOT IN {tables.NOT_UNDER_WAY} AND w.concurrency_key IS NOT NULL AND w.last_job > 0",
        rate="CAST(NULL AS bigint) AS rate_limit, CAST(NULL AS bigint) AS rate_period",
    ),
    Waiting.JOBS: Source(
        table="holdfast_jobs",
        keys=("run", "number"),
        waits="w.state = 'limited'",
        holds="w.state IN ('queued', 'leased') AND w.concurrency_key IS NOT NULL",
        rate="{0}.rate_limit, {0}.rate_period",
    ),
}


@attrs.frozen
class Searches:
    """The statements about waiting rows of one table."""

    waited_for: str
    all_waited_for: str
    first: str
    used: str


def waiting_statements(dialect: Dialect) -> Mapping[Waiting, Searches]:
    """Build the statements for waiting runs and jobs."""
    build = _by_lateral if dialect.has_lateral else _by_rowid
    return {waiting: build(dialect, source) for waiting, source in SOURCES.items()}


def _heads(source: Source, rate: str) -> str:
    """Return the columns for a key, of its first waiting row `h`. Used slots are counted only if there is a limit."""
    used = _counted(source, "h", "concurrency_key")
    return (
        f"h.namespace, h.concurrency_key, h.concurrency_limit, {rate}, "
        f"CASE WHEN h.concurrency_limit IS NULL THEN 0 ELSE {used} END AS used"
    )


def _used(source: Source, of: str, key: str) -> str:
    return f"{_counted(source, of, key)} AS used"


def _counted(source: Source, of: str, key: str) -> str:
    return (
        f"(SELECT count(*) FROM {source.table} AS w WHERE {source.holds} "
        f"AND w.namespace = {of}.namespace AND w.concurrency_key = {of}.{key})"
    )


def _all_used(dialect: Dialect, source: Source) -> str:
    places = dialect.table_of("places", "p", {"namespace": "text", "key": "text"})
    return f"SELECT p.namespace, p.key, {_used(source, 'p', 'key')} FROM {places}"


def _waiting_of(source: Source, of: str, key: str = "key") -> str:
    """Return the search for the rows that wait for one key, in the order of admission."""
    return (
        f"FROM {source.table} AS w WHERE {source.waits} AND w.namespace = {of}.namespace "
        f"AND w.concurrency_key = {of}.{key} ORDER BY {source.order}"
    )


def _waiting_after(source: Source, namespace: str, key: str) -> str:
    """Return the search for the first row that waits for the next key."""
    return (
        f"FROM {source.table} AS w WHERE {source.waits} AND (w.namespace, w.concurrency_key) > ({namespace}, {key}) "
        f"ORDER BY w.namespace, w.concurrency_key, {source.order} LIMIT 1"
    )


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


def _by_lateral(dialect: Dialect, source: Source) -> Searches:
    places = dialect.table_of("places", "p", {"namespace": "text", "key": "text"})
    wanted = dialect.table_of("wanted", "p", {"namespace": "text", "key": "text", "most": "bigint"})
    head = f"w.namespace, w.concurrency_key, w.concurrency_limit, {source.rate.format('w')}"
    heads = _heads(source, "h.rate_limit, h.rate_period")
    return Searches(
        waited_for=f"SELECT {heads} FROM {places} CROSS JOIN LATERAL "
        f"(SELECT {head} {_waiting_of(source, 'p')} LIMIT 1) AS h ORDER BY h.namespace, h.concurrency_key",
        all_waited_for=f"WITH RECURSIVE h AS ((SELECT {head}, 1 AS place "
        f"{_waiting_after(source, ':namespace', ':key')}) UNION ALL "
        f"SELECT following.* FROM h CROSS JOIN LATERAL (SELECT {head}, h.place + 1 "
        f"{_waiting_after(source, 'h.namespace', 'h.concurrency_key')}) AS following WHERE h.place < :limit) "
        f"SELECT {heads} FROM h ORDER BY h.namespace, h.concurrency_key",
        first=f"SELECT f.* FROM {wanted} CROSS JOIN LATERAL "
        f"(SELECT {source.names} {_waiting_of(source, 'p')} LIMIT p.most) AS f",
        used=_all_used(dialect, source),
    )


def _by_rowid(dialect: Dialect, source: Source) -> Searches:
    """SQLite has no lateral joins, and LIMIT can't be a column: `:most` is the largest number requested."""
    places = dialect.table_of("places", "p", {"namespace": "text", "key": "text"})
    wanted = dialect.table_of("wanted", "p", {"namespace": "text", "key": "text", "most": "bigint"})
    heads = _heads(source, source.rate.format("h"))
    return Searches(
        waited_for=f"SELECT {heads} FROM {places} CROSS JOIN {source.table} AS h "
        f"WHERE h.rowid = (SELECT w.rowid {_waiting_of(source, 'p')} LIMIT 1) "
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
        f"WHERE w.rowid IN (SELECT w.rowid {_waiting_of(source, 'p')} LIMIT :most)) WHERE place <= most",
        used=_all_used(dialect, source),
    )
