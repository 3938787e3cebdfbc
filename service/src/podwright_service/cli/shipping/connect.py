"""The command `connect`: the configuration by which an editor or agent calls a served component over MCP."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from podwright.client import Client, ProblemError
from podwright.connection.service_connection import service_url
from podwright.data.files import replace_file
from podwright.data.json_data import JsonObject, as_array, as_object
from podwright.data.text import did_you_mean, os_error_reason, short_repr
from podwright.data.tool_names import TOOL_NAME, to_tool_name
from podwright.errors import ConfigurationError, RemoteError
from podwright_service.cli.background import service_client
from podwright_service.cli.console import print_progress, print_text

_PATH = "/mcp"
_MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry of a component in the configuration of a client."""

    name: str
    """Letters, digits, `_` and `-`."""
    url: str
    """URL of the route `/mcp`."""
    key_variable: str | None
    """The environment variable from which the client takes the API key; None if the service needs none."""

    def headers(self, reference: str) -> JsonObject:
        """Return the headers of requests.

        Args:
            reference: The client's way to name an environment variable, such as `${{env:{}}}`.
        """
        if self.key_variable is None:
            return {}
        value = reference.format(self.key_variable)
        return {"headers": {"Authorization": f"Bearer {value}"}}


@dataclass(frozen=True, slots=True)
class MCPClient:
    """A program that calls MCP servers, and its configuration in the folder of a project."""

    title: str
    path: str
    """The file, from the folder of the project."""
    to_data: Callable[[Entry], JsonObject]
    """Returns the data of the file with only this entry."""

    def to_text(self, data: JsonObject) -> str:
        """Return the text of the file."""
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"

    def with_entry(self, text: str, entry: Entry, *, force: bool) -> str:
        """Return the text of a file with the entry besides what it has.

        Args:
            text: The text so far; empty for a new file.
            entry: The entry.
            force: Whether another entry of this name is replaced.

        Raises:
            ConfigurationError: The text is not JSON, or has another entry of this name.
        """
        data = self._parse(text)
        for key, value in self.to_data(entry).items():
            if key == "inputs":
                data[key] = _with_items(as_array(data.get(key)), value)
                continue
            known = data.get(key, {})
            if not isinstance(known, dict):
                raise self._unreadable(f"has no object at '{key}'")
            known = as_object(cast("object", known))
            if known.get(entry.name, value[entry.name]) != value[entry.name]:
                self._check_may_replace(entry, force=force)
            data[key] = {**known, **value}
        return self.to_text(data)

    def _parse(self, text: str) -> JsonObject:
        if not text.strip():
            return {}
        try:
            data: object = json.loads(text)
        except ValueError as error:
            raise self._unreadable(f"is not plain JSON: {error}") from None
        if not isinstance(data, dict):
            raise self._unreadable("is not a JSON object")
        return cast("JsonObject", data)

    def _unreadable(self, reason: str) -> ConfigurationError:
        return ConfigurationError(
            f"'{self.path}' {reason}.",
            suggestion="Add the entry by hand: without --write it is printed.",
        )

    def _check_may_replace(self, entry: Entry, *, force: bool) -> None:
        if not force:
            raise ConfigurationError(
                f"'{self.path}' has another server named '{entry.name}'.",
                suggestion="Choose a name with --name, or replace it with --force.",
            )


