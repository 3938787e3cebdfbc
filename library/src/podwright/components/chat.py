"""The chat of a model with its tools, which agents and conductors share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podwright import errors
from podwright.components.base import (
    DEFAULT_MAX_CORRECTIONS,
    DEFAULT_MAX_TOOL_RETRIES,
    ModelComponent,
)
from podwright.components.chat_messages import ChatMessages
from podwright.components.model_call import call_model
from podwright.components.models_of_chat import ChatModels
from podwright.components.response_format import (
    ResponseFormat,
    response_format,
)
from podwright.components.tool_calls import ToolCaller
from podwright.json_data import to_json_data
from podwright.messages import ModelSettings, OutputSchema
from podwright.run import Run, Task
from podwright.tools import Tool


@dataclass(frozen=True, slots=True)
class ChatConfig:
    """The model of a chat, its settings and its tools."""

    models: ChatModels
    settings: ModelSettings
    max_loops: int
    """Most model calls."""
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    accepts_cut_text: bool = False
    """Whether a text that is cut off at `max_tokens` is an answer."""
    max_tool_retries: int = DEFAULT_MAX_TOOL_RETRIES
    """Wrong or failed calls of one tool in a row that are reported to the model."""
    max_corrections: int = DEFAULT_MAX_CORRECTIONS
    """Answers that do not fit the response model and are asked for again."""

    @classmethod
    def of(
        cls, component: ModelComponent, task: Task, tools: Mapping[str, Tool]
    ) -> ChatConfig:
        """The configuration of a component's chat for a task."""
        return cls(
            component.chat_models,
            _combined_settings(component.settings, task.settings),
            component.max_loops,
            tools=tools,
            accepts_cut_text="max_tokens" in task.settings,
            max_tool_retries=component.max_tool_retries,
            max_corrections=component.max_corrections,
        )


def _combined_settings(
    own: ModelSettings, callers: ModelSettings
) -> ModelSettings:
    """A component's settings and those of a caller, who can only lower `max_tokens`."""
    settings: ModelSettings = {**own, **callers}
    if "max_tokens" in own and "max_tokens" in callers:
        settings["max_tokens"] = min(own["max_tokens"], callers["max_tokens"])
    return settings


def begin_chat(component: ModelComponent, task: Task) -> ChatMessages:
    """The messages at the start of a component's chat.

    Raises:
        ContextError: The instructions use a name that is no input, or the input has a wrong type.
        MessagesError: A part of the input is neither a text nor an image.
    """
    return ChatMessages.begin(
        component.instructions,
        task,
        component.history_settings,
        where=f"The instructions of '{component.name}'",
    )


async def run_to_answer(
    run: Run,
    config: ChatConfig,
    messages: ChatMessages,
    component: ModelComponent,
    task: Task,
) -> Any:
    """Chat until the model gives the answer of a run, in the task's type or the component's own; see `run_chat`."""
    response_model = task.response_model
    if response_model is None:
        response_model = component.response_model
    value = await run_chat(run, config, messages, response_model)
    if response_model is not None:
        run.data = to_json_data(value)
    return value


async def run_chat(
    run: Run,
    config: ChatConfig,
    messages: ChatMessages,
    response_model: Any = None,
) -> Any:
    """Call the model and the tools that it asks for, until it answers.

    Args:
        run: The run of the agent or the conductor.
        config: Model, settings and tools.
        messages: The messages so far; the turn is extended, and at the end the run's `messages` are all of them.
        response_model: The type of the answer; None is text.

    Raises:
        LoopLimitError: The model still called tools in its last call.
        OutputError: More answers than `max_corrections`, or the last one, did not fit the response model.
        ModelRefusedError: It refused to answer in the response model.
        ModelError, ToolError, LimitExceededError: See `podwright.errors`.
    """
    answer_format = await response_format(response_model)
    schema: OutputSchema | None = None
    if answer_format is not None:
        schema = answer_format.schema
    tools = [tool.schema for tool in config.tools.values()]
    tool_caller = ToolCaller(run, config.tools, config.max_tool_retries)
    reason = ""
    misfits = 0
    for _ in range(config.max_loops):
        response = await call_model(
            run,
            config.models,
            messages,
            config.settings,
            tools=tools,
            output=schema,
            accepts_cut_text=config.accepts_cut_text,
        )
        answer = response.message()
        if response.tool_calls:
            reason = ""
            results = await tool_caller.call_all(response.tool_calls)
            messages.turn += [answer, *results]
            continue
        try:
            value = await _read_answer(response.text, answer_format)
        except ValueError as error:
            reason = str(error)
            misfits += 1
            if misfits > config.max_corrections:
                raise _output_error(
                    run, "max_corrections", config.max_corrections, reason
                ) from error
            correction = f"The answer does not fit the schema: {reason}. Answer again with JSON that fits."
            messages.add_asides(answer, correction)
            # a model that answers at once must not block the event loop for other runs
            await asyncio.sleep(0)
            continue
        messages.turn.append(answer)
        run.messages = messages.to_data()
        run.finish_reason = response.finish_reason
        return value
    raise _no_answer_error(run, config.max_loops, reason)


async def _read_answer(text: str, answer_format: ResponseFormat | None) -> Any:
    """The value of an answer; the text itself without a response model.

    Raises:
        ValueError: The text does not fit the response model.
    """
    if answer_format is None:
        return text
    return await answer_format.read(text)


def _no_answer_error(
    run: Run, max_loops: int, reason: str
) -> errors.PodwrightError:
    """The error after the last call.

    Args:
        run: The run.
        max_loops: How many calls there were.
        reason: What was wrong with the last answer; empty if it called tools.
    """
    if not reason:
        return errors.LoopLimitError(
            f"'{run.component_name}' still called tools after {max_loops} model calls."
        )
    return _output_error(run, "max_loops", max_loops, reason)


def _output_error(
    run: Run, limit: str, value: int, reason: str
) -> errors.OutputError:
    return errors.OutputError(
        f"'{run.component_name}' gave no answer that fits the response model within {limit}={value}: {reason}.",
        suggestion=f"Simplify the response model, raise {limit}, or use a more capable model.",
    )
