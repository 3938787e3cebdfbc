"""What the routes of one service share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request

from podwright.components import Component
from podwright_service.http.access.active_runs import ActiveRuns
from podwright_service.http.access.admission import Admission
from podwright_service.http.access.auth import ApiKeys
from podwright_service.http.access.shutdown import Lifecycle
from podwright_service.http.idempotency import IdempotencyStore
from podwright_service.inline.policy import InlinePolicy
from podwright_service.observability import Observability
from podwright_service.saved_states import SavedStates
from podwright_service.settings import Settings

if TYPE_CHECKING:
    from podwright.mcp.server import MCPServer
    from podwright_service.background.worker import BackgroundWorker


@dataclass(frozen=True, slots=True)
class Runtime:
    """The parts of a service; `app.state.runtime` of its application."""

    component: Component
    """The served component."""
    settings: Settings
    models: tuple[str, ...]
    """Names of the models that answer."""
    policy: InlinePolicy
    mcp: Mapping[str, MCPServer]
    """The MCP servers that its runs may call, by name."""
    api_keys: ApiKeys
    admission: Admission
    active_runs: ActiveRuns
    idempotency: IdempotencyStore
    states: SavedStates
    """Those of runs that have stopped or wait for a person."""
    lifecycle: Lifecycle
    observability: Observability
    background: BackgroundWorker | None
    """None if the service has no database for background runs."""


def get_runtime(request: Request) -> Runtime:
    """The runtime of the service that handles a request."""
    return request.app.state.runtime
