"""Liveness and readiness."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from podwright_service.http.schemas import Status
from podwright_service.runtime import get_runtime

router = APIRouter(tags=["health"])


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health() -> Status:
    """Liveness: the process answers; this depends on nothing outside it."""
    return Status(status="ok")


@router.head("/ready", include_in_schema=False)
@router.get(
    "/ready",
    responses={
        503: {
            "model": Status,
            "description": "The service is starting or draining.",
        }
    },
)
async def ready(request: Request, response: Response) -> Status:
    """Readiness: a run is accepted.

    A service at capacity stays ready: if every full pod left the load balancer, the others would get all of the load.
    """
    state = get_runtime(request).lifecycle.state
    if state != "ready":
        response.status_code = 503
    return Status(status=state)
