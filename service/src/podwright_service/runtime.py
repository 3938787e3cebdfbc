"""What the routes of one service share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request

from podwright.components import Component
from podwright_service.active_runs import ActiveRuns
from podwright_service.admission import Admission
from podwright_service.auth import ApiKeys
from podwright_service.idempotency import IdempotencyStore
from podwright_service.inline_blueprints import InlinePolicy
from podwright_service.observability import Observability
from podwright_service.settings import Settings
from podwright_service.shutdown import Lifecycle

if TYPE_CHECKING:
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
    api_keys: ApiKeys
    admission: Admission
    active_runs: ActiveRuns
    idempotency: IdempotencyStore
    lifecycle: Lifecycle
    observability: Observability
    background: BackgroundWorker | None
    """None if the service has no database for background runs."""


def get_runtime(request: Request) -> Runtime:
    """The runtime of the service that handles a request."""
    return request.app.state.runtime
