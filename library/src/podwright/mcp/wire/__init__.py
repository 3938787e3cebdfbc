"""The wire of MCP, by the package `mcp`, which only these modules import; the first call imports them."""
