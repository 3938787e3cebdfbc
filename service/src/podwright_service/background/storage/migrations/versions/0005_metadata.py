"""What else the caller of a run says of it."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column; services of the earlier release leave it empty."""
    op.add_column("podwright_runs", sa.Column("metadata", sa.JSON))
