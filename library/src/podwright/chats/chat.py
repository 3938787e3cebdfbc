"""The chat of a model with its tools, which agents and conductors share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from podwright import errors
from podwright.chats.call_approvals import result_in
from podwright.chats.chat_messages import ChatMessages
from podwright.chats.hooks import OUTPUT, Hooks, read_changed
from podwright.chats.model_call import call_model
from podwright.chats.response_format import ResponseFormat, response_format
from podwright.chats.tool_answers import content_data
from podwright.chats.tool_calls import ToolAnswer, ToolCaller
from podwright.chats.transfers import Transfers
from podwright.data.json_data import to_json_data, to_text
from podwright.data.media import to_shown_text
from podwright.messages.messages import (
    Message,
    ModelResponse,
    ModelSettings,
    OutputSchema,
    ToolCall,
)
from podwright.run.component import ModelComponent
from podwright.run.run import Finish, Run, Task
from podwright.tools.tool import Tool


class Chat:
    """The chat of a run: its messages, the model and its settings, and the tools.

    Args:
        run: The run of an agent or a conductor.
        component: The agent or the conductor.
        task: What it is to do.
        hooks: The functions around its work.
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
        hooks: Hooks,
        transfers: Transfers | None = None,
    ) -> None:
        self._run = run
        self._component = component
        self.task = task
        """What it is to do, after the functions before the work."""
        self._hooks = hooks
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

    @classmethod
    async def begin(
        cls, run: Run, component: ModelComponent, task: Task
    ) -> Chat:
        """Call the functions before the work, and return the chat.

        Raises:
            Refusal: A function refuses the task.
            ContextError, MessagesError, ToolError: See `Chat` and `Hooks.begin`.
        """
        hooks = Hooks(run, component, task)
        return cls(run, component, await hooks.begin(), hooks)

    async def answer(self, tools: Mapping[str, Tool]) -> Any:
        """Chat until the model gives the answer of the run, in the task's type or the component's own.

        Args:
            tools: The tools that the model may call, by name.

        Returns:
            The answer; None if another agent goes on, see `transferred_to`.

        Raises:
            LoopLimitError: The model still called tools in its last call.
            OutputError: More answers than `max_corrections`, or the last one, did not fit the response model or were
                not accepted by the functions after the work.
            Refusal: A function refuses to give the answer.
            ModelRefusedError: It refused to answer in the response model.
            ModelError, ToolError, LimitExceededError: See `podwright.errors`.
        """
        response_model = self.task.response_model
        if response_model is None:
            response_model = self._component.response_model
        response, value = await self._converse(
            self.messages,
            response_model,
            {**tools, **self._transfers.tools},
            accept=self._accept,
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
        _, value = await self._converse(
            messages, response_model, {}, accept=_accept_all
        )
        # so that the next request does not report the same cut
        self.messages.cut = messages.cut
        return value

    async def _converse(
        self,
        messages: ChatMessages,
        response_model: Any,
        tools: Mapping[str, Tool],
        *,
        accept: _Accept,
    ) -> tuple[ModelResponse, Any]:
        """Call the model and the tools that it asks for, until it answers.

        Args:
            messages: The messages so far; the turn is extended.
            response_model: The type of the answer; None is text.
            tools: The tools that the model may call, by name.
            accept: Called with each answer that fits; returns the response and the value, perhaps others.

        Returns:
            The last response, and the value that it stands for.
        """
        run = self._run
        component = self._component
        models = component.chat_models
        settings = _combined_settings(component.settings, self.task.settings)
        answer_format = await response_format(response_model)
        schema: OutputSchema | None = None
        if answer_format is not None:
            schema = answer_format.schema
        schemas = tuple(tool.schema for tool in tools.values())
        choice = component.tool_choice if tools else None
        tool_caller = ToolCaller(run, tools, component.max_tool_retries)
        max_loops = component.max_loops
        problem: _AnswerError | None = None
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
                accepts_cut_text="max_tokens" in self.task.settings,
            )
            answer = response.message()
            if response.tool_calls:
                problem = None
                results = await self._transfers.call_all(
                    tool_caller, response.tool_calls
                )
                messages.turn += [answer, *(each.message for each in results)]
                if choice != "none":
                    choice = None
                if self.transferred_to is not None:
                    return response, None
                final = _final_result(component, response.tool_calls, results)
                if final is None:
                    continue
                response = replace(
                    response, text=final, tool_calls=(), finish_reason="stop"
                )
                answer = Message("assistant", final)
            try:
                value = await _read_answer(response.text, answer_format)
                accepted = await accept(response, value, answer_format)
            except _AnswerError as error:
                problem = error
                misfits += 1
                if misfits > component.max_corrections:
                    raise _output_error(
                        run,
                        "max_corrections",
                        component.max_corrections,
                        problem,
                    ) from error.__cause__
                messages.add_asides(answer, error.correction)
                # a model that answers at once must not block the event loop for other runs
                await asyncio.sleep(0)
                continue
            if accepted[0] is not response:
                # what the model said besides belongs to its own answer
                answer = Message("assistant", accepted[0].text)
            messages.turn.append(answer)
            return accepted
        raise _no_answer_error(run, max_loops, problem)

    async def _accept(
        self,
        response: ModelResponse,
        value: Any,
        answer_format: ResponseFormat | None,
    ) -> tuple[ModelResponse, Any]:
        """Call the functions after the work; return the answer, or another one that they gave.

        Raises:
            _AnswerError: A function asks the model for another answer.
        """
        for finish in self._finishers():
            messages = (*self.messages.earlier, *self.messages.turn)
            try:
                changed = await finish(
                    to_json_data(value), messages, may_retry=True
                )
            except errors.ModelRetry as error:
                if error.run_id is not None:
                    raise
                raise _AnswerError(
                    error.message,
                    "that its functions accept",
                    correction=error.message,
                ) from error
            if OUTPUT not in changed:
                continue
            output = changed[OUTPUT]
            value = await read_changed(
                output, answer_format, self._component.name
            )
            response = replace(
                response, text=to_text(output), finish_reason="stop"
            )
        return response, value

    def _finishers(self) -> Iterator[Finish]:
        """Yield what calls the functions after its own work, and after that of the agent in whose place it answers."""
        if self._component.changes_answer:
            yield self._hooks.finish
        handover = self.task.handover
        if handover is not None and handover.finish is not None:
            yield handover.finish


