"""The route that Prometheus reads."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from podwright_service.runtime import get_runtime

router = APIRouter(tags=["metrics"])
_FORMATS = {
    media_type: {"schema": {"type": "string"}}
    for media_type in ("text/plain", "application/openmetrics-text")
}


@router.get(
    "/metrics", response_class=Response, responses={200: {"content": _FORMATS}}
)
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus, in the format that the header `Accept` prefers."""
    observability = get_runtime(request).observability
    observability.scrapes.note_scrape()
    # it reads files, and many series take a while
    content, media_type = await asyncio.to_thread(
        observability.metrics.render,
        request.headers.get("accept", ""),
    )
    return Response(
        content,
        headers={"content-type": media_type, "cache-control": "no-store"},
    )
