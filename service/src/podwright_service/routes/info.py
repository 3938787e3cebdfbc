"""The route that describes the service."""

from __future__ import annotations

import platform

from fastapi import APIRouter, Request

import podwright
from podwright import blueprints
from podwright.connection.schemas import Info
from podwright.folders.walks import (
    component_digest,
    remotes_in,
    reported_models_of,
    tool_names_of,
)
from podwright.models.prices.price_lists import list_versions
from podwright_service.http.query import CheckedRoute
from podwright_service.model_checks import clients_of
from podwright_service.runtime import Runtime, get_runtime
from podwright_service.settings import Settings

router = APIRouter(tags=["info"], route_class=CheckedRoute)
_LIMITS = {
    name for name in Settings.model_fields if name.startswith(("max_", "run_"))
}


def _previous_digests(runtime: Runtime) -> list[str]:
    if runtime.background is None:
        return []
    return list(runtime.background.previous.components)


@router.get("/info")
async def info(request: Request) -> Info:
    """Describe the service: its component, its versions, and what inline blueprints may name."""
    runtime = get_runtime(request)
    component = runtime.component
    policy = runtime.policy
    settings = runtime.settings
    blueprint = component.to_blueprint()
    return Info(
        name=component.name,
        kind=component.kind,
        title=settings.title or component.name,
        description=component.description,
        versions={
            "podwright": podwright.__version__,
            "blueprint": blueprints.VERSION,
            "python": platform.python_version(),
            **list_versions(),
        },
        blueprint=blueprint,
        inputs=blueprint.get("inputs", {}),
        response_schema=component.response_schema,
        digest=component_digest(component),
        previous=_previous_digests(runtime),
        models={
            "named": component.models(),
            "effective": list(runtime.models),
            "reported": reported_models_of(component),
        },
        clients=clients_of(runtime.models),
        tools=tool_names_of(component),
        agents=remotes_in(component),
        mcp={name: server.is_up for name, server in runtime.mcp.items()},
        accepts={
            "models": list(policy.models),
            "tools": list(policy.tools),
            "agents": list(policy.agents),
            "mcp": policy.mcp.names(),
            "conditions": list(policy.conditions),
            "parameters": settings.allowed_parameters,
        },
        openai=settings.openai_routes,
        limits=settings.model_dump(include=_LIMITS),
    )
