"""Notifications of runs."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the table, and the column that says of which runs there are notifications.

    Services of the earlier release leave the column empty, and notify nobody.
    """
    op.add_column("podwright_runs", sa.Column("webhook", sa.String(7)))
    op.create_table(
        "podwright_deliveries",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("component", sa.String, nullable=False),
        sa.Column("run_id", sa.String(32), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("traceparent", sa.String(55)),
        sa.Column("content", sa.JSON),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("due_at", sa.Float, nullable=False),
        sa.Column("requests", sa.Integer, nullable=False),
    )
    op.create_index(
        "podwright_deliveries_due",
        "podwright_deliveries",
        ["component", "due_at"],
    )
