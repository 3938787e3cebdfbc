"""The chat of a model with its tools, which agents and conductors share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from podwright import errors
from podwright.chats.call_approvals import result_in
from podwright.chats.chat_messages import ChatMessages
from podwright.chats.model_call import call_model
from podwright.chats.response_format import ResponseFormat, response_format
from podwright.chats.tool_answers import content_data
from podwright.chats.tool_calls import ToolAnswer, ToolCaller
from podwright.chats.transfers import Transfers
from podwright.data.json_data import to_json_data
from podwright.data.media import to_shown_text
from podwright.messages.messages import (
    Message,
    ModelResponse,
    ModelSettings,
    OutputSchema,
    ToolCall,
)
from podwright.run.component import ModelComponent
from podwright.run.run import Run, Task
from podwright.tools.tool import Tool


class Chat:
    """The chat of a run: its messages, the model and its settings, and the tools.

    Args:
        run: The run of an agent or a conductor.
        component: The agent or the conductor.
        task: What it is to do.
        transfers: The tools by which its model may hand the chat over to another agent; None for none.

    Raises:
        ContextError: The instructions use a name that is no input, or the input has a wrong type.
        MessagesError: A part of the input is not one of a message.
    """

    def __init__(
        self,
        run: Run,
        component: ModelComponent,
        task: Task,
        transfers: Transfers | None = None,
    ) -> None:
        self._run = run
        self._component = component
        self._task = task
        self._transfers = transfers or Transfers({})
        self.messages = ChatMessages.begin(
            component.instructions,
            task,
            component.history_settings,
            where=f"The instructions of '{component.name}'",
        )

    @property
    def transferred_to(self) -> str | None:
        """The agent that goes on with the chat; None unless its model has handed it over."""
        return self._transfers.target

    async def answer(self, tools: Mapping[str, Tool]) -> Any:
        """Chat until the model gives the answer of the run, in the task's type or the component's own.

        Args:
            tools: The tools that the model may call, by name.

        Returns:
            The answer; None if another agent goes on, see `transferred_to`.

        Raises:
            LoopLimitError: The model still called tools in its last call.
            OutputError: More answers than `max_corrections`, or the last one, did not fit the response model.
            ModelRefusedError: It refused to answer in the response model.
            ModelError, ToolError, LimitExceededError: See `podwright.errors`.
        """
        response_model = self._task.response_model
        if response_model is None:
            response_model = self._component.response_model
        response, value = await self._converse(
            self.messages, response_model, {**tools, **self._transfers.tools}
        )
        if self.transferred_to is not None:
            return None
        run = self._run
        run.messages = self.messages.to_data()
        run.finish_reason = response.finish_reason
        if response_model is not None:
            run.data = to_json_data(value)
        return value

    async def ask(self, question: str, response_model: Any) -> Any:
        """Ask one thing more, without tools. Neither the question nor the answer becomes part of the chat.

        Raises:
            OutputError, ModelRefusedError, ModelError, LimitExceededError: As `answer`.
        """
        messages = self.messages.with_question(question)
        _, value = await self._converse(messages, response_model, {})
        # so that the next request does not report the same cut
        self.messages.cut = messages.cut
        return value

    async def _converse(
        self,
        messages: ChatMessages,
        response_model: Any,
        tools: Mapping[str, Tool],
    ) -> tuple[ModelResponse, Any]:
        """Call the model and the tools that it asks for, until it answers.

        Args:
            messages: The messages so far; the turn is extended.
            response_model: The type of the answer; None is text.
            tools: The tools that the model may call, by name.

        Returns:
            The last response, and the value that it stands for.
        """
        run = self._run
        component = self._component
        models = component.chat_models
        settings = _combined_settings(component.settings, self._task.settings)
        answer_format = await response_format(response_model)
        schema: OutputSchema | None = None
        if answer_format is not None:
            schema = answer_format.schema
        schemas = tuple(tool.schema for tool in tools.values())
        choice = component.tool_choice if tools else None
        tool_caller = ToolCaller(run, tools, component.max_tool_retries)
        max_loops = component.max_loops
        reason = ""
        misfits = 0
        for _ in range(max_loops):
            request = messages.request(
                run,
                models.first.name,
                tools=schemas,
                settings=settings,
                output=schema,
                tool_choice=choice,
            )
            response = await call_model(
                run,
                models,
                request,
                accepts_cut_text="max_tokens" in self._task.settings,
            )
            answer = response.message()
            if response.tool_calls:
                reason = ""
                calls = response.tool_calls
                results = await self._transfers.call_all(tool_caller, calls)
                messages.turn += [answer, *(each.message for each in results)]
                if choice != "none":
                    choice = None
                if self.transferred_to is not None:
                    return response, None
                final = _final_result(component, calls, results)
                if final is None:
                    continue
                response = replace(
                    response, text=final, tool_calls=(), finish_reason="stop"
                )
                answer = Message("assistant", final)
            try:
                value = await _read_answer(response.text, answer_format)
            except ValueError as error:
                reason = str(error)
                misfits += 1
                limit = component.max_corrections
                if misfits > limit:
                    raise _output_error(
                        run, "max_corrections", limit, reason
                    ) from error
                correction = f"The answer does not fit the schema: {reason}. Answer again with JSON that fits."
                messages.add_asides(answer, correction)
                # a model that answers at once must not block the event loop for other runs
                await asyncio.sleep(0)
                continue
            messages.turn.append(answer)
            return response, value
        raise _no_answer_error(run, max_loops, reason)


def _final_result(
    component: ModelComponent,
    calls: Sequence[ToolCall],
    answers: Sequence[ToolAnswer],
) -> str | None:
    """Return the text of the first result of a tool that the component stops at; None if there is none."""
    for call, answer in zip(calls, answers, strict=True):
        if call.name in component.stop_at and answer.is_result:
            result = result_in(answer.message.content)
            return to_shown_text(content_data(result))
    return None


def _combined_settings(
    own: ModelSettings, callers: ModelSettings
) -> ModelSettings:
    """A component's settings and those of a caller, who can only lower `max_tokens`."""
    settings: ModelSettings = {**own, **callers}
    if "max_tokens" in own and "max_tokens" in callers:
        settings["max_tokens"] = min(own["max_tokens"], callers["max_tokens"])
    return settings


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
