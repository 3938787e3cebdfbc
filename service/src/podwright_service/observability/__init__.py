"""Spans, metrics and log lines of one service: those of runs from their events, those of requests from middleware."""

from __future__ import annotations

from collections.abc import Collection

from podwright import __version__, blueprints
from podwright.components import Agent, Component, Conductor
from podwright.components.base import ModelComponent
from podwright.components.remote import PROPAGATORS
from podwright.events import Subscriber
from podwright.models import Model
from podwright_service.inline_blueprints import InlinePolicy
from podwright_service.observability import semconv, tracing
from podwright_service.observability.logging import configure_logging, log_runs, logging_config
from podwright_service.observability.requests import RequestTelemetryMiddleware
from podwright_service.observability.run_spans import RunSpans
from podwright_service.paths import PATHS
from podwright_service.remotes import everything_in
from podwright_service.settings import Settings

__all__ = ["Observability", "RequestTelemetryMiddleware", "configure_logging", "logging_config"]


class Observability:
    """The telemetry of one service.

    Args:
        component: The served component.
        settings: What is logged.
        policy: What inline blueprints may use.
        models: The models that runs call.
        remotes: Names of the components that run in other containers.

    Raises:
        ConfigurationError: An `OTEL_*` variable has a value that is not supported.
    """

    def __init__(
        self,
        component: Component,
        settings: Settings,
        policy: InlinePolicy,
        models: Collection[Model],
        remotes: Collection[str] = (),
    ) -> None:
        # Imported late: prometheus_client reads PROMETHEUS_MULTIPROC_DIR at its import.
        from podwright_service.observability.metrics import Metrics, Part

        digest = blueprints.digest(component.to_blueprint())
        components = list(everything_in(component))
        self.metrics = Metrics(
            component.name,
            component.kind,
            version=__version__,
            digest=digest,
            components=[
                Part(part.name, part.kind, _model_names(part, settings), tuple(_tool_names(part)))
                for part in components
            ],
            models={*(model.name for model in models), *policy.models, *component.models()},
            tools={*policy.tools, *(name for part in components for name in _tool_names(part))},
            routes=PATHS,
        )
        self.metrics.begin_inline(policy.models, list(policy.tools))
        resource = {
            "service.name": component.name,
            "service.version": __version__,
            semconv.COMPONENT_KIND: component.kind,
            semconv.BLUEPRINT_DIGEST: digest,
        }
        self.tracer_provider = tracing.create_tracer_provider(resource)
        """The SDK's tracer provider; None if the environment asks for no spans."""
        # Spans come last: a run is counted and logged while its span is the current one.
        common = (log_runs(settings), *self._spans(models, remotes))
        self.subscribers: tuple[Subscriber, ...] = (self.metrics.subscriber(), *common)
        """For the runs of the served component."""
        self.inline_subscribers: tuple[Subscriber, ...] = (self.metrics.subscriber(inline=True), *common)
        """For the runs of inline blueprints."""

    def shutdown(self) -> None:
        """Export the remaining spans and stop the exporters. Blocks for some seconds at most."""
        if self.tracer_provider:
            tracing.shut_down(self.tracer_provider)

    def _spans(self, models: Collection[Model], remotes: Collection[str]) -> tuple[Subscriber, ...]:
        if self.tracer_provider is None:
            return ()
        if tracing.inject_trace_context not in PROPAGATORS:
            PROPAGATORS.append(tracing.inject_trace_context)
        spans = RunSpans(
            self.tracer_provider.get_tracer("podwright", __version__),
            capture_content=tracing.capture_content(),
            remotes=remotes,
            servers=_servers(models),
        )
        return (spans,)


def _servers(models: Collection[Model]) -> dict[str, tuple[str, int]]:
    """Host and port of the models' servers; models that share a name but not a server are left out."""
    servers: dict[str, set[tuple[str, int] | None]] = {}
    for model in models:
        servers.setdefault(model.name, set()).add(model.address())
    return {name: address for name, (address, *others) in servers.items() if address and not others}


def _model_names(part: Component, settings: Settings) -> tuple[str, ...]:
    """The models that a component calls itself."""
    if not isinstance(part, ModelComponent):
        return ()
    return (settings.model,) if settings.model else tuple(model.name for model in part.chat_models.all())


def _tool_names(part: Component) -> Collection[str]:
    if isinstance(part, Agent):
        return part.tools
    return part.tool_names if isinstance(part, Conductor) else ()
