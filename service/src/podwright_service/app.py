"""Assembles the application from its routes, middleware and shared parts."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import Route
from starlette.types import Scope

from podwright import __version__
from podwright.components import Component
from podwright.data.text import most_similar
from podwright.errors import ConfigurationError, ModelAuthenticationError
from podwright.folders.walks import remotes_in, reported_models_of
from podwright_service import background
from podwright_service.background.previous import Previous, load_previous
from podwright_service.http.access.active_runs import ActiveRuns
from podwright_service.http.access.admission import (
    Admission,
    AdmissionMiddleware,
)
from podwright_service.http.access.auth import ApiKeys, AuthenticationMiddleware
from podwright_service.http.access.hosts import HostMiddleware
from podwright_service.http.access.shutdown import (
    DrainMiddleware,
    Lifecycle,
    LifecycleMiddleware,
)
from podwright_service.http.errors.error_responses import add_exception_handlers
from podwright_service.http.idempotency import IdempotencyStore
from podwright_service.http.paths import MONITORING_PATHS, RELAY, path_in
from podwright_service.http.query import CheckedRoute
from podwright_service.inline.policy import inline_policy
from podwright_service.mcp_servers import close_servers, servers_of_service
from podwright_service.model_checks import (
    called_models,
    check_cost_limits,
    model_errors,
    price_warnings,
)
from podwright_service.observability import (
    Observability,
    RequestTelemetryMiddleware,
)
from podwright_service.preloading import preload
from podwright_service.routes import OPEN_ROUTERS, OPENAI_ROUTERS, ROUTERS
from podwright_service.routes.docs import static_files
from podwright_service.routes.openai_responses import openai_errors
from podwright_service.routes.openapi import extend_openapi
from podwright_service.routes.responses import EXPOSED_HEADERS, common_responses
from podwright_service.runtime import Runtime
from podwright_service.saved_states import SavedStates
from podwright_service.settings import Settings

if TYPE_CHECKING:
    from podwright_service.background.worker import BackgroundWorker
    from podwright_service.mcp_api.endpoint import MCPEndpoint

_log = logging.getLogger("podwright.service")


def create_app(settings: Settings, component: Component) -> FastAPI:
    """The ASGI application that serves a component; `app.state.runtime` is its `Runtime`.

    It may have further routes, and may be mounted in another application, which then enters `lifespan`. A model without
    its API key is logged.

    Raises:
        PodwrightError: The settings do not fit the component, the API keys are invalid, no installed provider serves
            a model, its base URL is missing or invalid, or the price file is wrong.
    """
    runtime = _check_and_build_runtime(settings, component)
    endpoint = _mcp_endpoint(settings, component)
    app = FastAPI(
        title=settings.title or component.name,
        description=component.description,
        version=__version__,
        lifespan=_lifespan_of(runtime, endpoint),
        # routes/openapi.py has the document
        openapi_url=None,
        # routes/docs.py has the page, without files from elsewhere
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={
            "tracing": runtime.observability.tracer_provider is not None,
            "tracer_provider": runtime.observability.tracer_provider,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
            "exclude": _not_traced,
        },
    )
    app.router.route_class = CheckedRoute
    app.state.runtime = runtime
    add_exception_handlers(app)
    _add_middleware(app, runtime)
    _add_routes(app, runtime)
    if endpoint is not None:
        app.router.routes.append(Route("/mcp", endpoint, methods=["POST"]))
    extend_openapi(app, component, runtime.policy, runtime.api_keys.required)
    return app


def _mcp_endpoint(
    settings: Settings, component: Component
) -> MCPEndpoint | None:
    """Return what serves `/mcp`; None if the service does not.

    Raises:
        ConfigurationError: The package is missing.
    """
    if not settings.mcp:
        return None
    try:
        from podwright_service.mcp_api.endpoint import MCPEndpoint
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"PODWRIGHT_MCP needs the package '{error.name}', which is not installed.",
            suggestion="Use the image 'full', or install podwright-service[mcp].",
        ) from error
    return MCPEndpoint(component, settings)


def _lifespan_of(
    runtime: Runtime, endpoint: MCPEndpoint | None
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return the lifespan of the application, around which MCP is served: a drain needs it until its end."""
    if endpoint is None:
        return runtime.lifecycle.lifespan

    @contextlib.asynccontextmanager
    async def both(app: FastAPI) -> AsyncGenerator[None]:
        async with endpoint.serving(), runtime.lifecycle.lifespan(app):
            yield

    return both


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """The lifespan of an application of `create_app` that is mounted in another one, which does not run it.

        @contextlib.asynccontextmanager
        async def parent_lifespan(parent: FastAPI) -> AsyncGenerator[None]:
            async with podwright_service.lifespan(app):
                yield

        parent = FastAPI(lifespan=parent_lifespan)
        parent.mount("/agent", app)

    Signals are left to the server of the other application: when it has stopped, the lifespans end.

    Args:
        app: The application that is mounted.
    """
    runtime: Runtime = app.state.runtime
    with runtime.lifecycle.signals_left():
        async with app.router.lifespan_context(app):
            yield


