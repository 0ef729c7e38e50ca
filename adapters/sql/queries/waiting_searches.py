"""Searches for runs and jobs that wait for slots or rates, at a cost that does not depend on how many wait.

The keys with waiting runs or jobs are found by an index skip scan: seek to the first one of each key.
"""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from holdfast.adapters.sql.dialect import HAS_LIMITS, Dialect
from holdfast.adapters.sql.schema import tables
from holdfast.ports.records.limits import BETWEEN_LEVELS, BEYOND_LEVEL
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
    extra: str
    """A format for the columns of the rate limit, the outer limits, and the rank."""
    uncounted: str
    """The condition of waiting rows `h` for which used slots are not counted."""
    key: str = "concurrency_key"
    """The column with the key of the line."""
    has_slots: bool = True
    """Whether the line is one for slots."""
    has_levels: bool = False
    """Whether a holder also takes a slot of each outer level of its key."""

    @property
    def order(self) -> str:
        """The order of admission within a key."""
        return ", ".join(("w.queue_position", *(f"w.{key}" for key in self.keys)))

    @property
    def names(self) -> str:
        """The columns of the row's key."""
        return ", ".join(f"w.{key}" for key in self.keys)

    def used(self, of: str, key: str) -> str:
        """Return the number of used slots of the key in a row of table `of`."""
        count = f"(SELECT count(*) FROM {self.table} AS w WHERE {self.holds} AND w.namespace = {of}.namespace AND "
        own = f"{count}w.{self.key} = {of}.{key})"
        if not self.has_levels:
            return own
        return f"{own} + {count}{within(f'w.{self.key}', f'{of}.{key}')})"

    def heads(self, extra: str) -> str:
        """Return the columns for a key, of its first waiting row `h`."""
        slots = f"CASE WHEN {self.uncounted} THEN 0 ELSE {self.used('h', self.key)} END"
        limit, used = ("h.concurrency_limit", slots) if self.has_slots else ("CAST(NULL AS bigint)", "0")
        return f"h.namespace, h.{self.key}, {limit}, {extra}, {used} AS used, {HAS_LIMITS} AS has_limits"

    def waiting_for(self, of: str) -> str:
        """Return the search for the rows that wait for the key in a row of table `of`, in the order of admission."""
        return (
            f"FROM {self.table} AS w WHERE {self.waits} AND w.namespace = {of}.namespace "
            f"AND w.{self.key} = {of}.key ORDER BY {self.order}"
        )


def within(column: str, key: str) -> str:
    """Return the condition that a column has a concurrency key within another one (see `levels_of`)."""
    start, beyond = f"{key} || '{BETWEEN_LEVELS}'", f"{key} || '{BEYOND_LEVEL}'"
    return f"{column} >= {start} AND {column} < {beyond}"


def within_or_same(table: str, key: str) -> str:
    """Return the condition that the concurrency key of a row is this one, or within it."""
    return f"({table}.concurrency_key = {key} OR ({within(f'{table}.concurrency_key', key)}))"


SOURCES: Final[Mapping[Waiting, Source]] = {
    Waiting.RUNS: Source(
        table="holdfast_runs",
        keys=("key",),
        waits="w.status = 'pending' AND w.start_at IS NULL AND w.concurrency_key IS NOT NULL AND w.in_rate_line = 0",
        holds=f"w.status NOT IN {tables.NOT_UNDER_WAY} AND w.concurrency_key IS NOT NULL AND w.last_job > 0",
        extra="CAST(NULL AS bigint) AS rate_limit, CAST(NULL AS bigint) AS rate_period, "
        "{0}.concurrency_outer, {0}.queue_position",
        uncounted="h.concurrency_limit IS NULL OR h.concurrency_outer IS NOT NULL",
        has_levels=True,
    ),
    Waiting.RATED_RUNS: Source(
        table="holdfast_runs",
        keys=("key",),
        waits="w.status = 'pending' AND w.start_at IS NULL AND w.in_rate_line = 1",
        holds="1 = 0",
        extra="{0}.rate_limit, {0}.rate_period, CAST(NULL AS text) AS concurrency_outer, {0}.queue_position",
        uncounted="1 = 1",
        key="rate_key",
        has_slots=False,
    ),
    Waiting.JOBS: Source(
        table="holdfast_jobs",
        keys=("run", "number"),
        waits="w.state = 'limited'",
        holds="w.state IN ('queued', 'leased') AND w.concurrency_key IS NOT NULL",
        extra="{0}.rate_limit, {0}.rate_period, CAST(NULL AS text) AS concurrency_outer, {0}.queue_position",
        uncounted="h.concurrency_limit IS NULL",
    ),
}


@attrs.frozen
class Searches:
    """The statements about waiting rows of one table."""

    waited_for: str
    in_spans: str
    all_waited_for: str
    first: str
    used: str


def waiting_statements(dialect: Dialect) -> Mapping[Waiting, Searches]:
    """Build the statements for waiting runs and jobs."""
    return {waiting: dialect.waiting_searches(source) for waiting, source in SOURCES.items()}


def all_used(dialect: Dialect, source: Source) -> str:
    """Return the statement that counts the used slots of each of `:places`."""
    places = dialect.table_of("places", "p", {"namespace": "text", "key": "text"})
    return f"SELECT p.namespace, p.key, {source.used('p', 'key')} AS used FROM {places}"


def used_in_spans(dialect: Dialect) -> str:
    """Return the statement that counts the slots that runs hold by each key of `:spans`."""
    spans = dialect.table_of("spans", "s", {"namespace": "text", "first": "text", "beyond": "text"})
    return (
        f"SELECT w.namespace, w.concurrency_key, count(*) FROM {spans} CROSS JOIN holdfast_runs AS w "
        f"WHERE {SOURCES[Waiting.RUNS].holds} AND w.namespace = s.namespace AND w.concurrency_key >= s.first "
        "AND w.concurrency_key < s.beyond GROUP BY w.namespace, w.concurrency_key"
    )
