"""Indexes that do not slow down with the number of runs, and vacuum settings for PostgreSQL."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

RUNS = "podwright_runs"
OPEN = sa.text(
    "status IN ('queued', 'running', 'waiting_for_approval', 'interrupted')"
)
FAILED = sa.text("status IN ('failed', 'cancelled')")
# room for new versions of a row on its page; and autovacuum cleans up as soon as there are some thousand dead rows
RUNS_STORAGE = "fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000"
EVENTS_STORAGE = "autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05"


def upgrade() -> None:
    """Replace the indexes."""
    op.create_index(
        "podwright_runs_by_component", RUNS, ["component", "created_at", "id"]
    )
    for name, columns, condition in (
        (
            "podwright_runs_open",
            ["component", "status", "digest", "created_at"],
            OPEN,
        ),
        ("podwright_runs_failed", ["created_at", "id"], FAILED),
    ):
        op.create_index(
            name,
            RUNS,
            columns,
            postgresql_where=condition,
            sqlite_where=condition,
        )
    # last, because it locks out even those who read
    op.drop_index("podwright_runs_by_status")
    op.drop_index("podwright_runs_by_worker")
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER TABLE {RUNS} SET ({RUNS_STORAGE})")
        op.execute(f"ALTER TABLE podwright_run_events SET ({EVENTS_STORAGE})")
