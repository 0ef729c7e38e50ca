"""Annotations, artifacts and calls of models; notes in the order in which they were said."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("holdfast_notes_in_order", "holdfast_notes", ["run", "at", "id"])
    partial_index(
        "holdfast_notes_progress", "holdfast_notes", ["run", "job", "at", "id"], "kind = 'progress'"
    )
    op.create_table(
        "holdfast_annotations",
        *(name("run"), number("at"), name("id")),
        *(name("namespace"), name("name"), text("value"), name("scope")),
        *(name("node", nullable=True), number("item", nullable=True)),
        *(number("job", nullable=True), number("epoch", nullable=True)),
        *(name("actor_kind"), name("actor_id"), name("actor_version"), text("reason")),
        name("key", nullable=True),
        sa.PrimaryKeyConstraint("run", "at", "id"),
    )
    columns = ["run", "key", "name"]
    partial_index(
        "holdfast_annotations_once", "holdfast_annotations", columns, "key IS NOT NULL", unique=True
    )
    op.create_table(
        "holdfast_artifacts",
        *(name("run"), number("job"), number("epoch"), name("name")),
        *(name("node"), number("item", nullable=True), number("at")),
        *(text("content_type"), number("size"), text("sha256"), text("blob")),
        sa.PrimaryKeyConstraint("run", "job", "epoch", "name"),
    )
    op.create_index("holdfast_artifacts_named", "holdfast_artifacts", ["run", "name", "job", "epoch"])
    op.create_table(
        "holdfast_ai_calls",
        *(name("run"), number("at"), name("id")),
        *(number("job"), number("epoch"), name("node"), number("item", nullable=True)),
        *(name("topic"), name("model"), name("kind")),
        *(number("input_tokens"), number("output_tokens")),
        *(number("cost", nullable=True), number("duration", nullable=True)),
        *(name("batch", nullable=True), number("batch_index", nullable=True)),
        *(text("prompt", nullable=True), text("prompt_blob", nullable=True)),
        *(text("response", nullable=True), text("response_blob", nullable=True)),
        *(text("error", nullable=True), text("metadata", nullable=True)),
        sa.PrimaryKeyConstraint("run", "at", "id"),
    )
    op.create_index("holdfast_ai_calls_of_topic", "holdfast_ai_calls", ["run", "topic", "at", "id"])
    columns = ["run", "batch", "batch_index"]
    partial_index(
        "holdfast_ai_calls_of_batch", "holdfast_ai_calls", columns, "batch IS NOT NULL", unique=True
    )


def partial_index(index: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    """An index of those rows of which this is true."""
    op.create_index(
        index, table, columns, unique=unique, postgresql_where=sa.text(where), sqlite_where=sa.text(where)
    )


def name(column: str, *, nullable: bool = False) -> sa.Column[str]:
    """Text that is compared, bytewise."""
    kind = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    return sa.Column(column, kind, nullable=nullable)


def text(column: str, *, nullable: bool = False) -> sa.Column[str]:
    """Text that is only stored."""
    return sa.Column(column, sa.Text(), nullable=nullable)


def number(column: str, *, nullable: bool = False) -> sa.Column[int]:
    """An integer."""
    return sa.Column(column, sa.BigInteger(), nullable=nullable, autoincrement=False)
