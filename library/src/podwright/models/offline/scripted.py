"""Models that answer as a test says: a script, or a function of the request."""

from __future__ import annotations

import inspect
import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

from podwright.data.json_data import (
    JsonObject,
    as_object,
    to_json_data,
    to_text,
)
from podwright.data.text import short_repr, truncate
from podwright.errors import ModelError
from podwright.messages.messages import ModelRequest, ModelResponse, ToolCall
from podwright.models.base import TokenCallback
from podwright.models.offline.offline import OfflineModel

Answer = Any
"""An answer of a scripted model.

A text, a `ModelResponse`, a tool call or a list of them, an exception to raise, or a function of the request that
returns one of these. Any other value, such as a dictionary or a pydantic model, is a structured answer.
"""
Condition = str | Callable[[ModelRequest], object]
"""A text in one of the messages of a request, or a function that returns whether a request is meant."""

_SHOWN_CHARS = 300
"""Characters of a message or an answer in an error."""
_SHOWN_CALLS = 10
"""Earlier calls in an error."""


def is_met(condition: Condition, request: ModelRequest) -> bool:
    """Whether a request has the text, or is one that the function means."""
    if callable(condition):
        return bool(condition(request))
    return any(condition in message.text for message in request.messages)


def take_first(answers: deque[Answer] | list[Answer]) -> Answer:
    """The next of some answers; a function stays, because it answers all further requests."""
    answer = answers[0]
    if not callable(answer):
        del answers[0]
    return answer


async def response_of(answer: Answer, request: ModelRequest) -> ModelResponse:
    """The response that an answer of a script stands for; see `Answer`.

    Raises:
        BaseException: The answer is an exception.
    """
    while callable(answer):
        answer = answer(request)
        if inspect.isawaitable(answer):
            answer = await answer
    match answer:
        case ModelResponse():
            return answer
        case str():
            return ModelResponse(answer)
        case BaseException():
            raise answer
        case ToolCall():
            return _calls([answer])
        case list() | tuple() if _are_calls(cast("Sequence[Any]", answer)):
            return _calls(cast("Sequence[ToolCall]", answer))
        case _:
            return ModelResponse(_structured(answer, request))


def _are_calls(items: Sequence[Any]) -> bool:
    return bool(items) and all(isinstance(item, ToolCall) for item in items)


def _calls(calls: Sequence[ToolCall]) -> ModelResponse:
    return ModelResponse(tool_calls=tuple(calls), finish_reason="tool_calls")


def _structured(value: Any, request: ModelRequest) -> str:
    """A structured answer as the model's JSON: in an object with the key `answer` where the request wants that."""
    data = to_json_data(value)
    if request.output is not None:
        properties = as_object(request.output.schema.get("properties"))
        is_wrapped = properties.keys() == {"answer"}
        if is_wrapped and "answer" not in as_object(data):
            data = JsonObject(answer=data)
    return json.dumps(data, ensure_ascii=False)


class ScriptedModel(OfflineModel):
    """Gives the answers of a script, one per call, and keeps the requests in `requests`.

    Args:
        *answers: Texts, responses, tool calls (one, or a list for one turn), structured answers (dictionaries, pydantic
            models and other data), exceptions to raise, or functions of the `ModelRequest`, which answer all further
            requests. They may be async.
        name: Its name in requests, events and usage.
    """

    def __init__(
        self, *answers: Answer, name: str = "offline/scripted"
    ) -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._answers = deque(answers)
        self._conditional: list[tuple[Condition, deque[Answer]]] = []
        self._given: list[str] = []
        """For each request, who made it and what it was answered."""

    def when(self, condition: Condition, *answers: Answer) -> Self:
        """Give these answers to the requests that meet a condition, before those of the script, and return the model.

        So each of several agents gets its own answers, whatever the order of their calls:
        `ScriptedModel().when("You write", "A line.").when("You review", "Good.")`.

        Args:
            condition: A text in one of the messages, such as a part of the instructions; or a function of the
                `ModelRequest` that returns whether it is meant: `lambda request: request.component == "writer"`.
            *answers: Each is given once, except functions. After them, the script goes on.
        """
        self._conditional.append((condition, deque(answers)))
        return self

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        """Give the next answer for the request.

        Raises:
            ModelError: The script has none; with the calls before, and the last message of this one.
        """
        self.requests.append(request)
        answer = self._next_answer(request)
        shown = truncate(_shown(answer), _SHOWN_CHARS)
        self._given.append(f"{_by(request)}: {shown}")
        response = await response_of(answer, request)
        return self.finish(request, response, on_token)

    def _next_answer(self, request: ModelRequest) -> Answer:
        for condition, answers in self._conditional:
            if answers and is_met(condition, request):
                return take_first(answers)
        if self._answers:
            return take_first(self._answers)
        raise self._ended_error(request)

    def _ended_error(self, request: ModelRequest) -> ModelError:
        number = len(self.requests)
        message = f"The script of '{self.name}' has no answer for call {number} {_by(request)}."
        if request.messages:
            last = request.messages[-1]
            text = short_repr(truncate(last.text, _SHOWN_CHARS), _SHOWN_CHARS)
            message += (
                f" Its last message is of the role '{last.role}': {text}."
            )
        first = max(0, len(self._given) - _SHOWN_CALLS)
        for at, given in enumerate(self._given[first:], first + 1):
            message += f"\n  - call {at} {given}"
        return ModelError(
            message,
            suggestion="Add an answer, or correct the one before if the last message says that it was refused.",
        )


def _by(request: ModelRequest) -> str:
    """Who makes a request."""
    if not request.component:
        return "without a component"
    return f"of '{request.component}'"


def _shown(answer: Answer) -> str:
    """An answer for people."""
    match answer:
        case ModelResponse() if answer.tool_calls:
            return _shown(list(answer.tool_calls))
        case ModelResponse():
            return repr(answer.text)
        case str():
            return repr(answer)
        case ToolCall():
            return f"the tool call {answer.name}({answer.arguments})"
        case list() | tuple() if _are_calls(cast("Sequence[Any]", answer)):
            return ", ".join(map(_shown, cast("Sequence[ToolCall]", answer)))
        case BaseException():
            return f"raised {answer!r}"
        case _ if callable(answer):
            return f"what {short_repr(answer)} returned"
        case _:
            return to_text(answer)


class FunctionModel(OfflineModel):
    """Answers with what a function returns.

    Args:
        function: Called with the `ModelRequest`; returns what a `ScriptedModel` may answer. It may be async.
        name: Its name in requests, events and usage.
    """

    def __init__(
        self,
        function: Callable[[ModelRequest], Any],
        name: str = "offline/function",
    ) -> None:
        self.name = name
        self._function = function

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        """Answer with the function's result."""
        response = await response_of(self._function, request)
        return self.finish(request, response, on_token)
