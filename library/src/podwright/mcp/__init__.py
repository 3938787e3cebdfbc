"""MCP: tools of servers as tools of components. The package `mcp` is imported only in `wire/`, at the first call."""