_Accept = Callable[
    [ModelResponse, Any, ResponseFormat | None],
    Awaitable[tuple[ModelResponse, Any]],
]


async def _accept_all(
    response: ModelResponse, value: Any, _: ResponseFormat | None
) -> tuple[ModelResponse, Any]:
    return response, value


class _AnswerError(Exception):
    """An answer that the model is to correct.

    Args:
        reason: What is wrong with it.
        wanted: What it should have been.
        correction: What the model is told.
    """

    def __init__(self, reason: str, wanted: str, *, correction: str) -> None:
        super().__init__(reason)
        self.reason = reason.rstrip(".")
        self.wanted = wanted
        self.correction = correction


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
        _AnswerError: The text does not fit the response model.
    """
    if answer_format is None:
        return text
    try:
        return await answer_format.read(text)
    except ValueError as error:
        raise _AnswerError(
            str(error),
            "that fits the response model",
            correction=f"The answer does not fit the schema: {error}. Answer again with JSON that fits.",
        ) from error


def _no_answer_error(
    run: Run, max_loops: int, problem: _AnswerError | None
) -> errors.PodwrightError:
    """The error after the last call.

    Args:
        run: The run.
        max_loops: How many calls there were.
        problem: What was wrong with the last answer; None if it called tools.
    """
    if problem is None:
        return errors.LoopLimitError(
            f"'{run.component_name}' still called tools after {max_loops} model calls."
        )
    return _output_error(run, "max_loops", max_loops, problem)


def _output_error(
    run: Run, limit: str, value: int, problem: _AnswerError
) -> errors.OutputError:
    return errors.OutputError(
        f"'{run.component_name}' gave no answer {problem.wanted} within {limit}={value}: {problem.reason}.",
        suggestion=f"Simplify the response model, raise {limit}, or use a more capable model.",
    )
