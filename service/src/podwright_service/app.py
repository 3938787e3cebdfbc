"""The whole application on one screen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from functools import partial

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from podwright import __version__
from podwright.components import Component
from podwright.models import pricing, resolve
from podwright_service import problems
from podwright_service.admission import AdmissionMiddleware
from podwright_service.auth import PATHS, AuthenticationMiddleware, Keys
from podwright_service.docs import DocsPage
from podwright_service.doors import Doors
from podwright_service.health import Health
from podwright_service.inline_blueprints import models_of
from podwright_service.observability import Observability, RequestTelemetryMiddleware
from podwright_service.openapi import Documentation
from podwright_service.remotes import remotes_in
from podwright_service.routes import Plain, Routes
from podwright_service.settings import Settings

UNTRACED = frozenset({"/health", "/ready", "/metrics"})


def create_app(settings: Settings, component: Component) -> FastAPI:
    """The ASGI application that serves a component.

    `app.state.health` is its `Health`, `app.state.under_way` the runs that requests wait for, and
    `app.state.admission` counts them.

    Args:
        settings: All that can be set.
        component: What is served.

    Raises:
        PodwrightError: The settings do not fit the component, hold no sound keys, or name a model that nobody provides;
            or the price file is wrong.
    """
    answering = [resolve(settings.model)] if settings.model else models_of(component)
    models = list(dict.fromkeys(model.name for model in answering))
    for model in models:
        if not model.startswith("offline/"):  # reading the price tables would hold up the first run, and all others
            pricing.warm(model)
    keys = Keys(settings)
    health, routes = Health(), Routes(component, settings, models)
    observability = Observability(
        component, settings, routes.allowed, answering, remotes_in(component, *routes.allowed.agents.values())
    )
    observability.metrics.track(routes.admission)
    routes.of_served, routes.of_posted = observability.subscribers, observability.inline_subscribers
    docs = Documentation(component, routes.allowed, settings, keys.needed)
    app = FastAPI(
        title=settings.title or component.name,
        description=component.description,
        version=__version__,
        lifespan=_lifespan(health, observability),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={
            "tracing": observability.tracer_provider is not None,
            "tracer_provider": observability.tracer_provider,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
            "exclude": _is_untraced,
        },
    )
    app.state.health, app.state.under_way = health, routes.under_way
    app.state.admission = routes.admission
    app.state.doors = Doors(keys, routes.admission, PATHS, observability.metrics.observe_request)
    problems.install(app)
    app.add_middleware(AdmissionMiddleware, admission=routes.admission)
    if keys.needed:  # added after the other door, so asked before it: who may not call takes nobody's place
        app.add_middleware(AuthenticationMiddleware, keys=keys)
    app.add_middleware(RequestTelemetryMiddleware, observability=observability)  # outermost

    _add_routes(app, health, routes, observability, docs)
    return app


def _is_untraced(scope: Scope) -> bool:
    return scope["path"] in UNTRACED


def _lifespan(health: Health, observability: Observability):
    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        try:
            async with health.lifespan(app):
                yield
        finally:
            await asyncio.to_thread(observability.shutdown)

    return lifespan


def _add_routes(
    app: FastAPI, health: Health, routes: Routes, observability: Observability, docs: Documentation
) -> None:
    async def metrics(request: Request) -> Response:
        content, media_type = observability.metrics.render(request.headers.get("accept", ""))
        return Response(content, headers={"content-type": media_type, "cache-control": "no-store"})

    add = partial(app.router.add_api_route, route_class_override=Plain)  # what others add is as FastAPI has it
    # they are looked through in this order
    add("/run", routes.run, methods=["POST"], **docs.run)
    add("/run/stream", routes.run_stream, methods=["POST"], **docs.run_stream)
    add("/run-blueprint", routes.run_blueprint, methods=["POST"], **docs.run_blueprint)
    add("/health", health.health, **docs.health)
    add("/ready", health.ready, **docs.ready)
    for path, endpoint in (("/health", health.health), ("/ready", health.ready)):
        add(path, endpoint, methods=["HEAD"], include_in_schema=False)
    add("/info", routes.info, **docs.info)
    add("/metrics", metrics, **docs.metrics)
    add("/validate-blueprint", routes.validate_blueprint, methods=["POST"], **docs.validate_blueprint)
    add("/docs", DocsPage().page, include_in_schema=False)
    docs.attach(app)
