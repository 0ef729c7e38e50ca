"""Runs know which of their messages nobody has received, and which channels they have closed."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("holdfast_runs", sa.Column("mailbox", sa.Text(), nullable=True))
