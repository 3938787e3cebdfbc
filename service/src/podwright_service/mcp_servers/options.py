"""The MCP servers of the option `--mcp` of commands that run a component here."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from podwright.data.text import truncate
from podwright.errors import InputError
from podwright_service.mcp_servers.configured import servers_of
from podwright_service.settings import MCPServerEntry, Settings

if TYPE_CHECKING:
    from podwright.mcp.server import MCPServer

_FORM = "Write --mcp NAME=URL, or --mcp 'NAME=COMMAND ARGUMENT…'."


def servers_of_options(
    options: Sequence[str], settings: Settings
) -> dict[str, MCPServer]:
    """Return MCP servers by name: those of options, and those of the settings with other names.

    Args:
        options: Texts `NAME=URL`, with the key that the settings have for the name, or `NAME=COMMAND ARGUMENT…`, a
            program that is started, and spoken with over its standard input and output.
        settings: The settings.

    Raises:
        InputError: An option has another form, two have the same name, or a program is not on this machine.
        ConfigurationError: A URL is invalid; or see `servers_of`.
    """
    texts: dict[str, str] = {}
    for option in options:
        name, _, text = option.partition("=")
        name = name.strip()
        text = text.strip()
        if not name or not text:
            # a part of it may be a password
            raise InputError("Invalid value of --mcp.", suggestion=_FORM)
        if name in texts:
            raise InputError(
                f"--mcp has two MCP servers '{truncate(name, 100)}'.",
                suggestion="Name them differently.",
            )
        texts[name] = text
    entries: dict[str, MCPServerEntry] = {
        name: {"url": text} for name, text in texts.items() if _is_url(text)
    }
    servers = servers_of(settings, entries)
    commands = {name: text for name, text in texts.items() if not _is_url(text)}
    if not commands:
        return servers
    from podwright.mcp.server import MCPServer

    for name, text in commands.items():
        server = MCPServer.stdio(*_split_command(name, text))
        server.name = name
        servers[name] = server
    return servers


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _split_command(name: str, command: str) -> list[str]:
    """Return the program of a command, and its arguments.

    Raises:
        InputError: Its quotes do not match, or there is no such program.
    """
    who = f"the MCP server '{truncate(name, 100)}'"
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(
            f"Invalid command of {who}: {error}.", suggestion=_FORM
        ) from error
    if shutil.which(words[0]) is None:
        raise InputError(
            # the text may be a URL without its scheme, and have a password
            f"The program of {who} is not on this machine.",
            suggestion="Install it, or correct its name. A URL begins with http:// or https://.",
        )
    return words
