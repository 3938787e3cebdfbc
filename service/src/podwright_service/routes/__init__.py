"""The routes of the service, one module for each group."""

from podwright_service.routes import blueprints, docs, health, info, metrics, runs

OPEN_ROUTERS = (health.router, docs.router)
"""Routes that require no API key."""
ROUTERS = (runs.router, blueprints.router, info.router, metrics.router)

__all__ = ["OPEN_ROUTERS", "ROUTERS"]
