"""Who cancelled or resumed a run, and for notifications who started it."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the columns; services of the earlier release leave them empty."""
    op.add_column("podwright_runs", sa.Column("actions", sa.JSON))
    op.add_column("podwright_deliveries", sa.Column("caller", sa.String))
