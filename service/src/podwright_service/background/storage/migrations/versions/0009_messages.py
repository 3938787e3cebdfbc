"""The conversation after a run that succeeded."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the column; services of the earlier release leave it empty."""
    op.add_column("podwright_runs", sa.Column("messages", sa.JSON))
