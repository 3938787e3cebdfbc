"""Handoffs: the agents that may go on with the conversation of an agent, and which of them answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from podwright.blueprints.members import handoffs_of
from podwright.chats.chat import Chat
from podwright.chats.chat_messages import inputs_of
from podwright.chats.hooks import OUTPUT, after_work, read_changed_output
from podwright.chats.transfers import Transfers, active_agent
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    to_json_data,
    to_text,
)
from podwright.data.tool_names import transfer_tool_names
from podwright.errors import ConfigurationError, LoopLimitError, Problem
from podwright.estimates.need import Need
from podwright.estimates.sizes import Size
from podwright.estimates.walk import Forecast, Given, Handed, Walk
from podwright.events import HandoffEvent
from podwright.messages.conversation import to_data
from podwright.messages.messages import Message
from podwright.models.fallback import mark_provider
from podwright.run.component import Component, ModelComponent
from podwright.run.run import Handover, Run, Task
from podwright.workflows.agent_map import AgentMap

DEFAULT_MAX_HANDOFFS = 10
"""Handoffs of one run, if a blueprint does not say."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """An agent that may go on with the conversation of another one."""

    agent: Component | str
    """The agent; or the name of one that the run reaches by other handoffs, or began with."""
    when: str = ""
    """What to hand over, for the model."""

    @property
    def name(self) -> str:
        """The name of the agent."""
        if isinstance(self.agent, Component):
            return self.agent.name
        return self.agent


def to_handoffs(values: Sequence[object]) -> list[Handoff]:
    """Return handoffs as a caller gives them: agents, their names, or handoffs.

    Raises:
        ConfigurationError: One is none of these.
    """
    handoffs: list[Handoff] = []
    for value in values:
        if isinstance(value, Component | str):
            handoffs.append(Handoff(value))
        elif isinstance(value, Handoff):
            handoffs.append(value)
        else:
            raise ConfigurationError(
                f"Expected an agent, its name, or a Handoff, not {value!r}."
            )
    return handoffs


def handoff_entries(handoffs: Sequence[Handoff]) -> list[str | JsonObject]:
    """Return the entries of handoffs in a blueprint."""
    return [
        {"agent": each.name, "when": each.when} if each.when else each.name
        for each in handoffs
    ]


def agents_of(handoffs: Sequence[Handoff]) -> dict[str, Component]:
    """Return the agents of handoffs that are given, by name.

    Raises:
        ConfigurationError: Two have the same name.
    """
    agents: dict[str, Component] = {}
    for handoff in handoffs:
        if isinstance(handoff.agent, Component):
            _add(agents, handoff.name, handoff.agent)
    return agents


def reached_agents(
    first: str, handoffs: Mapping[str, str], agents: Mapping[str, Component]
) -> dict[str, Component]:
    """Return the agents that a run may get to by handoffs, by name, without the one that it begins with.

    A name means one agent in the whole run, so references may form circles.

    Args:
        first: The name of the agent that the run begins with.
        handoffs: The agents that this one hands off to.
        agents: Agents by name; those that have agents of their own add them.

    Raises:
        ConfigurationError: A name means two agents.
    """
    known = dict(agents)
    reached: dict[str, Component] = {}
    named = dict(handoffs)
    while new := [
        name
        for name in named
        if name in known and name not in reached and name != first
    ]:
        for name in new:
            agent = known[name]
            reached[name] = agent
            named |= agent.handoffs
            if agent.handoffs:
                for inner_name, inner in agent.members().items():
                    _add(known, inner_name, inner)
    return reached


def handoff_problems(
    part: JsonMapping, agents: AgentMap, at: str = ""
) -> list[Problem]:
    """Return the problems of handoffs to agents that are missing, those of the agents reached by them included.

    Args:
        part: The blueprint of an agent or a member, valid or not.
        agents: The agents that are known.
        at: Its JSON pointer.

    Raises:
        ConfigurationError: A name means two agents.
    """
    own = handoffs_of(part)
    problems: list[Problem] = []
    for number, name in enumerate(own):
        problems += agents.missing(name, f"{at}/handoffs/{number}")
    first = str(part.get("name"))
    reached = reached_agents(first, own, agents)
    for agent in reached.values():
        for name in agent.handoffs:
            if name in (first, *reached, *own):
                continue
            for problem in agents.missing(name, f"{at}/handoffs"):
                detail = f"Agent '{agent.name}': {problem.detail}"
                problems.append(replace(problem, detail=detail))
    return problems


def _add(known: dict[str, Component], name: str, agent: Component) -> None:
    other = known.setdefault(name, agent)
    # a file that several agents name is loaded for each
    if other is not agent and other.to_blueprint() != agent.to_blueprint():
        raise ConfigurationError(
            f"Two agents are called '{name}'.",
            suggestion="Give each its own name.",
        )


def begin(
    first: Component, reached: Mapping[str, Component], most: int
) -> Handover:
    """Return the conversation at the start of a run.

    Args:
        first: The agent that the run begins with.
        reached: See `reached_agents`.
        most: Handoffs that the run may have.

    Raises:
        ConfigurationError: An agent hands off to one that is not there.
    """
    team = {**reached, first.name: first}
    for agent in team.values():
        for name in agent.handoffs:
            if name not in team:
                raise ConfigurationError(
                    f"'{agent.name}' hands off to '{name}', which the run of '{first.name}' does not have.",
                    suggestion="Name it in the handoffs of the agent that the run begins with.",
                )
    return Handover(team, most)


def transfers_of(
    agent: ModelComponent, team: Mapping[str, Component]
) -> Transfers:
    """Return the tools by which an agent hands its conversation over."""
    handoffs = agent.handoffs
    names = transfer_tool_names(handoffs, agent.own_tools())
    return Transfers(
        {
            tool: (name, _description(name, team[name], when))
            for tool, (name, when) in zip(names, handoffs.items(), strict=True)
        }
    )


def other_tools(team: Mapping[str, Component]) -> set[str]:
    """Return the names of the agents' own tools, without those that are also names of transfers."""
    own: set[str] = set()
    transfers: set[str] = set()
    for agent in team.values():
        tools = agent.own_tools()
        own.update(tools)
        transfers.update(transfer_tool_names(agent.handoffs, tools))
    return own - transfers


