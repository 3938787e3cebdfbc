"""The agent: a model that works with tools (spec §§2.1, 4.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from typing_extensions import Unpack

from podwright import blueprints
from podwright.blueprints import Blueprint
from podwright.components.base import AgentOptions, ModelComponent, checked, described, overridden
from podwright.components.chat import ChatSession, opening, run_chat
from podwright.events import Kind
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
        max_loops: The most model calls of one run.
        **options: Model settings such as `temperature`, a `description`, `verbose`; see `AgentOptions`.

    Raises:
        BlueprintValidationError: An argument has a wrong type or value.
        ToolDefinitionError: A tool cannot be one.
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
        given = model if isinstance(model, Model) else None
        config = {"model": given.name if given else model, "max_loops": max_loops}
        self._tools: Mapping[str, FunctionTool] = tools_by_name(tools) if tools else {}
        blueprint: Blueprint = {
            "type": "Agent",
            "version": blueprints.VERSION,
            "name": name,
            "instructions": instructions,
            "config": config,
            "tools": [tool.entry() for tool in self._tools.values()],
        }
        kept = described(blueprint, options) if options else None
        super().__init__(checked(blueprint, "agent"), kept, given)

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
            blueprint: What `to_blueprint` gave.
            tools: The functions behind its tools; those it does not name are left out.
            validate: If false, unknown keys are dropped, and tools that are missing or no longer fit are let pass.
            **kwargs: Values that replace the blueprint's, such as `model`, `temperature` or `api_key`.

        Raises:
            BlueprintValidationError: The blueprint is invalid; all problems at once.
            ConfigurationError: A keyword is no value of an agent.
        """
        whole, options, model = overridden(blueprint, "agent", kwargs)
        found = blueprints.problems(whole, "agent") if validate else []
        attached, drifted = attach(whole.get("tools"), tools_by_name(tools), "/tools")
        found += drifted if validate else []
        if found:
            raise blueprints.invalid(found, f"The blueprint of agent {short_repr(whole.get('name'))}")
        self = cls.__new__(cls)
        self._tools = attached
        ModelComponent.__init__(self, blueprints.check(whole, "agent", validate), options or None, model)
        return self

    @property
    def tools(self) -> Mapping[str, FunctionTool]:
        """Its tools, by name."""
        return self._tools

    async def perform(self, run: Run, task: Task) -> Any:
        """Converse with the model until it answers."""
        party = ChatSession(self.model, self.settings, self.max_loops, self._tools)
        return await run_chat(run, party, opening(self.instructions, task.input), task.response_model)
