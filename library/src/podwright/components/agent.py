"""The agent: a model that works with tools (spec §§2.1, 4.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from typing_extensions import Unpack

from podwright.blueprints.mcp_tools import mcp_tools
from podwright.chats.chat import Chat
from podwright.data.json_data import JsonMapping
from podwright.kinds import Kind
from podwright.mcp.attach import attach_mcp
from podwright.models import Model
from podwright.run.component import DEFAULT_MAX_LOOPS, ModelComponent, Supplied
from podwright.run.options import (
    AgentOptions,
    parse_arguments,
    parse_with_overrides,
)
from podwright.run.run import Run, Task
from podwright.tools.entries import attach, tools_by_name
from podwright.tools.tool import Tool, prepare_tools
from podwright.workflows.template_names import name_problems


class Agent(ModelComponent):
    """A model with instructions and tools.

    Args:
        name: Its name; its output in a workflow is `<name>_output`.
        instructions: System instructions. `{name}` is filled from the named inputs of a run.
        model: `<provider>/<model_name>`, or a model object.
        tools: Functions that the model may call; names, docstrings and type hints become their schemas.
        max_loops: Most model calls of one run.
        **options: Model settings such as `temperature`, a `description`, `verbose`; see `AgentOptions`.

    Raises:
        BlueprintValidationError: An argument has a wrong type or value.
        ToolDefinitionError: A tool cannot be offered to a model.
    """

    kind: ClassVar[Kind] = "agent"

    def __init__(
        self,
        name: str,
        instructions: str,
        model: str | Model,
        tools: Sequence[Callable[..., Any]] = (),
        max_loops: int = DEFAULT_MAX_LOOPS,
        **options: Unpack[AgentOptions],
    ) -> None:
        self._tools: Mapping[str, Tool] = tools_by_name(tools)
        fields = {
            "name": name,
            "instructions": instructions,
            "config": {"model": model, "max_loops": max_loops},
            "tools": [tool.entry() for tool in self._tools.values()],
        }
        parsed = parse_arguments("agent", fields, options)
        super().__init__(parsed, name_problems(parsed))

    @classmethod
    def from_blueprint(
        cls,
        blueprint: Mapping[str, Any],
        tools: Sequence[Callable[..., Any]] = [],
        validate: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Rebuild an agent (spec §4.4).

        Args:
            blueprint: What `to_blueprint` returned.
            tools: The functions behind its tools; those that it does not name are ignored.
            validate: If false, unknown keys are dropped, and missing tools and tools that no longer fit are allowed.
            **kwargs: `mcp`, the MCP servers by the names that it uses, `{"files": MCPServer("https://…/mcp")}`; values
                that override the blueprint's, such as `model`, `temperature` or `api_key`.

        Raises:
            BlueprintValidationError: The blueprint is invalid; with all problems.
            ConfigurationError: A keyword is unknown.
        """
        mcp = kwargs.pop("mcp", None)
        parsed = parse_with_overrides(blueprint, "agent", validate, kwargs)
        entries = parsed.data.get("tools")
        attached, problems = attach(entries, tools_by_name(tools), "/tools")
        from_servers, more = attach_mcp(mcp_tools(parsed.data), mcp)
        problems += more
        problems += name_problems(parsed)
        if not validate:
            problems = []
        self = cls._from_parsed(parsed, problems)
        self._tools = {**attached, **from_servers}
        return self

    @classmethod
    def assemble(
        cls, blueprint: JsonMapping, supplied: Supplied, **options: Any
    ) -> Self:
        """Rebuild an agent with what is supplied for any kind; see `from_blueprint`."""
        return cls.from_blueprint(
            blueprint,
            supplied.tools,
            supplied.validate,
            mcp=supplied.mcp,
            **supplied.with_model(options),
        )

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Its tools, by name."""
        return self._tools

    def own_tools(self) -> Mapping[str, Tool]:
        """Its tools, by name."""
        return self._tools

    async def perform(self, run: Run, task: Task) -> Any:
        """Chat with the model until it answers."""
        tools = await prepare_tools(self._tools)
        return await Chat(run, self, task).answer(tools)
