"""Tools of MCP servers, as tools of a model or functions of a step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self, cast

from typing_extensions import override

from podwright.blueprints.mcp_tools import MCPToolName
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    to_text,
)
from podwright.data.text import truncate
from podwright.errors import (
    ConfigurationError,
    Problem,
    ToolDefinitionError,
    ToolError,
)
from podwright.mcp.definitions import ToolDefinition
from podwright.mcp.request_context import headers_for, traceparent
from podwright.mcp.server import MCPResult, MCPServer
from podwright.messages.conversation import MAX_PARTS
from podwright.messages.messages import ToolSchema
from podwright.schemas.json_schema import SchemaTooComplexError
from podwright.schemas.validator import InvalidSchemaError, SchemaValidator
from podwright.settings import current_settings
from podwright.threads import compute
from podwright.tools.entries import object_parameters
from podwright.tools.tool import Tool

if TYPE_CHECKING:
    from podwright.mcp.entries import MCPSource

MAX_REASON = 1_000
"""Characters of a server's text about a failed call that a model is told at most, as of the text of an exception."""
_NOT_SHOWN = ("$schema", "x-mcp-header")
"""Keywords of a schema that are not for models: some providers refuse them."""


class MCPTool(Tool):
    """A tool of an MCP server.

    The model is shown the locked definition. Without a lock, it is the one that the server gave first in this process.

    Args:
        name: The tool, as the blueprint names it.
        source: The servers and the lock.
        locked: The locked definition; None if there is no lock.
        returns_data: Whether a call returns the data of its result, for steps, and not the text for models.

    Raises:
        ToolDefinitionError: The parameters are not the schema of an object.
    """

    validates_in_thread: bool = True
    trusts_patterns: bool = False

    def __init__(
        self,
        name: MCPToolName,
        source: MCPSource,
        locked: ToolDefinition | None,
        *,
        returns_data: bool = False,
    ) -> None:
        super().__init__(_schema(name, locked), name.options)
        self._named = name
        self._source = source
        self._returns_data = returns_data
        self.locked = locked
        """The definition that the model is shown, and that the server must still have; None if it is not known yet."""

    @property
    @override
    def mcp_server(self) -> str:
        return self._named.server

    @property
    def servers(self) -> Mapping[str, MCPServer]:
        """The servers that it was given, by name; its own may be missing."""
        return self._source.servers or {}

    @property
    @override
    def takes_any_argument(self) -> bool:
        if self.locked is None:
            return True
        # as JSON Schema has it
        return self.locked.input_schema.get("additionalProperties") is not False

    @property
    @override
    def mcp_tool(self) -> str:
        return self._named.tool

    @property
    @override
    def mcp_digest(self) -> str:
        if self.locked is None:
            return ""
        return self.locked.digest

    @override
    def is_same_as(self, other: Tool) -> bool:
        """Return whether both are the same tool of the same server, by the same definition."""
        if not isinstance(other, MCPTool):
            return False
        is_same_tool = (self.mcp_server, self.mcp_tool) == (
            other.mcp_server,
            other.mcp_tool,
        )
        return is_same_tool and self.locked == other.locked

    @override
    async def for_run(self) -> Self:
        """Return the tool with the definition that the model is shown in a run.

        Raises:
            ConfigurationError: The server was not given.
            ToolError: There is no lock, and the server is not reachable or does not have the tool.
            ToolDefinitionError: There is no lock, and the server's definition cannot be shown to a model.
        """
        server = self._find_server()
        if self.locked is not None:
            return self
        definition = await self._source.learn(server, self._named)
        return self._with(
            locked=definition, schema=_schema(self._named, definition)
        )

    @override
    def validate(self, arguments: JsonObject) -> JsonObject:
        """Return the arguments, which must fit the locked schema; its regular expressions are not evaluated.

        Raises:
            ToolArgumentsError: They do not fit it.
            ToolError: They cannot be checked.
        """
        if self.locked is None:
            return arguments
        problem = self._problem(self.locked.input_schema, arguments)
        if problem is not None:
            raise self.arguments_error([problem])
        return arguments

    @override
    async def perform(self, values: JsonObject, seconds: float | None) -> Any:
        """Call the tool, and return its result: a text, or parts of a message; or its data.

        Raises:
            ToolError: The server failed, has changed the tool, or gave a result that is not as it has defined it.
        """
        server = self._find_server()
        result = await server.call(
            self.mcp_tool,
            values,
            locked=self.locked,
            drift=current_settings().mcp_drift,
            seconds=seconds,
            headers=headers_for(server),
            traceparent=traceparent(),
            idempotent=self.idempotent,
        )
        if result.is_error:
            reason = _text_of(result.content) or "It gave no reason."
            reason = truncate(reason, MAX_REASON)
            error = ToolError(
                f"Tool '{self.name}' failed: {reason}",
                suggestion=f"The MCP server '{self.mcp_server}' has answered this.",
            )
            # as of an exception, the text is for the model
            error.public_message = f"Tool '{self.name}' failed."
            raise error
        await self._check_data(result)
        if self._returns_data and result.structured is not None:
            return result.structured
        return _value_of(result)

    async def _check_data(self, result: MCPResult) -> None:
        """Check that the data of a result is what the locked definition promises.

        Raises:
            ToolError: It is missing, or something else.
        """
        schema = None if self.locked is None else self.locked.output_schema
        if schema is None:
            return
        reason = "It has no data ('structuredContent')."
        if result.structured is not None:
            problem = await compute(self._problem, schema, result.structured)
            if problem is None:
                return
            reason = f"{problem}."
        raise ToolError(
            f"Tool '{self.name}' gave a result that does not fit its own 'outputSchema'. {reason}",
            suggestion=f"Correct the MCP server '{self.mcp_server}'.",
        )

    def check_schemas(self) -> None:
        """Check that calls and results can be checked by the locked schemas, and models be shown them.

        Raises:
            ToolDefinitionError: One is no JSON Schema (2020-12), or a check by it could take too long.
        """
        if self.locked is None:
            return
        for key, schema in (
            ("inputSchema", self.locked.input_schema),
            ("outputSchema", self.locked.output_schema),
        ):
            try:
                if schema is not None:
                    _validator(to_text(schema))
            except (InvalidSchemaError, SchemaTooComplexError) as error:
                raise ToolDefinitionError(
                    f"The '{key}' of tool '{self.mcp_tool}' of the MCP server '{self.mcp_server}' is invalid: {error}.",
                    suggestion="Correct the server, or name another tool.",
                ) from error

    def _problem(self, schema: JsonMapping, data: Any) -> Problem | None:
        """Return what is wrong with data by a schema of the server; None if they fit.

        Raises:
            ToolError: It cannot be checked.
        """
        try:
            return _validator(to_text(schema)).problem(data)
        except (InvalidSchemaError, SchemaTooComplexError) as error:
            raise ToolError(
                f"Tool '{self.name}' cannot be checked by its schema: {error}."
            ) from error

    def _find_server(self) -> MCPServer:
        name = self.mcp_server
        server = self.servers.get(name)
        if server is None:
            raise ConfigurationError(
                f"The tool '{self.name}' needs the MCP server '{name}', which was not given.",
                suggestion=f"Pass it in mcp={{'{name}': MCPServer(…)}}, or in PODWRIGHT_MCP_SERVERS or --mcp.",
            )
        return server


