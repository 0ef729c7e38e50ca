"""The claim query of SQLite. The reasons for its shape are in `postgresql/claim_query.py`."""

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
    """Return the statement. `:most` is the highest limit of all queues, since LIMIT can't be a column here."""
    columns = ", ".join(f"j.{name}" for name in jobs)
    claims = dialect.table_of("queue_claims", "l", CLAIM_COLUMNS)
    return (
        f"WITH picked AS (SELECT l.claim, l.most, {columns} FROM {claims} "
        f"CROSS JOIN holdfast_jobs AS j WHERE {IS_OPEN_QUEUE} "
        "AND j.rowid IN (SELECT job.rowid FROM holdfast_jobs AS job "
        "WHERE job.namespace = :namespace AND job.queue = l.queue AND job.definition = l.definition "
        f"AND job.state = 'queued' AND {CLAIMABLE} ORDER BY job.queue_position, job.run, job.number LIMIT :most)), "
        f"placed AS (SELECT *, row_number() OVER (PARTITION BY claim ORDER BY {CLAIM_ORDER}) AS place "
        "FROM picked) "
        f"{claimed_rows(jobs, sessions)} LIMIT :limit"
    )
