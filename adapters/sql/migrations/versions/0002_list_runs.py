"""List runs by when they were created, by workflow, by status and by attributes."""

import json
from hashlib import blake2b
from typing import cast

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

AT_ONCE = 1_000


def upgrade() -> None:
    op.drop_index("holdfast_runs_listed", "holdfast_runs")
    op.create_index("holdfast_runs_listed", "holdfast_runs", ["namespace", "created_at", "key"])
    op.create_index(
        "holdfast_runs_by_workflow",
        "holdfast_runs",
        ["namespace", "workflow", "status", "created_at", "key"],
    )
    op.create_index("holdfast_runs_by_status", "holdfast_runs", ["namespace", "status", "created_at", "key"])
    op.create_table(
        "holdfast_attributes",
        name("pair"),
        sa.Column("created_at", sa.BigInteger(), nullable=False, autoincrement=False),
        name("run"),
        sa.PrimaryKeyConstraint("pair", "created_at", "run"),
    )
    fill_attributes()


def name(column: str) -> sa.Column[str]:
    """Text that is compared, bytewise."""
    return sa.Column(column, sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False)


def fill_attributes() -> None:
    """Index the attributes of the runs that there are, some at a time."""
    connection = op.get_bind()
    read = sa.text(
        "SELECT key, namespace, created_at, attributes FROM holdfast_runs "
        "WHERE attributes IS NOT NULL AND key > :after ORDER BY key LIMIT :limit"
    )
    write = sa.text(
        "INSERT INTO holdfast_attributes (pair, created_at, run) VALUES (:pair, :created_at, :run)"
    )
    after = ""
    while found := connection.execute(read, {"after": after, "limit": AT_ONCE}).all():
        rows = [
            {"pair": pair(namespace, *attribute), "created_at": created_at, "run": key}
            for key, namespace, created_at, attributes in found
            for attribute in texts(attributes)
        ]
        if rows:
            connection.execute(write, rows)
        after = found[-1][0]


def texts(attributes: str) -> list[tuple[str, str]]:
    try:
        found = json.loads(attributes)
    except (ValueError, RecursionError):
        return []
    items = cast("dict[str, object]", found).items() if isinstance(found, dict) else ()
    return [(name, text) for name, text in items if isinstance(text, str)]


def pair(namespace: str, name: str, text: str) -> str:
    """Return what stands for an attribute."""
    canonical = json.dumps([namespace, name, text], separators=(",", ":"))
    return blake2b(canonical.encode(), digest_size=16).hexdigest()
