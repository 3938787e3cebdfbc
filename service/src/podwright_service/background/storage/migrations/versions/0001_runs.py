"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "podwright_runs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("component", sa.String, nullable=False),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("idempotency_key", sa.String(64)),
        sa.Column("fingerprint", sa.String(64)),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("queued_at", sa.Float, nullable=False),
        sa.Column("started_at", sa.Float),
        sa.Column("ended_at", sa.Float),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("takeovers", sa.Integer, nullable=False),
        sa.Column("worker", sa.String(32)),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("traceparent", sa.String(55)),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("repeat_calls", sa.Boolean, nullable=False),
        sa.Column("approval", sa.JSON),
        sa.Column("decisions", sa.JSON, nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("usage", sa.JSON, nullable=False),
        sa.Column("result", sa.JSON),
        sa.Column("problem", sa.JSON),
        sa.UniqueConstraint(
            "component", "idempotency_key", name="podwright_runs_by_key"
        ),
    )
    op.create_index(
        "podwright_runs_by_status", "podwright_runs", ["status", "created_at"]
    )
    op.create_index(
        "podwright_runs_by_time", "podwright_runs", ["created_at", "id"]
    )
    op.create_index("podwright_runs_by_worker", "podwright_runs", ["worker"])
    op.create_table(
        "podwright_workers",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("lease_until", sa.Float, nullable=False),
    )
    op.create_table(
        "podwright_run_events",
        sa.Column("run_id", sa.String(32), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("event", sa.JSON, nullable=False),
    )
