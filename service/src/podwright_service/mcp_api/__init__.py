"""The served component as a tool of MCP clients. The package `mcp` is imported only by services that offer it."""
