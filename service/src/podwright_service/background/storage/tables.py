"""The tables of background runs, the same in SQLite and PostgreSQL; the migrations create them."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    text,
)

from podwright.connection.schemas import RunStatus

is_open = text(
    "status IN ('queued', 'running', 'waiting_for_approval', 'interrupted')"
)
is_unsuccessful = text("status IN ('failed', 'cancelled')")
"""Conditions of partial indexes. A query has them word for word, because a database finds the index by them."""
OPEN: tuple[RunStatus, ...] = (
    "queued",
    "running",
    "waiting_for_approval",
    "interrupted",
)
UNSUCCESSFUL: tuple[RunStatus, ...] = ("failed", "cancelled")
"""The statuses in these conditions. `interrupted` is in `OPEN`, because a person must act, and also in `ENDED` of
`http/schemas.py`, so that the run is deleted if nobody does."""

metadata = MetaData()

runs = Table(
    "podwright_runs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("component", String, nullable=False),
    Column(
        "digest",
        String,
        nullable=False,
        comment="digest of the blueprint that the run began with, or was moved to",
    ),
    Column("status", String(20), nullable=False, default="queued"),
    Column(
        "request",
        JSON,
        nullable=False,
        comment="what it is to do, and within which limits",
    ),
    Column("origin", JSON, comment="where it comes from, and for whom it is"),
    Column(
        "owner",
        String,
        comment="what identifies the caller; null of runs that older releases have added",
    ),
    Column(
        "idempotency_key",
        String(64),
        comment="SHA-256 of the caller and its key, if it sent one",
    ),
    Column(
        "fingerprint",
        String(64),
        comment="SHA-256 of the request with that key",
    ),
    Column(
        "created_at",
        Float,
        nullable=False,
        comment="Unix time in seconds, as all times",
    ),
    Column(
        "queued_at",
        Float,
        nullable=False,
        comment="when it last began to wait for a process or an approval",
    ),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column(
        "attempt",
        Integer,
        nullable=False,
        default=0,
        comment="number of the last attempt; 0 before the first",
    ),
    Column(
        "takeovers",
        Integer,
        nullable=False,
        default=0,
        comment="processes that ended in it, in succession",
    ),
    Column("worker", String(32), comment="the process that performs it"),
    Column(
        "seconds",
        Float,
        nullable=False,
        default=0.0,
        comment="how long its attempts ran that were not killed",
    ),
    Column("traceparent", String(55), comment="the span of the last attempt"),
    Column("cancel_requested", Boolean, nullable=False, default=False),
    Column(
        "repeat_calls",
        Boolean,
        nullable=False,
        default=False,
        comment="a person accepts repeated tool calls",
    ),
    Column("approval", JSON, comment="what it waits for: message and path"),
    Column(
        "decisions",
        JSON,
        nullable=False,
        default=list,
        comment="what persons have decided",
    ),
    Column(
        "seq",
        Integer,
        nullable=False,
        default=0,
        comment="how many events it has",
    ),
    Column("usage", JSON, nullable=False, default=dict),
    Column("result", JSON),
    Column(
        "messages",
        JSON,
        comment="the conversation after it; null of runs of older releases",
    ),
    Column("problem", JSON),
    Column(
        "webhook",
        String(7),
        comment="what the webhook is told: `status`, or `content` too; null: it is not called",
    ),
    Column("metadata", JSON, comment="what else its caller says of it"),
    Column(
        "actions",
        JSON,
        comment="who cancelled, resumed or moved it, and when; decisions are beside them",
    ),
    UniqueConstraint(
        "component", "idempotency_key", name="podwright_runs_by_key"
    ),
    # The columns of an index on all runs never change. An index that depends on the status has a condition, and so has
    # few runs: each change of a run adds an entry to it, and many entries would slow down the runs after it.
    Index("podwright_runs_by_time", "created_at", "id"),
    Index("podwright_runs_by_component", "component", "created_at", "id"),
    Index(
        "podwright_runs_open",
        "component",
        "status",
        "digest",
        "created_at",
        postgresql_where=is_open,
        sqlite_where=is_open,
    ),
    # failed and cancelled runs
    Index(
        "podwright_runs_failed",
        "created_at",
        "id",
        postgresql_where=is_unsuccessful,
        sqlite_where=is_unsuccessful,
    ),
)

kept_blueprints = Table(
    "podwright_blueprints",
    metadata,
    Column("digest", String, primary_key=True),
    Column("component", String, nullable=False),
    Column("blueprint", JSON, nullable=False),
    Column(
        "served_until",
        Float,
        nullable=False,
        comment="when no process performs runs with it, unless one says again that it does",
    ),
)
"""The blueprints of runs: what a service compares that has another one. There are few."""

states = Table(
    "podwright_states",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("component", String, nullable=False),
    Column(
        "digest",
        String,
        nullable=False,
        comment="of the blueprints of the component and its parts",
    ),
    Column(
        "owner",
        String,
        nullable=False,
        comment="what identifies the caller; empty without API keys",
    ),
    Column("expires_at", Float, nullable=False),
    Column("context", JSON, nullable=False),
    Column("resume_path", JSON(none_as_null=True)),
    Column("question", JSON(none_as_null=True)),
    Column("used_at", Float, comment="when a run went on from it"),
    Column(
        "turn",
        JSON(none_as_null=True),
        comment="the turn of a conversation that the run is",
    ),
    Index("podwright_states_by_time", "expires_at"),
)
"""The states of runs of requests that have stopped, or wait for a person; of a sealed one only that it was used."""

workers = Table(
    "podwright_workers",
    metadata,
    Column("id", String(32), primary_key=True),
    Column(
        "lease_until",
        Float,
        nullable=False,
        comment="when other processes may take its runs over",
    ),
)

deliveries = Table(
    "podwright_deliveries",
    metadata,
    Column("id", String(36), primary_key=True, comment="the `webhook-id`"),
    Column("component", String, nullable=False),
    Column("run_id", String(32), nullable=False),
    Column("status", String(20), nullable=False, comment="that of the run"),
    Column(
        "attempt", Integer, nullable=False, comment="the run's last attempt"
    ),
    Column("traceparent", String(55), comment="the span of that attempt"),
    Column(
        "content",
        JSON,
        comment="the approval, result or problem of the run, if the webhook is told",
    ),
    Column(
        "caller", String, comment="the name of the key that started the run"
    ),
    Column("created_at", Float, nullable=False),
    Column(
        "due_at",
        Float,
        nullable=False,
        comment="when it may be claimed for the next request",
    ),
    Column(
        "requests",
        Integer,
        nullable=False,
        default=0,
        comment="how many have begun",
    ),
    Index("podwright_deliveries_due", "component", "due_at"),
)
"""Notifications that the webhook has not accepted yet."""

run_events = Table(
    "podwright_run_events",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("event", JSON, nullable=False),
)

conversations = Table(
    "podwright_conversations",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("component", String, nullable=False),
    Column(
        "owner",
        String,
        nullable=False,
        comment="what identifies the caller; empty without API keys",
    ),
    Column("session", String, nullable=False, comment="the caller's name"),
    Column(
        "state",
        JSON,
        nullable=False,
        default=dict,
        comment="what functions of the last turn have left for the next one",
    ),
    Column(
        "places",
        Integer,
        nullable=False,
        default=0,
        comment="how many turns have been asked for: the number of the next",
    ),
    Column("turns", Integer, nullable=False, default=0),
    Column("messages", Integer, nullable=False, default=0),
    Column(
        "size",
        BigInteger,
        nullable=False,
        default=0,
        comment="bytes of its messages as JSON",
    ),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False, comment="end of the last turn"),
    UniqueConstraint(
        "component",
        "owner",
        "session",
        name="podwright_conversations_by_session",
    ),
    Index("podwright_conversations_by_time", "component", "updated_at", "id"),
)

turns = Table(
    "podwright_turns",
    metadata,
    Column("conversation", String(32), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("run_id", String(32), nullable=False),
    Column("user", String, nullable=False, comment="for whom the run is"),
    Column(
        "worker",
        String(32),
        comment="the process that performs it; null of a background run, and while it waits for a person",
    ),
    Column(
        "waits_until",
        Float,
        comment="until when it holds its place for a person",
    ),
    Column(
        "idempotency_key",
        String(64),
        comment="SHA-256 of the caller and its key, if it sent one",
    ),
    Column(
        "fingerprint",
        String(64),
        comment="SHA-256 of the request with that key",
    ),
    Column("created_at", Float, nullable=False),
    Column("ended_at", Float, comment="null while it waits or runs"),
    Column("messages", JSON(none_as_null=True), comment="its own"),
    Column(
        "result",
        JSON(none_as_null=True),
        comment="that of the run, for a request that is repeated",
    ),
    Index("podwright_turns_by_run", "run_id"),
    Index("podwright_turns_by_key", "idempotency_key"),
    Index(
        "podwright_turns_waiting",
        "conversation",
        "number",
        postgresql_where=text("ended_at IS NULL"),
        sqlite_where=text("ended_at IS NULL"),
    ),
)
"""The turns of conversations: those that have ended are the conversation, the others its queue."""