@lru_cache(maxsize=256)
def _validator(schema: str) -> SchemaValidator:
    """Return the validator of a schema, which is a JSON text so that it can be cached."""
    return SchemaValidator(json.loads(schema), patterns=False)


def _schema(name: MCPToolName, definition: ToolDefinition | None) -> ToolSchema:
    """Return the definition of a tool that a model is shown.

    Raises:
        ToolDefinitionError: The parameters are not the schema of an object.
    """
    if definition is None:
        return {
            "type": "function",
            "function": {
                "name": name.name,
                "parameters": {"type": "object", "properties": {}},
            },
        }
    parameters = object_parameters(definition.input_schema)
    if parameters is None:
        raise ToolDefinitionError(
            f"The parameters of tool '{name.tool}' of the MCP server '{name.server}' are not the schema of an object.",
            suggestion="Its root must have 'type': 'object', and no 'anyOf', 'oneOf' or 'allOf'.",
        )
    return {
        "type": "function",
        "function": {
            "name": name.name,
            "description": definition.description or definition.title or "",
            "parameters": _shown(parameters),
        },
    }


def _shown(schema: Any, *, names: bool = False) -> Any:
    """Return a schema without keywords that are not for models; with `names`, its keys are names of parameters."""
    if isinstance(schema, list):
        return list(map(_shown, cast("list[Any]", schema)))
    if not isinstance(schema, dict):
        return schema
    return {
        key: _shown(item, names=not names and key == "properties")
        for key, item in cast("JsonObject", schema).items()
        if names or key not in _NOT_SHOWN
    }


def _text_of(content: Sequence[Any]) -> str:
    """Return the texts of a result, joined by line breaks; not its images, files and audio."""
    texts = [
        part["text"]
        for part in content
        if as_object(part).get("type") == "text"
    ]
    return "\n".join(texts)


def _value_of(result: MCPResult) -> Any:
    """Return a result for a model: a text, or parts of a message; its data, if the server gives nothing else."""
    has_media = any(part["type"] != "text" for part in result.content)
    if has_media:
        parts = list(result.content)
        if len(parts) > MAX_PARTS:
            # a message has no more
            more = len(parts) - MAX_PARTS + 1
            left_out = f"[{more} more parts of the result were left out]"
            parts[MAX_PARTS - 1 :] = [{"type": "text", "text": left_out}]
        return parts
    if not result.content and result.structured is not None:
        return result.structured
    return _text_of(result.content)
