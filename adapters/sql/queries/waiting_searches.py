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

    def used(self, of: str, key: str) -> str:
        """Return the number of used slots of the key in a row of table `of`."""
        return (
            f"(SELECT count(*) FROM {self.table} AS w WHERE {self.holds} "
            f"AND w.namespace = {of}.namespace AND w.concurrency_key = {of}.{key})"
        )

    def heads(self, rate: str) -> str:
        """Return the columns for a key, of its first waiting row `h`. Slots are counted only if there is a limit."""
        return (
            f"h.namespace, h.concurrency_key, h.concurrency_limit, {rate}, "
            f"CASE WHEN h.concurrency_limit IS NULL THEN 0 ELSE {self.used('h', 'concurrency_key')} END AS used"
        )

    def waiting_for(self, of: str) -> str:
        """Return the search for the rows that wait for the key in a row of table `of`, in the order of admission."""
        return (
            f"FROM {self.table} AS w WHERE {self.waits} AND w.namespace = {of}.namespace "
            f"AND w.concurrency_key = {of}.key ORDER BY {self.order}"
        )


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
    return {waiting: dialect.waiting_searches(source) for waiting, source in SOURCES.items()}


def all_used(dialect: Dialect, source: Source) -> str:
    """Return the statement that counts the used slots of each of `:places`."""
    places = dialect.table_of("places", "p", {"namespace": "text", "key": "text"})
    return f"SELECT p.namespace, p.key, {source.used('p', 'key')} AS used FROM {places}"
