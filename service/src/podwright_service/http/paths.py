"""The routes of the service, and the scope of an API key that each requires."""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.types import Scope

OPENAI_PREFIX = "/v1/"
"""How the paths of the OpenAI-compatible routes begin."""

ALL_RUNS = "runs:all"
"""The scope with which a key with the scope `run` sees and changes the background runs of all callers."""

RELAY = "runs:relay"
"""The scope with which a key with the scope `run` says for which caller it calls."""

ERASE = "erase"
"""The scope with which a key deletes the conversations of a user, those of all callers."""

SCOPES: Mapping[str, tuple[str, ...]] = {
    "run": (
        "/run",
        "/run/stream",
        "/estimate",
        "/mcp",
        "/v1/models",
        "/v1/models/{model}",
        "/v1/chat/completions",
        "/v1/responses",
        "/runs",
        "/runs/{run_id}",
        "/runs/{run_id}/events",
        "/runs/{run_id}/cancel",
        "/runs/{run_id}/resume",
        "/runs/{run_id}/move",
        "/conversations",
        "/conversations/{session}",
    ),
    "approve": ("/runs/{run_id}/approve", "/runs/{run_id}/reject"),
    "blueprint": (
        "/run-blueprint",
        "/validate-blueprint",
        "/estimate-blueprint",
    ),
    "read": ("/info", "/metrics", "/openapi.json"),
    ALL_RUNS: (),
    RELAY: (),
    ERASE: (),
}
"""The paths that a key with each scope may use."""

PROBES = ("/health", "/ready")
"""Paths of health checks."""
MONITORING_PATHS = (*PROBES, "/metrics")
"""Paths that monitoring requests: not traced, and served until the end of a shutdown."""

OPEN_PATHS = (*PROBES, "/docs")
"""Paths that require no API key; every other path requires one, even if it does not exist."""

PATHS = (*OPEN_PATHS, *(path for paths in SCOPES.values() for path in paths))
"""All documented paths."""

SCOPE_OF: Mapping[str, str] = {
    path: scope for scope, paths in SCOPES.items() for path in paths
}

APPROVERS_READ = ("/runs", "/runs/{run_id}")
"""What a key with the scope `approve` alone may read: the runs that wait for an approval."""

_SESSION = re.compile(r"(?<=^/conversations/).+")
_RUN_ID = re.compile(r"(?<=^/runs/)[^/]+")
# the name of a model may have slashes
_MODEL = re.compile(r"(?<=^/v1/models/).+")


def path_in(scope: Scope) -> str:
    """Return the path of a request within the application, without the prefix at which another one mounts it.

    Routes are matched with this path, so what is allowed must be decided by it too.
    """
    # routes also match a path with a line break at its end, as `$` does in their patterns
    path: str = scope["path"].removesuffix("\n")
    mounted_at: str = scope.get("root_path", "")
    rest = path.removeprefix(mounted_at)
    if rest and not rest.startswith("/"):
        # it only begins with the same letters
        return path
    return rest


def route_of(path: str) -> str:
    """Return the documented path for the path of a request, such as `/runs/{run_id}`; an unknown path stays."""
    if path.startswith(OPENAI_PREFIX):
        return _MODEL.sub("{model}", path.rstrip("/"), count=1)
    if path.startswith("/conversations/"):
        return _SESSION.sub("{session}", path, count=1)
    return _RUN_ID.sub("{run_id}", path, count=1)


def scopes_of(method: str, path: str) -> tuple[str, ...]:
    """Return the scopes that allow a request, each of them alone; empty if every key does."""
    route = route_of(path)
    if route not in SCOPE_OF:
        return ()
    if method == "DELETE" and route == "/conversations":
        return (ERASE,)
    own = SCOPE_OF[route]
    if method == "GET" and route in APPROVERS_READ:
        return own, "approve"
    return (own,)
