"""What waits is ordered by a rank, which its priority lowers and no time raises: so it gets its turn."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

RUNS = "holdfast_runs"
JOBS = "holdfast_jobs"


def upgrade() -> None:
    for table in (RUNS, JOBS):
        op.add_column(
            table, sa.Column("rank", sa.BigInteger(), nullable=False, autoincrement=False, server_default="0")
        )
    op.execute("UPDATE holdfast_runs SET rank = coalesce(start_at, created_at) - priority * 60000000")
    op.execute(
        "UPDATE holdfast_jobs SET rank = coalesce((SELECT r.rank + (r.priority - holdfast_jobs.priority) * 60000000 "
        "FROM holdfast_runs AS r WHERE r.key = holdfast_jobs.run), 0)"
    )
    ordered("holdfast_runs_waiting", RUNS, ["concurrency_key", "rank", "key"], WAITING)
    ordered("holdfast_jobs_claim", JOBS, ["queue", "definition", *OF_JOBS], "state = 'queued'")
    ordered("holdfast_jobs_limited", JOBS, ["concurrency_key", *OF_JOBS], "state = 'limited'")


OF_JOBS = ("rank", "run", "number")
WAITING = "status = 'pending' AND start_at IS NULL AND concurrency_key IS NOT NULL"


def ordered(index: str, table: str, columns: Sequence[str], condition: str) -> None:
    """Make an index anew that went by priority."""
    where = sa.text(condition)
    op.drop_index(index, table)
    op.create_index(index, table, ["namespace", *columns], postgresql_where=where, sqlite_where=where)
