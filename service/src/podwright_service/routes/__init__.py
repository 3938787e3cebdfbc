"""The routes of the service, one module for each group."""

from podwright_service.routes import (
    blueprints,
    docs,
    estimates,
    health,
    info,
    metrics,
    openai,
    openapi,
    runs,
)

OPEN_ROUTERS = (health.router, docs.router)
"""Routes that require no API key."""
ROUTERS = (
    runs.router,
    blueprints.router,
    estimates.router,
    info.router,
    metrics.router,
    openapi.router,
)
OPENAI_ROUTERS = (openai.router, openai.models_router)
"""Routes that a setting can turn off."""

__all__ = ["OPENAI_ROUTERS", "OPEN_ROUTERS", "ROUTERS"]
