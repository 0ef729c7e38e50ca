"""Sinks of events, and how far each run's events have come on their way to each."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "holdfast_sinks",
        name("key"),
        name("namespace"),
        name("name"),
        number("since"),
        number("created_at"),
        sa.Column("options", sa.Text(), nullable=True),
        number("failures"),
        number("retry_at", nullable=True),
        number("succeeded_at", nullable=True),
        number("walked_at", nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("key"),
        sa.UniqueConstraint("namespace", "name", name="holdfast_sinks_name"),
    )
    op.create_table(
        "holdfast_outbox",
        name("sink"),
        name("run"),
        number("news"),
        number("delivered"),
        name("state"),
        number("due_at", nullable=True),
        name("holder", nullable=True),
        number("attempts"),
        number("refused", nullable=True),
        number("failed_at", nullable=True),
        number("parked_at", nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("skips", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("sink", "run"),
    )
    partial("holdfast_outbox_due", ["sink", "due_at", "run"], "due_at IS NOT NULL")
    partial("holdfast_outbox_parked", ["sink", "run"], "state = 'parked'")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE holdfast_sinks SET (fillfactor = 50)")
        op.execute(
            "ALTER TABLE holdfast_outbox SET "
            "(autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.1)"
        )


def name(column: str, *, nullable: bool = False) -> sa.Column[str]:
    """Text that is compared, bytewise."""
    kind = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    return sa.Column(column, kind, nullable=nullable)


def number(column: str, *, nullable: bool = False) -> sa.Column[int]:
    """A number, or an instant in microseconds."""
    return sa.Column(column, sa.BigInteger(), nullable=nullable, autoincrement=False)


def partial(index: str, columns: list[str], where: str) -> None:
    """Make an index of some rows of the outbox."""
    op.create_index(
        index, "holdfast_outbox", columns, postgresql_where=sa.text(where), sqlite_where=sa.text(where)
    )
