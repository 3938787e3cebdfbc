"""Where servers are: at a URL, or as a program of this machine."""

from __future__ import annotations

import ipaddress
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from podwright.errors import ConfigurationError
from podwright.models.http.key_files import ReplaceableKey
from podwright.models.http.proxies import is_proxy
from podwright.models.http.urls import is_header_value, is_request_url

if TYPE_CHECKING:
    from podwright.mcp.wire.connection import Connection

_OWN_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "keep-alive",
        "last-event-id",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that belong to the protocols, besides all that begin with `mcp-`."""

_PACKAGES = ("mcp", "mcp_types", "httpx2")
"""Modules of the extra."""


class Target(ABC):
    """Where a server is."""

    headers_from_request: tuple[str, ...] = ()
    """Names of headers of callers that the server is sent, in lower case."""
    url_secrets: Sequence[str] = ()
    """The values in the query of the URL, of which one may be a key."""

    @property
    @abstractmethod
    def shown_name(self) -> str:
        """A name for messages, without anything secret."""

    def own_headers(self, name: str) -> dict[str, str]:
        """Return the headers of each request, with the API key.

        Args:
            name: The server, for messages.
        """
        return {}

    def connect(self, name: str) -> Connection:
        """Return a connection. The first one of the process takes a second, for imports.

        Args:
            name: The server, for messages.

        Raises:
            ConfigurationError: The package `mcp` is not installed.
        """
        try:
            return self._connect(name)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in _PACKAGES:
                raise
            raise ConfigurationError(
                f"The MCP server '{name}' needs the package 'mcp', which is not installed.",
                suggestion="Install podwright[mcp].",
            ) from error

    @abstractmethod
    def _connect(self, name: str) -> Connection: ...


class ProgramTarget(Target):
    """A program of this machine."""

    def __init__(
        self,
        command: str,
        arguments: Sequence[str],
        env: Mapping[str, str] | None,
        cwd: str | None,
    ) -> None:
        if not command:
            raise ConfigurationError(
                "The command of an MCP server is empty.",
                suggestion="Name a program.",
            )
        self._command = command
        self._arguments = arguments
        self._env = env
        self._cwd = cwd

    @property
    def shown_name(self) -> str:
        """The program."""
        return self._command

    def _connect(self, name: str) -> Connection:
        from podwright.mcp.wire.connections import StdioConnection

        return StdioConnection(
            name, self._command, self._arguments, self._env, self._cwd
        )


class HTTPTarget(Target):
    """A server at a URL; see `MCPServer` for the arguments."""

    def __init__(
        self,
        *,
        url: str,
        proxy: str | None,
        headers: Mapping[str, str],
        headers_from_request: Sequence[str],
        api_key: str | None,
        api_key_file: str | None,
    ) -> None:
        if not is_request_url(url):
            # it is not repeated, because it may hold a secret
            raise ConfigurationError(
                "Invalid URL of an MCP server.",
                suggestion="Write it as https://host:port/path, without user and fragment.",
            )
        if proxy is not None and not is_proxy(proxy):
            raise ConfigurationError(
                "Invalid proxy of an MCP server.",
                suggestion="Write it as http://host:port or http://user:password@host:port.",
            )
        self._url = url
        query = urlsplit(url).query
        values = [value for _, value in parse_qsl(query)]
        self.url_secrets = [query, *values]
        self._proxy = proxy
        self._headers = _checked_headers(headers)
        self.headers_from_request = _header_names(headers_from_request, url)
        key = (api_key or "").strip()
        has_key = key != "" or api_key_file is not None
        if has_key and "authorization" in self._headers:
            raise ConfigurationError(
                f"The MCP server '{self.shown_name}' has an API key and a header Authorization.",
                suggestion="Remove one of them.",
            )
        self._api_key = ReplaceableKey(
            _whose(self.shown_name), key, api_key_file
        )

    @property
    def shown_name(self) -> str:
        """The host."""
        return urlsplit(self._url).hostname or ""

    def own_headers(self, name: str) -> dict[str, str]:
        """Return the headers of each request, with the API key."""
        key = self._api_key.read(_whose(name))
        if not key:
            return dict(self._headers)
        return {**self._headers, "authorization": f"Bearer {key}"}

    def _connect(self, name: str) -> Connection:
        from podwright.mcp.wire.connections import HTTPConnection

        return HTTPConnection(name, self._url, self._proxy)


def _whose(name: str) -> str:
    return f"the MCP server '{name}'"


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    result: dict[str, str] = {}
    for name, value in headers.items():
        if not is_header_value(value):
            raise ConfigurationError(
                f"The header '{name}' of an MCP server has invalid characters.",
                suggestion="A value has printable ASCII characters only.",
            )
        result[_header_name(name)] = value
    return result


def _header_names(names: Sequence[str], url: str) -> tuple[str, ...]:
    if isinstance(names, str):
        raise ConfigurationError(
            "The headers_from_request of an MCP server are a text.",
            suggestion="Write a list of names.",
        )
    if names and not _is_private(url):
        raise ConfigurationError(
            "Headers of callers are not sent to an MCP server over plain http, except on a loopback address.",
            suggestion="Use https, or remove headers_from_request.",
        )
    return tuple(map(_header_name, names))


def _header_name(name: str) -> str:
    lower = name.lower()
    is_name = (
        is_header_value(name)
        and name.replace("-", "").replace("_", "").isalnum()
    )
    if not is_name or lower in _OWN_HEADERS or lower.startswith("mcp-"):
        raise ConfigurationError(
            f"The header '{name}' cannot be given for an MCP server.",
            suggestion="Name headers of your own, or authorization.",
        )
    return lower


def _is_private(url: str) -> bool:
    """Whether nobody can read requests on their way: https, or a loopback address."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
