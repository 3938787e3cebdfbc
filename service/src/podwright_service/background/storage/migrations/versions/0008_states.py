"""Who owns a run, and the states of stopped runs of requests."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column and the table; services of the earlier release leave them empty."""
    op.add_column("podwright_runs", sa.Column("owner", sa.String))
    op.create_table(
        "podwright_states",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("component", sa.String, nullable=False),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("context", sa.JSON, nullable=False),
        sa.Column("resume_path", sa.JSON),
        sa.Column("question", sa.JSON),
        sa.Column("used_at", sa.Float),
    )
    op.create_index(
        "podwright_states_by_time", "podwright_states", ["expires_at"]
    )
