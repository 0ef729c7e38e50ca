"""What a run is found by is found by the run, so that it can go with it."""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("holdfast_attributes_of_run", "holdfast_attributes", ["run"])
