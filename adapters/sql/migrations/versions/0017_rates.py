"""Stages of which only so many bodies start in a time: their jobs say so, and a row counts the starts."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

JOBS = "holdfast_jobs"


def upgrade() -> None:
    op.add_column(JOBS, number("rate_limit", nullable=True))
    op.add_column(JOBS, number("rate_period", nullable=True))
    rated = sa.text("state = 'queued' AND rate_limit IS NOT NULL")
    columns = ["namespace", "concurrency_key"]
    op.create_index("holdfast_jobs_rated", JOBS, columns, postgresql_where=rated, sqlite_where=rated)
    op.create_table(
        "holdfast_rates",
        name("namespace"),
        name("name"),
        sa.Column("starts", sa.Text(), nullable=False),
        number("wakes_at", nullable=True),
        number("updated_at"),
        sa.PrimaryKeyConstraint("namespace", "name"),
    )


def name(column: str) -> sa.Column[str]:
    """Text that is compared, bytewise."""
    return sa.Column(column, sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False)


def number(column: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger(), nullable=nullable, autoincrement=False)
