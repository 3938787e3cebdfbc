"""The lock of a component folder: the definitions of the MCP tools that its blueprints name.

The model is shown the locked texts, so that a description that a server changes never reaches a prompt, and a component
starts without a connection. `podwright sync --mcp` writes the lock:

    {"servers": {"files": {"tools": {"read_file": {"digest": "sha256:…", "definition": {"name": "read_file", …}}}}}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from podwright.data.files import replace_file
from podwright.data.json_data import (
    JsonObject,
    as_object,
    json_pointer,
)
from podwright.data.text import os_error_reason
from podwright.errors import ConfigurationError, PodwrightError
from podwright.mcp.definitions import ToolDefinition, clean

LOCK_FILE = "mcp.lock.json"
"""The name of the file in a component folder."""
MAX_BYTES = 32 * 1024 * 1024
"""Size of the largest file that is read."""

Definitions = Mapping[str, Mapping[str, ToolDefinition]]
"""Definitions of tools by server and by the server's name of the tool."""


@dataclass(frozen=True, slots=True)
class MCPLock:
    """The locked definitions of a component folder."""

    servers: Definitions = field(
        default_factory=dict[str, Mapping[str, ToolDefinition]]
    )

    @classmethod
    def read(cls, text: str | bytes, name: str = LOCK_FILE) -> MCPLock:
        """Read the text of a lock.

        Args:
            text: The text of the file.
            name: The name of the file, for errors.

        Raises:
            ConfigurationError: It is not a lock, or a definition in it is not the one that its digest is of.
        """
        try:
            data: object = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _invalid_lock(name, f"It is not JSON: {error}") from error
        servers: dict[str, dict[str, ToolDefinition]] = {}
        if not isinstance(as_object(data).get("servers"), dict):
            raise _invalid_lock(name, "It has no object 'servers'.")
        for server, entry in as_object(data)["servers"].items():
            servers[server] = {}
            for tool, locked in as_object(
                as_object(entry).get("tools")
            ).items():
                at = json_pointer("servers", server, "tools", tool)
                servers[server][tool] = _read_entry(tool, locked, name, at)
        return cls(servers)

    @classmethod
    def read_file(cls, path: Path) -> MCPLock:
        """Read the lock of a component folder; one without a lock has no definitions.

        Args:
            path: The path of the file, which need not exist.

        Raises:
            ConfigurationError: It cannot be read, or is not a lock.
        """
        try:
            with path.open("rb") as file:
                text = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise ConfigurationError(
                f"Cannot read '{path}': {os_error_reason(error)}."
            ) from error
        if len(text) > MAX_BYTES:
            raise _invalid_lock(
                path.name, f"It is larger than {MAX_BYTES} bytes."
            )
        return cls.read(text, path.name)

    def definition(self, server: str, tool: str) -> ToolDefinition | None:
        """Return the definition of a tool; None if the lock does not have it."""
        return self.servers.get(server, {}).get(tool)

    def digests(self) -> list[tuple[str, str, str]]:
        """Return server, tool and digest of each definition."""
        return [
            (server, tool, definition.digest)
            for server, tools in self.servers.items()
            for tool, definition in tools.items()
        ]

    def to_data(self) -> JsonObject:
        """Return the lock as JSON data."""
        servers: JsonObject = {}
        for server, tools in self.servers.items():
            entries = {
                name: {
                    "digest": definition.digest,
                    "definition": definition.to_data(),
                }
                for name, definition in tools.items()
            }
            servers[server] = {"tools": entries}
        return {"servers": servers}

    def to_text(self) -> str:
        """Return the lock as the text of its file: sorted, so that it changes only where a definition does.

        Characters that a reader does not see are escaped, because a model reads them too.
        """
        text = json.dumps(
            self.to_data(), indent=2, sort_keys=True, ensure_ascii=False
        )
        return "".join(map(_visible, text)) + "\n"

    def write_file(self, path: Path) -> None:
        """Write the lock, as a whole or not at all; a lock without definitions is deleted.

        Raises:
            ConfigurationError: It cannot be written.
        """
        try:
            if not self.servers:
                path.unlink(missing_ok=True)
                return
            replace_file(path, self.to_text())
        except OSError as error:
            raise ConfigurationError(
                f"Cannot write '{path}': {os_error_reason(error)}.",
                suggestion="Make the folder writable.",
            ) from error


def _visible(char: str) -> str:
    if clean(char):
        return char
    return json.dumps(char).strip('"')


def _read_entry(tool: str, entry: object, name: str, at: str) -> ToolDefinition:
    locked = as_object(entry)
    try:
        definition = ToolDefinition.read(as_object(locked.get("definition")))
    except PodwrightError as error:
        raise _invalid_lock(name, f"{at}: {error.message}") from error
    if definition.name != tool:
        raise _invalid_lock(
            name, f"{at}: The definition is of '{definition.name}'."
        )
    if definition.digest != locked.get("digest"):
        raise _invalid_lock(
            name, f"{at}: The digest is not that of the definition."
        )
    return definition


def _invalid_lock(name: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"'{name}' is not a lock of MCP tools. {reason}",
        suggestion="Restore the file, or delete it and run `podwright sync FOLDER --mcp SERVER` for each server.",
    )
