"""Jobs know how long all their attempts together may take, and when the first of them began."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("timeout_total", "first_claimed_at"):
        op.add_column("holdfast_jobs", sa.Column(name, sa.BigInteger(), nullable=True))
