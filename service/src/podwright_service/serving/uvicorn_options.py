"""How uvicorn serves, in one process and in each of several."""

from __future__ import annotations

from typing import Any

from podwright_service.http.access.shutdown import RESPONSE_SECONDS
from podwright_service.serving.http_protocol import ServiceHttpProtocol
from podwright_service.settings import Settings

KEEP_ALIVE = 75
"""Seconds that an idle connection is kept open: longer than load balancers keep theirs (60 by default in nginx and
most clouds), because a connection that the service closes may just carry a request."""


def uvicorn_options(settings: Settings) -> dict[str, Any]:
    """The options of `uvicorn.Config` that one and several processes share."""
    return {
        "http": ServiceHttpProtocol,
        "lifespan": "on",
        "ws": "none",
        "server_header": False,
        "log_config": None,
        "access_log": False,
        "timeout_keep_alive": KEEP_ALIVE,
        "timeout_graceful_shutdown": settings.shutdown_timeout
        + RESPONSE_SECONDS,
    }
