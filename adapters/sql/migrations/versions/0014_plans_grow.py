"""Suspended stages and children: what jobs wait for, and which runs belong to which."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

ENDED = "('completed', 'failed', 'cancelled')"


def upgrade() -> None:
    op.add_column("holdfast_runs", name("parent", nullable=True))
    op.add_column("holdfast_runs", name("close_policy", default="cancel"))
    op.add_column("holdfast_runs", number("children", default="0"))
    op.add_column("holdfast_jobs", name("waits_for", nullable=True))
    op.add_column("holdfast_jobs", number("check_after", nullable=True))
    op.add_column("holdfast_jobs", number("give_up_at", nullable=True))
    index(
        "holdfast_runs_children", "holdfast_runs", ["parent"], f"parent IS NOT NULL AND status NOT IN {ENDED}"
    )
    index("holdfast_jobs_external", "holdfast_jobs", ["namespace", "waits_for"], "kind = 'check'")
    index("holdfast_jobs_owed", "holdfast_jobs", ["run", "number"], "state = 'owed'")


def name(column: str, *, nullable: bool = False, default: str | None = None) -> sa.Column[str]:
    """Text that is compared, bytewise."""
    kind = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    return sa.Column(column, kind, nullable=nullable, server_default=default)


def number(column: str, *, nullable: bool = False, default: str | None = None) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger(), nullable=nullable, autoincrement=False, server_default=default)


def index(title: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(title, table, columns, postgresql_where=sa.text(where), sqlite_where=sa.text(where))