class CodexClient(MCPClient):
    """Codex, whose configuration is TOML: a table is added at the end, and the text before it stays as it is."""

    def to_text(self, data: JsonObject) -> str:
        """Return the tables of the servers."""
        lines: list[str] = []
        for name, server in as_object(data["mcp_servers"]).items():
            lines.append(f"[mcp_servers.{name}]")
            # strings of JSON are strings of TOML
            lines += [
                f"{key} = {json.dumps(value)}"
                for key, value in as_object(server).items()
            ]
        return "\n".join(lines) + "\n"

    def with_entry(self, text: str, entry: Entry, *, force: bool) -> str:
        """Return the text of a file with the entry at its end.

        Raises:
            ConfigurationError: The text is not TOML, or has another entry of this name.
        """
        servers = self._servers(text)
        data = self.to_data(entry)
        if entry.name in servers:
            if servers[entry.name] == data["mcp_servers"][entry.name]:
                return text
            raise ConfigurationError(
                f"'{self.path}' has another server named '{entry.name}'.",
                suggestion="Choose a name with --name, or remove that table.",
            )
        above = f"{text.rstrip()}\n\n" if text.strip() else ""
        new = above + self.to_text(data)
        # an inline table takes no further ones
        self._servers(new)
        return new

    def _servers(self, text: str) -> JsonObject:
        try:
            return as_object(tomllib.loads(text).get("mcp_servers"))
        except tomllib.TOMLDecodeError as error:
            reason = f"takes no further table, or is not TOML: {error}"
            raise self._unreadable(reason) from None


def _of_claude(entry: Entry) -> JsonObject:
    server = {"type": "http", "url": entry.url, **entry.headers("${{{}}}")}
    return {"mcpServers": {entry.name: server}}


def _of_vscode(entry: Entry) -> JsonObject:
    server = {"type": "http", "url": entry.url}
    if entry.key_variable is None:
        return {"servers": {entry.name: server}}
    # VS Code asks for it once, and keeps it in the store of secrets
    question = {
        "type": "promptString",
        "id": entry.key_variable,
        "description": f"API key of {entry.name}",
        "password": True,
    }
    return {
        "inputs": [question],
        "servers": {
            entry.name: {**server, **entry.headers("${{input:{}}}")},
        },
    }


def _of_cursor(entry: Entry) -> JsonObject:
    server = {"url": entry.url, **entry.headers("${{env:{}}}")}
    return {"mcpServers": {entry.name: server}}


def _of_codex(entry: Entry) -> JsonObject:
    server = {"url": entry.url}
    if entry.key_variable is not None:
        server["bearer_token_env_var"] = entry.key_variable
    return {"mcp_servers": {entry.name: server}}


CLIENTS = {
    # https://code.claude.com/docs/en/mcp
    "claude": MCPClient("Claude Code", ".mcp.json", _of_claude),
    # https://code.visualstudio.com/docs/copilot/reference/mcp-configuration
    "vscode": MCPClient("VS Code", ".vscode/mcp.json", _of_vscode),
    # https://cursor.com/docs/mcp
    "cursor": MCPClient("Cursor", ".cursor/mcp.json", _of_cursor),
    # https://developers.openai.com/codex/mcp
    "codex": CodexClient("Codex", ".codex/config.toml", _of_codex),
}
"""The clients by the values of `--client`, with links to the documentation of their formats."""


def connect(
    url: str,
    client: str | None,
    *,
    api_key: str | None,
    name: str | None,
    write: bool,
    force: bool,
) -> None:
    """Print or write the configuration by which clients call a served component.

    The service is asked whether it serves MCP and accepts the key.

    Args:
        url: Address of the service.
        client: One of `CLIENTS`; None prints the configuration of each.
        api_key: An API key of the service, or `@FILE`. It is never written.
        name: The name of the entry; by default that of the component.
        write: Whether to add the entry to the client's file in this folder.
        force: Whether to replace an entry of the same name.

    Raises:
        PodwrightError: The service cannot be reached, serves no MCP or refuses the key; the client is unknown; or its
            file cannot be changed.
    """
    chosen = _chosen_clients(client, write=write)
    checked_name = _checked_name(name)
    address = service_url(
        url if "://" in url else f"http://{url}", "the service"
    ).removesuffix(_PATH)
    service = service_client(address, api_key)
    needs_key = _needs_key(service, has_key=api_key is not None)
    entry_name = checked_name or _component_name(service, address)
    variable = _variable(entry_name) if needs_key else None
    entry = Entry(entry_name, address + _PATH, variable)
    for each in chosen:
        if write:
            _write(each, entry, force=force)
            continue
        print_progress(f"{each.title}: {each.path}")
        print_text(each.to_text(each.to_data(entry)).rstrip("\n"))
    if entry.key_variable is not None:
        print_progress(
            f"The API key is not written. Set the variable {entry.key_variable}; VS Code asks for it."
        )


