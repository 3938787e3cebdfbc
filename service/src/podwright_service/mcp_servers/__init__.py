"""The MCP servers of settings, of options and of a component, and the headers of callers that are forwarded to them.

Without any, nothing of MCP is imported.
"""

from podwright_service.mcp_servers.caller_headers import (
    forwarded_headers,
    use_caller_headers,
)
from podwright_service.mcp_servers.configured import (
    close_servers,
    servers_of,
    servers_of_service,
)
from podwright_service.mcp_servers.options import servers_of_options

__all__ = [
    "close_servers",
    "forwarded_headers",
    "servers_of",
    "servers_of_options",
    "servers_of_service",
    "use_caller_headers",
]