def _add_middleware(app: FastAPI, runtime: Runtime) -> None:
    """Add the middleware; what is added last is the outermost, and sees a request first."""
    settings = runtime.settings
    has_keys = runtime.api_keys.required
    app.add_middleware(
        RequestBodyLimitMiddleware, max_body_size=settings.max_body_bytes
    )
    app.add_middleware(
        AdmissionMiddleware, admission=runtime.admission, settings=settings
    )
    if has_keys:
        app.add_middleware(AuthenticationMiddleware, keys=runtime.api_keys)
    app.add_middleware(HostMiddleware, settings=settings, has_keys=has_keys)
    app.add_middleware(
        LifecycleMiddleware,
        lifecycle=runtime.lifecycle,
        component=runtime.component.name,
    )
    app.add_middleware(
        ExceptionMiddleware,
        handlers={HTTPException: app.exception_handlers[HTTPException]},
    )
    if settings.cors_origins:
        _allow_origins(app, settings.cors_origins)
    app.add_middleware(DrainMiddleware, lifecycle=runtime.lifecycle)
    app.add_middleware(
        RequestTelemetryMiddleware, observability=runtime.observability
    )


def _add_routes(app: FastAPI, runtime: Runtime) -> None:
    has_keys = runtime.api_keys.required
    routers = ROUTERS
    if runtime.background:
        from podwright_service.routes.background import (
            ROUTERS as BACKGROUND_ROUTERS,
        )

        routers = (*routers, *BACKGROUND_ROUTERS)
    if runtime.background and runtime.settings.conversations:
        from podwright_service.routes.conversations import router

        routers = (*routers, router)
    for router in routers:
        app.include_router(
            router, responses=common_responses(has_keys=has_keys)
        )
    if runtime.settings.openai_routes:
        denials = common_responses(has_keys=has_keys, describe=openai_errors)
        for router in OPENAI_ROUTERS:
            app.include_router(router, responses=denials)
    for router in OPEN_ROUTERS:
        app.include_router(router)
    app.mount("/docs/static", static_files)
    # FastAPI combines the routes when they are used first: not in the first request, and once for all processes
    for _ in iter_route_contexts(app.routes):
        pass


def _allow_origins(app: FastAPI, origins: list[str]) -> None:
    """Let web pages of these origins call the service, and read its errors, the unexpected ones included."""
    app.add_middleware(
        ServerErrorMiddleware, handler=app.exception_handlers[Exception]
    )
    methods = ["*"]
    headers = ["*"]
    app.add_middleware(
        CORSMiddleware,
        origins,
        methods,
        headers,
        expose_headers=EXPOSED_HEADERS,
    )


def _check_and_build_runtime(
    settings: Settings, component: Component
) -> Runtime:
    """The shared parts, once models, prices, limits and API keys are checked; what a run can do without is logged."""
    models = called_models(component, settings)
    names = tuple(dict.fromkeys(model.name for model in models))
    for error in model_errors(models):
        if not isinstance(error, ModelAuthenticationError):
            raise error
        _log.warning("%s %s", error.message, error.suggestion)
    mcp = servers_of_service(component, settings)
    policy = inline_policy(component, settings, mcp)
    # loads the prices now, because that would delay the first run
    reported = reported_models_of(component)
    for warning in price_warnings(models, policy.models, reported):
        _log.warning("%s", warning)
    check_cost_limits(component, settings, models)
    preload(component, policy, settings)
    api_keys = ApiKeys(settings)
    _check_metric_callers(settings, api_keys)
    admission = Admission(settings)
    active_runs = ActiveRuns()
    previous = load_previous(settings, component, mcp)
    earlier = previous.components.values()
    observability = Observability(
        component,
        settings,
        policy,
        [*models, *previous.models],
        remotes_in(component, *policy.agents.values(), *earlier),
        earlier,
        mcp,
    )
    observability.metrics.track(admission)
    background_worker = _background_worker(
        settings, component, observability, previous
    )
    return Runtime(
        component=component,
        settings=settings,
        models=names,
        policy=policy,
        mcp=mcp,
        api_keys=api_keys,
        admission=admission,
        active_runs=active_runs,
        idempotency=IdempotencyStore(settings),
        states=SavedStates(settings),
        lifecycle=Lifecycle(
            settings,
            active_runs,
            observability.start,
            observability.shutdown,
            observability.scrapes,
            background_worker,
            partial(close_servers, mcp.values()),
        ),
        observability=observability,
        background=background_worker,
    )


def _check_metric_callers(settings: Settings, api_keys: ApiKeys) -> None:
    """Log names of callers that are misspelled, or that nobody can have."""
    relays = not api_keys.required or any(
        RELAY in caller.scopes for caller in api_keys.callers
    )
    for name in settings.metric_callers:
        if name in api_keys.names:
            continue
        # it may be a caller of another container
        if relays and not most_similar(name, api_keys.names):
            continue
        _log.warning(
            "PODWRIGHT_METRIC_CALLERS names '%s', and no API key has this name.",
            name,
        )


def _background_worker(
    settings: Settings,
    component: Component,
    observability: Observability,
    previous: Previous,
) -> BackgroundWorker | None:
    background.check_webhook(settings)
    background.check_conversations(settings)
    if settings.runs_database is None:
        return None
    background.check_installed()
    # imported here, because SQLAlchemy takes time and memory, which a service without background runs does not need
    from podwright_service.background.storage.database import (
        database_url,
        migrate,
    )
    from podwright_service.background.worker import BackgroundWorker

    url = database_url(settings.runs_database.get_secret_value())
    if url.get_backend_name() == "sqlite":  # a database of this service alone
        migrate(url)
    return BackgroundWorker(
        url, component, settings, observability, previous=previous
    )


def _not_traced(scope: Scope) -> bool:
    return path_in(scope) in MONITORING_PATHS
