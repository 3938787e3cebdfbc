"""The MCP servers of the operator: what settings and options say of them, and which headers of a caller they are sent.

Without any, nothing of MCP is imported.
"""

from podwright_service.mcp_servers.caller_headers import (
    headers_sent_on,
    use_caller_headers,
)
from podwright_service.mcp_servers.configured import (
    close_servers,
    servers_in,
    servers_of,
)
from podwright_service.mcp_servers.options import servers_of_options

__all__ = [
    "close_servers",
    "headers_sent_on",
    "servers_in",
    "servers_of",
    "servers_of_options",
    "use_caller_headers",
]
