"""The claim query of PostgreSQL: the next queued jobs of some queues, locked, without waiting for other workers."""

# Workers claim all the time, from a table in which most jobs may be asleep, leased, or of other queues. Its cost must
# be flat: it depends on the number of jobs returned, not on how many exist. Everything below serves that.
#
# - The index `holdfast_jobs_claim` is (namespace, queue, definition, queue_position, run, number), for queued jobs
#   only. It has the jobs of one queue and definition in the order of claims, so the first n are adjacent.
# - A worker serves several queues and definitions. One condition with lists of both would return jobs in no useful
#   order, and the database would read and sort every queued job to find the first. So the parameter has a row for each
#   pair, and a LATERAL subquery reads the head of the index for each, up to the limit of its queue. `row_number` then
#   merges the pairs of a queue, and the outer query the queues. What is sorted is at most (pairs x limit) rows.
# - SKIP LOCKED: claims of other workers are stepped over, never waited for. Under READ COMMITTED, PostgreSQL checks the
#   condition again on the latest version of each row that it locks, so a job that was claimed a moment ago drops out.
# - MATERIALIZED: without it the planner may inline the subquery, evaluate it more than once, and lock other rows each
#   time.
# - The state is a constant in the SQL, not a parameter. A generic plan can use a partial index only if its condition is
#   known, and with it there is one sensible plan. So this search may be prepared, and no other (docs/decisions/0048).
# - The rank is fixed when a job is created (docs/decisions/0019): priorities and ages need no computation here, and
#   waiting jobs need no updates.
# - Paused queues are left out by a scalar subquery over `l`. The planner can't make a join of it, so it is a filter on
#   the pairs, applied before any job is read or locked.
# - The session comes along by a LEFT JOIN, which saves a round trip (`claimable`).
#
# SQLite (`sqlite/claim_query.py`) has neither LATERAL nor a column as LIMIT. A correlated subquery, `rowid IN (...
# LIMIT :most)`, reads the head of the index for each pair, with the highest limit of all; `row_number` applies the
# lower ones. It needs no row locks, since a writer locks the file. The search first runs before BEGIN IMMEDIATE, so
# that idle workers block no writers.
#
# Guaranteed: a job is returned to one transaction at a time, lowest rank first among those not locked by others, and no
# queue gets more than its limit.
#
# Ugly, and why it stays:
#
# - It may lock more jobs than it returns: each pair up to its limit, of which the merge keeps fewer. Other workers step
#   over these until the commit and get later ones. Locking only the final rows would take a second statement, which
#   could find them claimed.
# - It may return fewer jobs than exist, if others were locked at that moment. The worker polls again.
# - Passed-over jobs (`CLAIMABLE`) are not in the index as such: they are read and skipped. Jobs that were lost are few.
# - Dead index entries of claimed jobs are at the head of the range, and every claim steps over them until a vacuum or
#   a reader marks them. A long transaction anywhere on the server delays that (docs/explanation/scale.md).
# - The statement is assembled from strings, twice. A query builder would hide the one thing that matters here, which is
#   the exact shape of the SQL.

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from collections.abc import Sequence

from holdfast.adapters.sql.dialect import (
    CLAIM_COLUMNS,
    CLAIM_ORDER,
    CLAIMABLE,
    IS_OPEN_QUEUE,
    Dialect,
    claimed_rows,
)


def claim_query(dialect: Dialect, jobs: Sequence[str], sessions: Sequence[str]) -> str:
    """Return the statement. See `Dialect.claimable`."""
    columns = ", ".join(jobs)
    claims = dialect.table_of("queue_claims", "l", CLAIM_COLUMNS)
    return (
        f"WITH picked AS MATERIALIZED (SELECT l.claim, l.most, j.* FROM {claims} "
        f"CROSS JOIN LATERAL (SELECT {columns} FROM holdfast_jobs AS job WHERE job.namespace = :namespace "
        "AND job.queue = l.queue AND job.definition = l.definition AND job.state = 'queued' "
        f"AND {CLAIMABLE} ORDER BY {CLAIM_ORDER} LIMIT l.most{dialect.skip_locked}) AS j "
        f"WHERE {IS_OPEN_QUEUE}), "
        f"placed AS (SELECT *, row_number() OVER (PARTITION BY claim ORDER BY {CLAIM_ORDER}) AS place "
        "FROM picked) "
        f"{claimed_rows(jobs, sessions)} LIMIT :limit"
    )