def _description(name: str, agent: Component, when: str) -> str:
    sentences = [f"Hand the conversation over to '{name}', who answers."]
    sentences += [text for text in (agent.description, when) if text]
    return " ".join(sentences)


async def hand_over(
    run: Run, task: Task, agent: ModelComponent, handover: Handover, chat: Chat
) -> Any:
    """Let the agent go on to which the model of another one has transferred its chat.

    Returns:
        The answer, which is also that of the run.

    Raises:
        LoopLimitError: The outermost run of the conversation has had as many handoffs as it may have.
    """
    name = chat.transferred_to or ""
    if handover.done >= handover.most:
        raise LoopLimitError(
            f"'{agent.name}' still handed over to '{name}' after {handover.most} handoffs.",
            suggestion="Raise max_handoffs, or let the instructions say who answers what.",
        )
    event = HandoffEvent(**run.stamp(), from_agent=agent.name, to_agent=name)
    run.emit(event)
    goes_on = replace(
        handover,
        done=handover.done + 1,
        turn=tuple(chat.messages.lasting_turn()),
    )
    return await go_on(run, task, agent, goes_on, name)


async def go_on(
    run: Run,
    task: Task,
    agent: ModelComponent,
    handover: Handover,
    name: str,
) -> Any:
    """Let another agent answer in place of one, in a nested run.

    Args:
        run: The run of the agent.
        task: Its task.
        agent: The agent.
        handover: The conversation.
        name: The other agent.

    Returns:
        The answer, which is also that of the run.
    """
    target = handover.team[name]
    provider = agent.model.name.partition("/")[0]
    nested_task = await target.nested_task(
        task.input, inputs_of(task), task.response_model
    )
    earlier = _marked(task.messages, provider)
    turn = _marked(handover.turn, provider)
    goes_on = isinstance(target, ModelComponent)
    if not goes_on:
        # it is given the input again, after what the others have said to it
        earlier += turn
    nested_task = replace(
        nested_task,
        messages=earlier,
        instructions=task.instructions,
        settings=task.settings,
        handover=replace(handover, turn=turn) if goes_on else None,
    )
    with run.step(name, "handoff_step", run.path):
        nested = run.child(target, run.path)
        value = await nested.execute(nested_task)
    run.finish_reason = nested.finish_reason
    if goes_on:
        run.messages = nested.messages
        run.data = nested.data
        return value
    output = target.output(value, nested.data)
    said = handover.turn or (task.parsed_input.message(),)
    if handover.finish is not None:
        conversation = (*task.messages, *said)
        changed = await handover.finish(to_json_data(output), conversation)
        if OUTPUT in changed:
            output = await read_changed_output(
                changed[OUTPUT], output, task.response_model, name
            )
            run.finish_reason = "stop"
    if not isinstance(output, str):
        run.data = to_json_data(output)
    answer = Message("assistant", to_text(output))
    run.messages = to_data((*task.messages, *said, answer))
    return output


