"""An agent that is a function: how agents of other frameworks, or none, become components."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import TypeAdapter
from typing_extensions import TypedDict, Unpack

from podwright import events
from podwright.callables import call_function
from podwright.components.base import PromptComponent
from podwright.components.chat_messages import ChatMessages, one_turn
from podwright.components.function_calls import call_step_function
from podwright.components.options import DescribedOptions, own_blueprint
from podwright.components.response_format import response_format
from podwright.errors import ConfigurationError, OutputError
from podwright.events import Kind
from podwright.json_data import as_object, to_text
from podwright.run import Run, Task
from podwright.run_context import RunContext
from podwright.text import short_repr
from podwright.tools import Tool


class _Arguments(TypedDict):
    task: Any


_ARGUMENTS: TypeAdapter[Any] = TypeAdapter(_Arguments)


class FunctionAgent(PromptComponent):
    """An agent that is a function, which may use any framework.

        async def write(task: str, context: RunContext) -> str:
            result = await agent.run(task)
            context.report_usage("openai/gpt-5", input_tokens=…, output_tokens=…)
            return result.output

        writer = FunctionAgent("writer", write, description="Writes texts.")

    Its calls are one effect each: a background run does not repeat one that has ended, and asks a person about one that
    was cut off, unless it is idempotent.

    Args:
        name: Its name here, which blueprints and steps use.
        function: Called with the task, and with the `RunContext` if it takes a second parameter. The task is a text; if
            the input has images, a list of texts and images. It returns the answer: a text, or JSON data. A generator
            yields the pieces of a text, which streams pass on. A function that is not async runs in a thread.
        idempotent: Whether a call may be repeated if its end is unknown.
        models: Names of the models that it reports, `<provider>/<model_name>`, as metrics are to have them.
        **options: A `description`, `inputs`, `limits`, `verbose`; see `DescribedOptions`.

    Raises:
        ConfigurationError: The name, the function or an option is invalid.
    """

    kind: ClassVar[Kind] = "agent"

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        idempotent: bool = False,
        models: tuple[str, ...] = (),
        **options: Unpack[DescribedOptions],
    ) -> None:
        super().__init__(own_blueprint(self.kind, name, options))
        self._function = function
        self._takes_context = _takes_context(name, function)
        self._idempotent = idempotent
        self.reported_models = models
        """Names of the models that it reports."""

    @property
    def chats(self) -> bool:
        """False: what it does with a caller's settings of a model is not known."""
        return False

    async def perform(self, run: Run, task: Task) -> Any:
        """Call the function, or take what it returned in an earlier attempt of the run."""
        messages = ChatMessages.begin("", task, {}).to_data()
        *earlier, question = messages
        call = _Call(self._function, run, takes_context=self._takes_context)
        call.inputs = {**task.values, **as_object(task.input)}
        call.messages = earlier
        tool = Tool(
            call.make,
            schema={
                "type": "function",
                "function": {"name": self.name, "parameters": {}},
            },
            arguments=_ARGUMENTS,
            options={"idempotent": self._idempotent},
        )
        answer = await call_step_function(
            run, tool, {"task": question["content"]}, run.path
        )
        value = await _typed(answer, task.response_model, self.name)
        if not isinstance(answer, str):
            run.data = answer
        run.messages = one_turn(task.messages, task.input, to_text(answer))
        return value


async def _typed(answer: Any, response_model: Any, name: str) -> Any:
    """An answer in the type that the caller wants.

    Raises:
        OutputError: It does not fit.
    """
    answer_format = await response_format(response_model)
    if answer_format is None:
        return answer
    try:
        return await answer_format.read(to_text(answer))
    except ValueError as error:
        raise OutputError(
            f"The answer of '{name}' does not fit the response model: {error}."
        ) from error


class _Call:
    """One call of the function of an agent."""

    def __init__(
        self, function: Callable[..., Any], run: Run, *, takes_context: bool
    ) -> None:
        self._function = function
        self._run = run
        self._takes_context = takes_context
        self.inputs: Mapping[str, Any] = {}
        self.messages: list[dict[str, Any]] = []

    async def make(self, task: Any, context: RunContext) -> Any:
        """Call the function, and return the answer."""
        arguments = [task]
        if self._takes_context:
            own = replace(
                context, inputs=self.inputs, messages=tuple(self.messages)
            )
            arguments.append(own)
        if inspect.isasyncgenfunction(self._function):
            pieces: list[str] = []
            async for piece in self._function(*arguments):
                pieces.append(piece)
                self._emit(piece)
            return "".join(pieces)
        answer = await call_function(self._function, *arguments)
        if inspect.isgeneratorfunction(self._function):
            return "".join(answer)
        return answer

    def _emit(self, piece: str) -> None:
        if self._run.streaming:
            self._run.emit(events.Token(**self._run.stamp(), text=piece))


def _takes_context(name: str, function: Callable[..., Any]) -> bool:
    """Whether a function takes a context besides the task.

    Raises:
        ConfigurationError: It takes no task, or more than both.
    """
    expected = "one for the task, and perhaps one for the RunContext"
    if not callable(function):
        raise ConfigurationError(
            f"The agent '{name}' needs a function, not {short_repr(function)}.",
            suggestion="Give the function itself, without calling it.",
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind
        in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind
        not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if not positional or len(required) > 2:
        raise ConfigurationError(
            f"The function of the agent '{name}' has the wrong parameters: {inspect.signature(function)}.",
            suggestion=f"It is called with two at most: {expected}.",
        )
    return len(positional) > 1