def _chosen_clients(name: str | None, *, write: bool) -> list[MCPClient]:
    if name is None:
        if write:
            raise ConfigurationError(
                "Nothing says which client's file is to be written.",
                suggestion=f"Add --client: {', '.join(CLIENTS)}.",
            )
        return list(CLIENTS.values())
    if name not in CLIENTS:
        raise ConfigurationError(
            f"Unknown client {short_repr(name)}.",
            suggestion=did_you_mean(name.lower(), CLIENTS),
        )
    return [CLIENTS[name]]


def _needs_key(service: Client, *, has_key: bool) -> bool:
    """Return whether the service needs an API key, or accepts the one that is given.

    Raises:
        ConfigurationError: The service serves no MCP, or refuses the key.
        RemoteError: It cannot be reached.
    """
    try:
        service.request("GET", _PATH)
    except ProblemError as error:
        # of a GET request, so nothing is run
        match error.status:
            case 405:
                return has_key
            case 404:
                raise ConfigurationError(
                    "The service does not serve MCP.",
                    suggestion="Start it with PODWRIGHT_MCP=true, or set 'mcp.enabled' in the values of its chart.",
                ) from error
            case 401 if not has_key:
                return True
            case _:
                raise
    return has_key


def _checked_name(name: str | None) -> str | None:
    """Return the name of an entry that was asked for.

    Raises:
        ConfigurationError: Clients do not take it.
    """
    if name is None:
        return None
    if TOOL_NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"Invalid name {short_repr(name)}.",
            suggestion=f"Use letters a to z and A to Z, digits, '_' and '-', at most {_MAX_NAME}.",
        )
    return name


def _variable(name: str) -> str:
    """Return the environment variable for the API key of a server."""
    variable = f"{name}_api_key".replace("-", "_").upper()
    if variable[0].isdigit():
        return f"_{variable}"
    return variable


def _component_name(service: Client, address: str) -> str:
    """Return the name of the component, or the host's if the key may not read it, as clients take names."""
    name = _served_name(service) or urlsplit(address).hostname or ""
    return to_tool_name(name)[:_MAX_NAME] or "podwright"


def _served_name(service: Client) -> str | None:
    """Return the name of the component; None if the key may not read it."""
    try:
        return service.info().name
    except (ProblemError, RemoteError):
        pass
    try:
        # a key that may only run, as MCP clients need it, can read these
        models = service.request("GET", "/v1/models")
    except (ProblemError, RemoteError):
        return None
    match models:
        case {"data": [{"id": str(name)}]}:
            return name
        case _:
            return None


def _write(client: MCPClient, entry: Entry, *, force: bool) -> None:
    path = Path(client.path)
    try:
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        new = client.with_entry(old, entry, force=force)
        if new == old:
            print_text(f"{path}: '{entry.name}' is there already.")
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, new)
    except (OSError, UnicodeError) as error:
        reason = os_error_reason(error)
        raise ConfigurationError(
            f"Cannot write '{path}': {reason}.",
            suggestion="Make it a UTF-8 file that this user may write.",
        ) from error
    print_text(f"{path}: added '{entry.name}'.")


def _with_items(old: list[Any], new: list[Any]) -> list[Any]:
    """Return the items of a list with further ones; one whose id it has stays as its user wrote it."""
    ids = {as_object(item).get("id") for item in old}
    return [*old, *(item for item in new if item["id"] not in ids)]
