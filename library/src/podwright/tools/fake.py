"""Fakes of tools, for runs that must have no effects."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

from podwright.data.json_data import JsonMapping, JsonObject
from podwright.functions.run_context import (
    call_with_context,
    context_parameters,
)
from podwright.messages.messages import ToolSchema
from podwright.tools.tool import Tool


class FakeTool(Tool):
    """Takes the place of a tool, which is never called: a model is shown the same, and a person is asked the same.

    Arguments are validated as by the tool, and its rule of approval decides about calls.

    Args:
        original: The tool.
        result: What calls return, each a copy; or a function that returns it, of those arguments that it takes.

    Example:
        `agent.replace_tool("send_letter", FakeTool(agent.own_tools()["send_letter"], {"sent": False}))`
    """

    def __init__(
        self, original: Tool, result: object | Callable[..., Any]
    ) -> None:
        super().__init__(original.schema, original.options)
        self.original = original
        """The tool that is never called."""
        self._result = result
        self.validates_in_thread = original.validates_in_thread
        self.trusts_patterns = original.trusts_patterns

    def validate(self, arguments: JsonObject) -> JsonObject:
        """Return the values for a call as the tool does.

        Raises:
            ToolArgumentsError: They do not fit the parameters.
        """
        return self.original.validate(arguments)

    async def perform(self, values: JsonObject, seconds: float | None) -> Any:
        """Return the result, or what the function returns.

        Raises:
            Exception: What the function raises.
        """
        if not callable(self._result):
            return deepcopy(self._result)
        function = cast("Callable[..., Any]", self._result)
        return await call_with_context(
            function, kwargs=_taken(function, values), seconds=seconds
        )

    def with_defaults(self, values: JsonObject) -> JsonObject:
        """See `Tool.with_defaults`."""
        return self.original.with_defaults(values)

    async def apply_approval_rule(self, values: JsonObject) -> bool:
        """See `Tool.apply_approval_rule`."""
        return await self.original.apply_approval_rule(values)

    @property
    def mcp_server(self) -> str:
        """See `Tool.mcp_server`."""
        return self.original.mcp_server

    @property
    def mcp_tool(self) -> str:
        """See `Tool.mcp_tool`."""
        return self.original.mcp_tool

    @property
    def mcp_digest(self) -> str:
        """See `Tool.mcp_digest`."""
        return self.original.mcp_digest

    @property
    def takes_any_argument(self) -> bool:
        """See `Tool.takes_any_argument`."""
        return self.original.takes_any_argument

    @property
    def result_schema(self) -> JsonMapping | None:
        """See `Tool.result_schema`."""
        return self.original.result_schema

    @property
    def own_schema(self) -> ToolSchema:
        """See `Tool.own_schema`."""
        return self.original.own_schema

    @property
    def may_report_usage(self) -> bool:
        """Whether the function is given the context of the run, by which it may report model calls."""
        if not callable(self._result):
            return False
        return bool(context_parameters(self._result))


def _taken(function: Callable[..., Any], values: JsonObject) -> JsonObject:
    """Return the values that a function takes, by name."""
    parameters = inspect.signature(function).parameters
    for parameter in parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            return values
    return {name: value for name, value in values.items() if name in parameters}