def _marked(messages: Sequence[Message], provider: str) -> tuple[Message, ...]:
    """Messages of which another provider is not sent what they carry for the one that they are from."""
    return tuple(mark_provider(message, provider) for message in messages)


# --- Estimates --------------------------------------------------------------------------------------------------------


def need_with_handoffs(
    walk: Walk,
    first: Component,
    given: Given,
    handover: Handover,
    own_chat: Callable[[], Forecast],
) -> Forecast:
    """Return what a run needs that begins with an agent which may hand its conversation over.

    At least and usually, nobody hands it over. At most, as many agents go on as may, each time the dearest one of those
    that the conversation may have got to, with the longest turn that it may have then.

    Args:
        walk: The walk.
        first: The agent that the run begins with.
        given: What it is given, with the type of the answer.
        handover: The agents that may go on.
        own_chat: Returns what the chat of the first agent needs.
    """
    need = Need()
    answers: list[Size] = []
    turn_tokens = 0
    names = _speakers(walk, first, given, handover)
    for number in range(walk.choose(1, 1, handover.most + 1)):
        forecasts: list[Forecast] = []
        for name in names:
            if name == first.name and number == 0:
                forecasts.append(own_chat())
                continue
            handed = Handed(handover.team, first, turn_tokens)
            forecasts.append(_need_after_handoff(walk, name, given, handed))
        need += walk.one_of_needs([each.need for each in forecasts])
        answers += [each.answer for each in forecasts]
        turn_tokens = max(each.turn_tokens for each in forecasts)
        names = _next_speakers(names, handover.team)
        if not names:
            break
    choose = walk.choose(min, max, max)
    answer = choose(answers, key=lambda size: size.bytes)
    return Forecast(need, answer)


def _speakers(
    walk: Walk, first: Component, given: Given, handover: Handover
) -> list[str]:
    """Return the names of the agents that may answer first, which earlier turns say."""
    team = handover.team
    if given.earlier.may_be_handed and walk.bound != "usual":
        return list(team)
    active = active_agent(given.earlier.messages, other_tools(team))
    if active is None or active not in team:
        return [first.name]
    return [active]


def _next_speakers(
    names: Sequence[str], team: Mapping[str, Component]
) -> list[str]:
    """Return the names of the agents that these may hand over to."""
    following: dict[str, None] = {}
    for name in names:
        agent = team[name]
        if isinstance(agent, ModelComponent) and agent.tool_choice != "none":
            following.update(dict.fromkeys(agent.handoffs))
    return list(following)


def _need_after_handoff(
    walk: Walk, name: str, given: Given, handed: Handed
) -> Forecast:
    """Return what an agent needs that goes on in place of another one; see `go_on`."""
    target = handed.team[name]
    data = given.named if given.content is None else given.content
    goes_on = isinstance(target, ModelComponent)
    earlier = given.earlier
    if not goes_on and handed.turn_tokens:
        earlier = replace(
            earlier,
            further_tokens=earlier.further_tokens + handed.turn_tokens,
            may_be_handed=True,
        )
    nested = walk.given(
        target,
        data,
        given.every_value,
        earlier=earlier,
        response_model=given.response_model,
        handed=handed if goes_on else None,
    )
    forecast = walk.run(target, nested)
    if goes_on:
        return forecast
    after, answer = after_work(walk, handed.first, forecast.answer)
    return Forecast(forecast.need + after, answer)
