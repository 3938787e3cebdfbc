"""Tools of MCP servers: their definitions and lock, the servers, and calls of them."""
