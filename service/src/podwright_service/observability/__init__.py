"""Spans, metrics and log lines of one service: those of runs from their events, those of requests from middleware."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from podwright import __version__
from podwright.components import Component
from podwright.events import Subscriber
from podwright.folders.walks import (
    component_digest,
    reported_models_of,
    walk,
)
from podwright.models import Model, use_model
from podwright.run.component import ModelComponent
from podwright_service.http.paths import PATHS
from podwright_service.http.scrapes import Scrapes
from podwright_service.inline.policy import InlinePolicy
from podwright_service.observability import (
    exporters,
    output,
    semconv,
    tracing,
)
from podwright_service.observability.logging import (
    configure_logging,
    log_runs,
    logging_config,
)
from podwright_service.observability.metrics.otlp import OTLPMetrics
from podwright_service.observability.requests import RequestTelemetryMiddleware
from podwright_service.observability.run_spans import RunSpans
from podwright_service.otel_variables import (
    check_otel_variables,
    exporter_names,
)
from podwright_service.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from podwright.mcp.server import MCPServer

__all__ = [
    "Observability",
    "RequestTelemetryMiddleware",
    "configure_logging",
    "logging_config",
]


class Observability:
    """The telemetry of one service.

    Args:
        component: The served component.
        settings: What is logged.
        policy: What inline blueprints may use.
        models: The models that runs call.
        remotes: Names of the components that run in other containers.
        earlier: Components of earlier blueprints of the served one, which background runs perform.
        mcp: The MCP servers that runs call, by name.

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
        earlier: Collection[Component] = (),
        mcp: Mapping[str, MCPServer] | None = None,
    ) -> None:
        # Imported late: prometheus_client reads PROMETHEUS_MULTIPROC_DIR at its import.
        from podwright_service.observability.mcp_exchanges import MCPExchanges
        from podwright_service.observability.metrics.subscriber import (
            Metrics,
            Part,
        )

        servers = mcp or {}

        digest = component_digest(component)
        performed = (component, *earlier)
        components = [part for each in performed for part in walk(each)]
        resource = {
            "service.name": component.name,
            "service.version": __version__,
            semconv.COMPONENT_KIND: component.kind,
            semconv.BLUEPRINT_DIGEST: digest,
        }
        self.tracer_provider = exporters.provider_of_program()
        """The tracer provider: that of the program around the service, else its own; None if there are no spans."""
        if self.tracer_provider is None:
            check_otel_variables()
        tracing.adopt_propagators()
        self._export: OTLPMetrics | None = None
        if names := exporter_names("METRICS"):
            self._export = OTLPMetrics(names, resource)
        self.metrics = Metrics(
            component.name,
            component.kind,
            version=__version__,
            digest=digest,
            components=[
                Part(
                    part.name,
                    part.kind,
                    _model_names(part, settings),
                    tuple(part.tool_names),
                )
                for part in components
            ],
            models=_names_of_models(models, policy, performed),
            tools={
                *policy.tools,
                *(name for part in components for name in part.tool_names),
            },
            routes=PATHS,
            callers=settings.metric_callers,
            servers=servers,
            limits=settings.run_limits,
            export=self._export,
        )
        self._exchanges = MCPExchanges(servers, self.metrics)
        self.metrics.begin_inline(policy.models, list(policy.tools))
        self._own_provider: TracerProvider | None = None
        if self.tracer_provider is None:
            self._own_provider = exporters.create_tracer_provider(
                resource, self.metrics.count_spans
            )
            self.tracer_provider = self._own_provider
        # Spans come last: a run is counted and logged while its span is the current one.
        common = (log_runs(settings), *self._spans(models, remotes))
        self.scrapes = Scrapes()
        """When the metrics were scraped."""

        self.subscribers: tuple[Subscriber, ...] = (
            self.metrics.subscriber(),
            self.scrapes.note_news,
            *common,
        )
        """For the runs of the served component."""
        self.inline_subscribers: tuple[Subscriber, ...] = (
            self.metrics.subscriber(inline=True),
            self.scrapes.note_news,
            *common,
        )
        """For the runs of inline blueprints."""

    def start(self) -> None:
        """Begin to export metrics, and the spans of tools, and to log what is printed; called in each process."""
        output.begin_reading()
        if self._own_provider is not None:
            exporters.publish(self._own_provider)
        self.metrics.start()
        self._exchanges.start()
        if self._export is not None:
            self._export.start()

    def shutdown(self) -> None:
        """Export and log what remains, and stop the exporters. Blocks for some seconds at most."""
        output.end_reading()
        self._exchanges.end()
        shutdowns: dict[str, Callable[[], object]] = {}
        if self._own_provider is not None:
            shutdowns["spans"] = self._own_provider.shutdown
        if self._export is not None:
            shutdowns["metrics"] = self._export.shutdown
        exporters.shut_down(**shutdowns)

    def _spans(
        self, models: Collection[Model], remotes: Collection[str]
    ) -> tuple[Subscriber, ...]:
        # also without spans of its own, a service continues the trace of its caller
        tracing.continue_traces(Observability)
        if self.tracer_provider is None:
            return ()
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
    return {
        name: address
        for name, (address, *others) in servers.items()
        if address and not others
    }


def _model_names(part: Component, settings: Settings) -> tuple[str, ...]:
    """The models that a component calls itself, and those that its functions report."""
    names = dict.fromkeys(part.reported_models)
    if isinstance(part, ModelComponent):
        with use_model(settings.models):
            called = [model.name for model in part.chat_models.all()]
        names |= dict.fromkeys(called)
    return tuple(names)


def _names_of_models(
    models: Collection[Model],
    policy: InlinePolicy,
    performed: Collection[Component],
) -> set[str]:
    """Return the names of all models that runs may call."""
    names = {*policy.models, *(model.name for model in models)}
    for component in performed:
        names.update(component.models())
        names.update(reported_models_of(component))
    return names
