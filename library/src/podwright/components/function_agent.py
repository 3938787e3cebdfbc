"""An agent that is a function: how agents of other frameworks, or none, become components."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict, Unpack

from podwright import events
from podwright.blueprints.schema import ModelName
from podwright.chats.chat_messages import one_turn
from podwright.chats.function_calls import call_recorded
from podwright.chats.response_format import response_format
from podwright.data.json_data import to_json_data, to_text
from podwright.data.text import short_repr
from podwright.errors import (
    ConfigurationError,
    ModelResponseError,
    OutputError,
)
from podwright.estimates.walk import Forecast, Given, Walk
from podwright.functions.callables import call_function
from podwright.functions.run_context import (
    ContextParameter,
    RunContext,
    context_parameters,
    with_context,
)
from podwright.kinds import Kind
from podwright.location import ToolCallId
from podwright.messages.conversation import message_data, to_data
from podwright.models.prices import pricing
from podwright.run.component import PromptComponent
from podwright.run.options import DescribedOptions, own_blueprint
from podwright.run.run import Run, Task
from podwright.threads import is_async
from podwright.tools.function_tool import FunctionTool


class _Arguments(TypedDict):
    task: Any


_ARGUMENTS: TypeAdapter[Any] = TypeAdapter(_Arguments)
_MODEL_NAMES: TypeAdapter[tuple[ModelName, ...]] = TypeAdapter(
    tuple[ModelName, ...]
)


class FunctionAgent(PromptComponent):
    """An agent that is a function, which may use any framework.

        async def write(task: str, context: RunContext) -> str:
            result = await agent.run(task)
            context.report_usage("openai/gpt-5", input_tokens=…, output_tokens=…)
            return result.output

        writer = FunctionAgent("writer", write, description="Writes texts.")

    Each call is one effect, as that of a tool: a background run does not repeat one that has ended, and asks a person
    about one that was cut off, unless it is idempotent. Blueprints refer to it by its name, and do not contain it.

    Args:
        name: Its name here, which blueprints and steps use.
        function: Called with the task, and with the `RunContext` if it takes one: in a parameter with that annotation,
            or in one that is called `context` and has none. The task is a text; if the input has images or files, a
            list of texts, images and files. It returns the answer: a text, or JSON data; None and an empty text are an
            error, as with models. A generator yields the pieces of a text, which streams pass on. A function that is
            not async runs in a thread.
        idempotent: Whether a call may be repeated if its end is unknown.
        models: Names of the models that it reports, `<provider>/<model_name>`. Metrics have a label for each, and a
            call is refused when nothing is left of the run's limits.
        **options: A `description`, `inputs`, `limits`, `verbose`; see `DescribedOptions`.

    Raises:
        BlueprintValidationError: The name or an option is invalid.
        ConfigurationError: The function has other parameters, or a name of a model is invalid.
    """

    kind: ClassVar[Kind] = "agent"

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        idempotent: bool = False,
        models: Sequence[str] = (),
        **options: Unpack[DescribedOptions],
    ) -> None:
        super().__init__(own_blueprint(self.kind, name, options))
        self._function = function
        self._context_parameters = _context_parameters(name, function)
        self._idempotent = idempotent
        self._reported_models = _checked_models(name, models)

    @property
    def chats(self) -> bool:
        """False: what it does with a caller's settings of a model is not known."""
        return False

    @property
    def streams_answer(self) -> bool:
        """True: what its function yields is its answer."""
        return True

    @property
    def tool_names(self) -> Collection[str]:
        """Its name: its call is an effect, as that of a tool."""
        return [self.name]

    @property
    def may_report_usage(self) -> bool:
        """True: its function is given the context of the run."""
        return True

    @property
    def reported_models(self) -> tuple[str, ...]:
        """Names of the models that it reports."""
        return self._reported_models

    def need(self, walk: Walk, given: Given) -> Forecast:
        """Return that nobody knows what its function needs."""
        return walk.unknown_run(f"what the function of '{self.name}' runs")

    async def perform(self, run: Run, task: Task) -> Any:
        """Call the function, or take what it returned in an earlier attempt of the run."""
        given = task.parsed_input
        question = given.message()
        inputs = dict(task.values)
        if given.content is None:
            inputs |= given.named
        call = _Call(
            self._function,
            run,
            context_parameters=self._context_parameters,
            inputs=inputs,
            messages=to_data(task.messages),
            models=self._reported_models,
        )
        tool = FunctionTool(
            call.make,
            schema={
                "type": "function",
                "function": {"name": self.name, "parameters": {}},
            },
            arguments=_ARGUMENTS,
            options={"idempotent": self._idempotent},
        )
        content = message_data(question)["content"]
        call_id = ToolCallId(run.path, number=0)
        answer = await call_recorded(run, tool, {"task": content}, call_id)
        value = await _typed(answer, task.response_model, self.name)
        if not isinstance(value, str):
            run.data = to_json_data(value)
        run.messages = one_turn(task.messages, question, to_text(answer))
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
    """One call of the function of an agent.

    Args:
        function: The function.
        run: The run of the agent.
        context_parameters: The parameters that are given the context.
        inputs: The named inputs of the run.
        messages: The earlier turns of the conversation.
        models: The models that it reports.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        run: Run,
        *,
        context_parameters: Sequence[ContextParameter],
        inputs: Mapping[str, Any],
        messages: list[dict[str, Any]],
        models: Collection[str],
    ) -> None:
        self._function = function
        self._run = run
        self._context_parameters = context_parameters
        self._inputs = inputs
        self._messages = messages
        self._models = models

    async def make(self, task: Any, context: RunContext) -> Any:
        """Call the function, and return the answer.

        Raises:
            LimitExceededError: It would call models, and nothing is left of a limit of the run.
            ModelResponseError: The answer is None or an empty text, as an empty answer of a model.
        """
        if self._models:
            for budget in self._run.budgets:
                budget.check_left()
            for model in self._models:
                await pricing.prepare(model)
        own = replace(
            context, inputs=self._inputs, messages=tuple(self._messages)
        )
        args, kwargs = with_context(self._context_parameters, own, [task])
        function = partial(self._function, *args, **kwargs)
        if is_async(self._function):
            answer = await self._call(function)
        else:
            answer = await call_function(self._call_blocking, function, context)
        if answer is None or (isinstance(answer, str) and not answer):
            raise self._empty_answer_error()
        return answer

    def _empty_answer_error(self) -> ModelResponseError:
        """The error of a model whose answer is empty, of this function."""
        return ModelResponseError(
            f"'{self._run.component_name}': the function gave an empty answer.",
            suggestion="Let it return or yield a text, return data, or raise an error.",
        )

    async def _call(self, function: Callable[[], Any]) -> Any:
        """What an async function returns, or the text of an async generator."""
        result = function()
        if not inspect.isasyncgen(result):
            return await result
        text: list[str] = []
        async with aclosing(cast("Any", result)) as pieces:
            async for piece in pieces:
                text.append(_checked_piece(piece))
                self._emit(piece)
        return "".join(text)

    def _call_blocking(
        self, function: Callable[[], Any], context: RunContext
    ) -> Any:
        """What a function returns, or the text of a generator; this is a thread of its own."""
        result = function()
        if not inspect.isgenerator(result):
            return result
        text: list[str] = []
        with closing(cast("Any", result)) as pieces:
            for piece in pieces:
                # a thread cannot be stopped otherwise
                if context.is_cancelled:
                    break
                text.append(_checked_piece(piece))
                self._run.loop.call_soon_threadsafe(self._emit, piece)
        return "".join(text)

    def _emit(self, piece: str) -> None:
        """Pass a piece of the answer on, if the caller streams and has not left."""
        if piece and self._run.streaming and not self._run.is_closed:
            self._run.emit(events.Token(**self._run.stamp(), text=piece))


def _checked_piece(piece: object) -> str:
    """A piece of an answer.

    Raises:
        TypeError: It is not a text.
    """
    if not isinstance(piece, str):
        raise TypeError(
            f"it yielded {short_repr(piece)}, and a generator yields texts only"
        )
    return piece


def _checked_models(agent: str, models: object) -> tuple[str, ...]:
    """The names of the models that an agent reports.

    Raises:
        ConfigurationError: They are not names of models.
    """
    try:
        return _MODEL_NAMES.validate_python(models)
    except ValidationError as error:
        raise ConfigurationError(
            f"The models of the agent '{agent}' must be names of models, not {short_repr(models)}.",
            suggestion="Write them as ('<provider>/<model_name>', …).",
        ) from error


def _context_parameters(
    name: str, function: Callable[..., Any]
) -> tuple[ContextParameter, ...]:
    """The parameters of a function that are given the context; none if it takes the task only.

    Raises:
        ConfigurationError: It does not take the task, or needs more than both.
    """
    if not callable(function):
        raise ConfigurationError(
            f"The agent '{name}' needs a function, not {short_repr(function)}.",
            suggestion="Give the function itself, without calling it.",
        )
    try:
        signature = inspect.signature(function)
    except ValueError:
        # a builtin, which knows nothing of a run
        return ()
    found = context_parameters(function, untyped_name="context")
    args, kwargs = with_context(found, None, [None])
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ConfigurationError(
            f"The function of the agent '{name}' has the wrong parameters, {signature}: {error}.",
            suggestion="It is called with the task, and with the run's context if a parameter has the annotation "
            "`RunContext`, or is called `context`. Other parameters need a default.",
        ) from error
    return found
