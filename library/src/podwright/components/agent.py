"""The agent: a model that works with tools (spec §§2.1, 4.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from typing_extensions import Unpack

from podwright import blueprints
from podwright.blueprints import Blueprint
from podwright.components.base import ModelComponent
from podwright.components.chat import ChatSession, initial_messages, run_chat
from podwright.components.options import AgentOptions, apply_options, parse_with_overrides
from podwright.events import Kind
from podwright.json_data import as_object
from podwright.models import Model
from podwright.run import Run, Task
from podwright.text import short_repr
from podwright.tools import FunctionTool, attach, tools_by_name


class Agent(ModelComponent):
    """A model with instructions and tools.

    Args:
        name: Its name; its output in a workflow is `<name>_output`.
        instructions: System instructions. `{name}` is filled from the named inputs of a run.
        model: "<provider>/<model_name>", or a model object.
        tools: Functions that the model may call; names, docstrings and type hints become their schemas.
        max_loops: Most model calls of one run.
        **options: Model settings such as `temperature`, a `description`, `verbose`; see `AgentOptions`.

    Raises:
        BlueprintValidationError: An argument has a wrong type or value.
        ToolDefinitionError: A tool cannot be offered to a model.
    """

    __slots__ = ("_tools",)
    kind: ClassVar[Kind] = "agent"

    def __init__(
        self,
        name: str,
        instructions: str,
        model: str | Model,
        tools: Sequence[Callable[..., Any]] = (),
        max_loops: int = 10,
        **options: Unpack[AgentOptions],
    ) -> None:
        self._tools: Mapping[str, FunctionTool] = tools_by_name(tools)
        model_object = model if isinstance(model, Model) else None
        blueprint: Blueprint = {
            "type": "Agent",
            "version": blueprints.VERSION,
            "name": name,
            "instructions": instructions,
            "config": {"model": model_object.name if model_object else model, "max_loops": max_loops},
            "tools": [tool.entry() for tool in self._tools.values()],
        }
        kept = apply_options(blueprint, options)
        checked, problems = blueprints.parse(blueprint, "agent")
        if problems:
            raise blueprints.invalid(problems, f"The agent {short_repr(name)}")
        super().__init__(checked, kept, model_object)

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
            **kwargs: Values that override the blueprint's, such as `model`, `temperature` or `api_key`.

        Raises:
            BlueprintValidationError: The blueprint is invalid; with all problems.
            ConfigurationError: A keyword is unknown.
        """
        parsed = parse_with_overrides(blueprint, "agent", validate, kwargs)
        attached, tool_problems = attach(parsed.data.get("tools"), tools_by_name(tools), "/tools")
        if problems := parsed.problems + (tool_problems if validate else []):
            name = short_repr(as_object(blueprint).get("name"))
            raise blueprints.invalid(problems, f"The blueprint of agent {name}")
        self = cls.__new__(cls)
        self._tools = attached
        ModelComponent.__init__(self, parsed.data, parsed.options, parsed.model)
        return self

    @property
    def tools(self) -> Mapping[str, FunctionTool]:
        """Its tools, by name."""
        return self._tools

    async def perform(self, run: Run, task: Task) -> Any:
        """Chat with the model until it answers."""
        session = ChatSession(self.model, self.settings, self.max_loops, self._tools)
        return await run_chat(run, session, initial_messages(self.instructions, task.input), task.response_model)
