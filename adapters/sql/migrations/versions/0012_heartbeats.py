"""Jobs know how long their bodies may be silent, and what bodies said with their heartbeats is found by job."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("heartbeat_timeout", "heartbeat_by"):
        op.add_column("holdfast_jobs", sa.Column(name, sa.BigInteger(), nullable=True))
    partial("holdfast_jobs_silent", "holdfast_jobs", ["heartbeat_by"], "heartbeat_by IS NOT NULL")
    partial(
        "holdfast_notes_heartbeats", "holdfast_notes", ["run", "job", "epoch", "id"], "kind = 'heartbeat'"
    )


def partial(index: str, table: str, columns: Sequence[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(index, table, columns, postgresql_where=where, sqlite_where=where)
