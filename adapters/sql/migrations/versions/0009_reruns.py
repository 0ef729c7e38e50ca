"""Let runs be generations that keep what an earlier one did."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("rerun_of", "rerun_from"):
        op.add_column("holdfast_runs", sa.Column(name, bytewise(), nullable=True))
    op.add_column("holdfast_runs", sa.Column("kept", sa.Text(), nullable=True))


def bytewise() -> sa.types.TypeEngine[str]:
    """Text that is compared bytewise."""
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
