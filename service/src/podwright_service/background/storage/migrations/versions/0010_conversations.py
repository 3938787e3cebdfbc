"""Conversations that the service keeps, and their turns."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column and the tables; services of the earlier release leave them empty."""
    op.add_column("podwright_states", sa.Column("turn", sa.JSON))
    op.create_table(
        "podwright_conversations",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("component", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("session", sa.String, nullable=False),
        sa.Column("state", sa.JSON, nullable=False),
        sa.Column("places", sa.Integer, nullable=False),
        sa.Column("turns", sa.Integer, nullable=False),
        sa.Column("messages", sa.Integer, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
        sa.UniqueConstraint(
            "component",
            "owner",
            "session",
            name="podwright_conversations_by_session",
        ),
    )
    op.create_index(
        "podwright_conversations_by_time",
        "podwright_conversations",
        ["component", "updated_at", "id"],
    )
    op.create_table(
        "podwright_turns",
        sa.Column("conversation", sa.String(32), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.String(32), nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("worker", sa.String(32)),
        sa.Column("waits_until", sa.Float),
        sa.Column("idempotency_key", sa.String(64)),
        sa.Column("fingerprint", sa.String(64)),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float),
        sa.Column("messages", sa.JSON),
        sa.Column("result", sa.JSON),
    )
    op.create_index("podwright_turns_by_run", "podwright_turns", ["run_id"])
    op.create_index(
        "podwright_turns_by_key", "podwright_turns", ["idempotency_key"]
    )
    waits = sa.text("ended_at IS NULL")
    op.create_index(
        "podwright_turns_waiting",
        "podwright_turns",
        ["conversation", "number"],
        sqlite_where=waits,
        postgresql_where=waits,
    )
