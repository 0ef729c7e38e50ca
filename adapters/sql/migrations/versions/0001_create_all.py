"""Create all tables."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ACTIVE = "status NOT IN ('completed', 'failed', 'cancelled')"


def name(column: str, *, nullable: bool = False) -> sa.Column[str]:
    """Text that is compared, bytewise."""
    return sa.Column(column, sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=nullable)


def words(column: str, *, nullable: bool = False) -> sa.Column[str]:
    """Text that is only stored."""
    return sa.Column(column, sa.Text(), nullable=nullable)


def number(column: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger(), nullable=nullable, autoincrement=False)


def partial(index: str, table: str, columns: Sequence[str | sa.TextClause], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(index, table, columns, postgresql_where=where, sqlite_where=where)


def storage(table: str, settings: Mapping[str, str]) -> None:
    if op.get_context().dialect.name == "postgresql":
        listed = ", ".join(f"{key} = {value}" for key, value in settings.items())
        op.execute(f"ALTER TABLE {table} SET ({listed})")


def upgrade() -> None:
    create_runs()
    create_jobs()
    create_what_runs_leave()
    create_the_rest()


def create_runs() -> None:
    op.create_table(
        "holdfast_runs",
        name("key"),
        name("namespace"),
        name("id"),
        number("generation"),
        name("workflow"),
        name("version"),
        name("plan"),
        name("status"),
        name("queue"),
        number("priority"),
        number("created_at"),
        number("updated_at"),
        number("ended_at", nullable=True),
        number("last_row"),
        number("last_job"),
        number("open_jobs"),
        words("progress"),
        words("result", nullable=True),
        words("error", nullable=True),
        words("attributes", nullable=True),
        sa.PrimaryKeyConstraint("key"),
        sa.UniqueConstraint("namespace", "id", "generation", name="holdfast_runs_name"),
    )
    op.create_index("holdfast_runs_listed", "holdfast_runs", ["namespace", "key"])
    partial("holdfast_runs_active", "holdfast_runs", ["key"], ACTIVE)
    storage("holdfast_runs", {"fillfactor": "60"})


def create_jobs() -> None:
    op.create_table(
        "holdfast_jobs",
        name("run"),
        number("number"),
        name("namespace"),
        name("queue"),
        name("definition"),
        name("kind"),
        name("node"),
        number("item", nullable=True),
        name("state"),
        number("priority"),
        number("wake_at", nullable=True),
        number("epoch"),
        number("attempts"),
        number("max_attempts"),
        name("session", nullable=True),
        number("leased_at", nullable=True),
        number("losses"),
        words("input"),
        sa.PrimaryKeyConstraint("run", "number"),
    )
    order: list[str | sa.TextClause] = [
        "namespace",
        "queue",
        "definition",
        sa.text("priority DESC"),
        "run",
        "number",
    ]
    partial("holdfast_jobs_claim", "holdfast_jobs", order, "state = 'queued'")
    partial("holdfast_jobs_sleeping", "holdfast_jobs", ["wake_at"], "state = 'sleeping'")
    partial("holdfast_jobs_leased", "holdfast_jobs", ["session"], "state = 'leased'")
    storage(
        "holdfast_jobs",
        {"autovacuum_vacuum_scale_factor": "0.02", "autovacuum_analyze_scale_factor": "0.1"},
    )


def create_what_runs_leave() -> None:
    op.create_table(
        "holdfast_history",
        name("run"),
        number("number"),
        name("type"),
        number("at"),
        name("node", nullable=True),
        number("item", nullable=True),
        number("epoch", nullable=True),
        words("payload", nullable=True),
        words("blob", nullable=True),
        words("data", nullable=True),
        sa.PrimaryKeyConstraint("run", "number"),
    )
    op.create_table(
        "holdfast_items",
        name("run"),
        name("node"),
        number("page"),
        words("items"),
        sa.PrimaryKeyConstraint("run", "node", "page"),
    )
    op.create_table(
        "holdfast_notes",
        name("run"),
        name("id"),
        number("job"),
        number("epoch"),
        number("at"),
        name("kind"),
        words("data"),
        sa.PrimaryKeyConstraint("run", "id"),
    )


def create_the_rest() -> None:
    op.create_table(
        "holdfast_plans",
        name("fingerprint"),
        name("workflow"),
        name("version"),
        words("body"),
        sa.PrimaryKeyConstraint("fingerprint"),
    )
    op.create_table(
        "holdfast_sessions",
        name("id"),
        words("host"),
        name("state"),
        number("opened_at"),
        number("expires_at"),
        sa.PrimaryKeyConstraint("id"),
    )
    partial("holdfast_sessions_open", "holdfast_sessions", ["id"], "state = 'open'")
    storage("holdfast_sessions", {"fillfactor": "50", "autovacuum_vacuum_scale_factor": "0.02"})
    op.create_table(
        "holdfast_replies",
        name("namespace"),
        name("key"),
        words("fingerprint"),
        words("body"),
        number("created_at"),
        sa.PrimaryKeyConstraint("namespace", "key"),
    )
    op.create_table(
        "holdfast_duties", name("name"), name("session"), number("until"), sa.PrimaryKeyConstraint("name")
    )
    storage("holdfast_duties", {"fillfactor": "50"})
    op.create_table("holdfast_receipts", name("id"), number("at"), sa.PrimaryKeyConstraint("id"))
