"""The telemetry of exchanges with MCP servers: metrics, and attributes of the span of the tool call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from opentelemetry.trace import get_current_span

from podwright_service.observability import semconv
from podwright_service.observability.metrics.subscriber import Metrics

if TYPE_CHECKING:
    from podwright.mcp.server import Exchange, MCPServer


class MCPExchanges:
    """Handles the exchanges of one service with its MCP servers, from its start to its end.

    Args:
        servers: The servers by name; without any, nothing of MCP is imported.
        metrics: Counts the exchanges.
    """

    def __init__(
        self, servers: Mapping[str, MCPServer], metrics: Metrics
    ) -> None:
        self._servers = servers
        self._metrics = metrics
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to handle exchanges; called in each process."""
        if self._servers:
            from podwright.mcp.server import subscribe

            self._unsubscribe = subscribe(self.handle)

    def end(self) -> None:
        """Handle no further exchanges."""
        if self._unsubscribe is not None:
            self._unsubscribe()

    def handle(self, exchange: Exchange) -> None:
        """Count an exchange, and put the version of the protocol on the span of the tool call that it is a part of."""
        server = self._servers.get(exchange.server_name)
        if server is None:
            return
        self._metrics.observe_exchange(exchange, is_up=server.is_up is True)
        if exchange.method == semconv.MCP_CALL and exchange.protocol_version:
            get_current_span().set_attribute(
                semconv.MCP_PROTOCOL, exchange.protocol_version
            )
