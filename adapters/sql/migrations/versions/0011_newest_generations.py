"""Tell the newest generations of runs from others without looking at runs that have only one."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    later = sa.text("generation > 1")
    op.create_index(
        "holdfast_runs_again",
        "holdfast_runs",
        ["namespace", "id", "generation"],
        postgresql_where=later,
        sqlite_where=later,
    )
