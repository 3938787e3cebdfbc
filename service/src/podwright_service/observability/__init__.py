"""What the operator sees of runs and requests: metrics, spans and log lines."""

from podwright_service.observability.logging import configure as configure_logging
from podwright_service.observability.telemetry import Observability, RequestTelemetryMiddleware

__all__ = ["Observability", "RequestTelemetryMiddleware", "configure_logging"]
