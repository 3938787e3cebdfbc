"""The blueprints of runs."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table; services of the earlier release leave it empty."""
    op.create_table(
        "podwright_blueprints",
        sa.Column("digest", sa.String, primary_key=True),
        sa.Column("component", sa.String, nullable=False),
        sa.Column("blueprint", sa.JSON, nullable=False),
        sa.Column("served_until", sa.Float, nullable=False),
    )
