"""The agent: a model that works with tools (spec §§2.1, 4.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

from typing_extensions import Unpack

from podwright.blueprints.mcp_tools import mcp_tools
from podwright.chats.chat import Chat
from podwright.chats.chat_estimate import ChatEstimate, tool_turn, transfer_turn
from podwright.chats.hooks import Hooks, before_work
from podwright.chats.transfers import active_agent
from podwright.components.handoffs import (
    DEFAULT_MAX_HANDOFFS,
    Handoff,
    agents_of,
    begin,
    go_on,
    hand_over,
    handoff_entries,
    handoff_problems,
    need_with_handoffs,
    other_tools,
    reached_agents,
    to_handoffs,
    transfers_of,
)
from podwright.data.json_data import JsonMapping, JsonObject
from podwright.data.tool_names import transfer_tool_names
from podwright.estimates.walk import Forecast, Given, Walk
from podwright.kinds import Kind
from podwright.mcp.attach import attach_mcp
from podwright.models import Model
from podwright.run.component import (
    DEFAULT_MAX_LOOPS,
    Component,
    ModelComponent,
    Supplied,
)
from podwright.run.options import (
    AgentOptions,
    named_map,
    parse_arguments,
    parse_with_overrides,
)
from podwright.run.run import Run, Task
from podwright.tools.entries import (
    HookFunctions,
    attach,
    attach_hooks,
    functions_by_name,
    to_hooks,
    tools_by_name,
)
from podwright.tools.tool import Tool, prepare_tools
from podwright.workflows.agent_map import agent_map
from podwright.workflows.template_names import name_problems


class Agent(ModelComponent):
    """A model with instructions and tools.

    Args:
        name: Its name; its output in a workflow is `<name>_output`.
        instructions: System instructions. `{name}` is filled from the named inputs of a run.
        model: `<provider>/<model_name>`, or a model object.
        tools: Functions that the model may call; names, docstrings and type hints become their schemas.
        max_loops: Most model calls of one run.
        handoffs: The agents that may go on with the conversation, each as it is, by name, or as a `Handoff`.
        before: Functions that are called before its work, with named values, which they may change or refuse.
        after: Functions that are called with its answer, which they may change, refuse or have the model give again.
        **options: Model settings such as `temperature`, a `description`, `verbose`; see `AgentOptions`.

    Raises:
        BlueprintValidationError: An argument has a wrong type or value.
        ToolDefinitionError: A tool cannot be offered to a model.
        ConfigurationError: A handoff is to something else than an agent, or its name means two agents.
    """

    kind: ClassVar[Kind] = "agent"

    def __init__(
        self,
        name: str,
        instructions: str,
        model: str | Model,
        tools: Sequence[Callable[..., Any]] = (),
        max_loops: int = DEFAULT_MAX_LOOPS,
        *,
        handoffs: Sequence[Component | Handoff | str] = (),
        before: HookFunctions = (),
        after: HookFunctions = (),
        **options: Unpack[AgentOptions],
    ) -> None:
        self._tools: Mapping[str, Tool] = tools_by_name(tools)
        hooks = to_hooks(before, after, self._tools.values())
        self._hook_functions = hooks.functions
        given = to_handoffs(handoffs)
        fields: JsonObject = {
            "name": name,
            "instructions": instructions,
            "config": {"model": model, "max_loops": max_loops},
            "tools": [tool.entry() for tool in self._tools.values()],
            **hooks.names,
        }
        if given:
            fields["handoffs"] = handoff_entries(given)
        parsed = parse_arguments("agent", fields, options)
        super().__init__(parsed, name_problems(parsed))
        self._set_agents(agents_of(given))

    def _set_agents(self, agents: Mapping[str, Component]) -> None:
        self._reached = reached_agents(self.name, self.handoffs, agents)

    def with_agents(self, agents: Mapping[str, Component]) -> Self:
        """Return a copy that may get by handoffs to agents among these, which it has not been given.

        Raises:
            ConfigurationError: A name means two agents.
        """
        if not self.handoffs:
            return self
        reached = reached_agents(
            self.name, self.handoffs, {**agents, **self._reached}
        )
        other = copy(self)
        vars(other).update(_reached=reached)
        return other

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
            **kwargs: `mcp`, the MCP servers by the names that it uses, `{"files": MCPServer("https://…/mcp")}`;
                `functions`, those before and after its work, by name; `agents`, the agents that it hands off to and
                those that these reach, by name, without which another one that hands off to it has to know them;
                values that override the blueprint's, such as `model`, `temperature` or `api_key`.

        Raises:
            BlueprintValidationError: The blueprint is invalid; with all problems.
            ConfigurationError: A keyword is unknown.
        """
        mcp = kwargs.pop("mcp", None)
        agents = kwargs.pop("agents", None)
        functions = named_map(kwargs.pop("functions", None), "functions")
        parsed = parse_with_overrides(blueprint, "agent", validate, kwargs)
        entries = parsed.data.get("tools")
        attached, problems = attach(entries, tools_by_name(tools), "/tools")
        from_servers, more = attach_mcp(mcp_tools(parsed.data), mcp)
        problems += more
        hooks, more = attach_hooks(
            parsed.data, functions_by_name(functions), attached
        )
        problems += more
        problems += name_problems(parsed)
        if agents is not None:
            problems += handoff_problems(parsed.data, agent_map(agents))
        if not validate:
            problems = []
        self = cls._from_parsed(parsed, problems)
        self._tools = {**attached, **from_servers}
        self._set_agents(agent_map(agents))
        self._hook_functions = hooks
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
            agents=supplied.agents,
            mcp=supplied.mcp,
            functions=supplied.functions,
            **supplied.with_model(options),
        )

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Its tools, by name."""
        return self._tools

    def own_tools(self) -> Mapping[str, Tool]:
        """Its tools, and the functions before and after its work, by name."""
        return {**self._hook_functions, **self._tools}

    def _put_tool(self, name: str, tool: Tool) -> None:
        super()._put_tool(name, tool)
        if name in self._tools:
            self._tools = {**self._tools, name: tool}

    @property
    def tool_names(self) -> Sequence[str]:
        """The names by which its model calls its tools, and hands its conversation over."""
        own = self.own_tools()
        return [*own, *transfer_tool_names(self.handoffs, own)]

    @property
    def max_handoffs(self) -> int:
        """Most handoffs of a run that it begins."""
        return self.config.get("max_handoffs", DEFAULT_MAX_HANDOFFS)

    @property
    def streams_answer(self) -> bool:
        """Whether the tokens of who answers are the answer; that of another one may be corrected or changed."""
        if self.response_model is not None:
            return True
        return not any(
            agent.response_schema is not None or agent.changes_answer
            for agent in self._reached.values()
        )

    def members(self) -> Mapping[str, Component]:
        """The agents that its runs may get to by handoffs, by name."""
        return self._reached

    def need(self, walk: Walk, given: Given) -> Forecast:
        """Return what its chat needs, and the chats of the agents that it may hand over to."""
        before, given = before_work(walk, self, given)
        if given.handed is not None:
            forecast = self._need_of_chat(walk, given, given.handed.team)
        elif self.handoffs:
            handover = begin(self, self._reached, self.max_handoffs)
            if given.response_model is None:
                given = replace(given, response_model=self.response_model)
            own_chat = partial(self._need_of_chat, walk, given, handover.team)
            forecast = need_with_handoffs(walk, self, given, handover, own_chat)
        else:
            forecast = self._need_of_chat(walk, given, {})
        return replace(forecast, need=before + forecast.need)

    def _need_of_chat(
        self, walk: Walk, given: Given, team: Mapping[str, Component]
    ) -> Forecast:
        """Return what its own chat needs, from which it may hand over to agents of a team."""
        tools = list(self._tools.values())
        turn = tool_turn(walk, tools)
        schemas = [tool.schema for tool in tools]
        if self.handoffs:
            transfers = transfers_of(self, team)
            turn = transfer_turn(walk, turn, transfers)
            schemas += [tool.schema for tool in transfers.tools.values()]
        chat = ChatEstimate(walk, self, given, schemas)
        answer = chat.answer(turn)
        return Forecast(chat.need, answer, chat.turn_tokens)

    async def perform(self, run: Run, task: Task) -> Any:
        """Chat with the model until it answers, or hands the conversation over to another agent.

        Raises:
            ConfigurationError: An agent that may answer hands off to one that the run does not have.
        """
        hooks = Hooks(run, self, task)
        task = await hooks.begin()
        handover = task.handover
        if handover is None and self.handoffs:
            handover = begin(self, self._reached, self.max_handoffs)
            if self.changes_answer:
                handover = replace(handover, finish=hooks.finish)
            if task.response_model is None:
                # an answer fits the schema of the agent that is asked, whoever gives it
                task = replace(task, response_model=self.response_model)
            active = active_agent(task.messages, other_tools(handover.team))
            if active in self._reached:
                return await go_on(run, task, self, handover, active)
        transfers = None
        if handover is not None:
            transfers = transfers_of(self, handover.team)
        tools = await prepare_tools(self._tools)
        chat = Chat(run, self, task, hooks, transfers)
        value = await chat.answer(tools)
        if handover is None or chat.transferred_to is None:
            return value
        return await hand_over(run, task, self, handover, chat)
