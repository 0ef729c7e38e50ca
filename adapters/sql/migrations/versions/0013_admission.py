"""Runs that wait for their time or for a slot, runs with a deadline, and jobs of stages that are limited."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

RUNS = "holdfast_runs"
JOBS = "holdfast_jobs"
ENDED = "('completed', 'failed', 'cancelled')"
NOT_UNDER_WAY = "('completed', 'failed', 'cancelled', 'pending')"


def upgrade() -> None:
    for column in (number("start_at"), number("deadline"), *limit()):
        op.add_column(RUNS, column)
    for column in limit():
        op.add_column(JOBS, column)
    partial("holdfast_runs_start", RUNS, ["start_at"], "status = 'pending' AND start_at IS NOT NULL")
    partial(
        "holdfast_runs_waiting",
        RUNS,
        ["namespace", "concurrency_key", sa.text("priority DESC"), "key"],
        "status = 'pending' AND start_at IS NULL AND concurrency_key IS NOT NULL",
    )
    partial(
        "holdfast_runs_slots",
        RUNS,
        ["namespace", "concurrency_key"],
        f"status NOT IN {NOT_UNDER_WAY} AND concurrency_key IS NOT NULL",
    )
    partial("holdfast_runs_deadline", RUNS, ["deadline"], f"status NOT IN {ENDED} AND deadline IS NOT NULL")
    partial(
        "holdfast_jobs_limited",
        JOBS,
        ["namespace", "concurrency_key", sa.text("priority DESC"), "run", "number"],
        "state = 'limited'",
    )
    partial(
        "holdfast_jobs_slots",
        JOBS,
        ["namespace", "concurrency_key"],
        "state IN ('queued', 'leased') AND concurrency_key IS NOT NULL",
    )
    op.create_table(
        "holdfast_slots",
        name("namespace", nullable=False),
        name("name", nullable=False),
        sa.PrimaryKeyConstraint("namespace", "name"),
    )


def limit() -> tuple[sa.Column[str], sa.Column[int]]:
    return name("concurrency_key", nullable=True), number("concurrency_limit")


def name(column: str, *, nullable: bool) -> sa.Column[str]:
    """Text that is compared, bytewise."""
    return sa.Column(column, sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=nullable)


def number(column: str) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger(), nullable=True, autoincrement=False)


def partial(index: str, table: str, columns: Sequence[str | sa.TextClause], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(index, table, columns, postgresql_where=where, sqlite_where=where)
