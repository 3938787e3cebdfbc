"""Where a run comes from, and for whom it is."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column; services of the earlier release leave it empty."""
    op.add_column("podwright_runs", sa.Column("origin", sa.JSON))
