"""The conversation of a model with its tools, which agents and conductors share."""

from __future__ import annotations

import json
from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from time import perf_counter
from typing import Any, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from podwright.blueprints import from_json
from podwright.budget import ASSUMED_OUTPUT, Hold
from podwright.errors import (
    BlueprintValidationError,
    ContentFilterError,
    ContextError,
    InputError,
    LimitExceededError,
    LoopLimitError,
    ModelError,
    OutputError,
    PodwrightError,
    ToolArgumentsError,
    ToolError,
)
from podwright.events import (
    ModelCallFailed,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    Token,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)
from podwright.json_data import nested_deeper, to_text
from podwright.messages import (
    Message,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    OutputSchema,
    ToolCall,
    ToolSchema,
)
from podwright.models import Model
from podwright.models.base import ANSWER_TOOL
from podwright.models.offline import estimate_input
from podwright.models.retries import with_retries
from podwright.run import Run, gather_or_cancel
from podwright.templates import fill, names, sections
from podwright.text import describe_error, did_you_mean
from podwright.tools import Tool
from podwright.usage import NOTHING, Usage

_CANCELLED = {"code": "run_cancelled", "message": "The run was cancelled."}


@dataclass(frozen=True, slots=True)
class ChatSession:
    """The model's side of a conversation."""

    model: Model
    settings: ModelSettings
    max_loops: int
    tools: Mapping[str, Tool]


class Output:
    """The type that an answer must have, its schema, and the check."""

    def __init__(self, response_model: Any) -> None:
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(response_model)
            schema = self._adapter.json_schema()
        except (PydanticUserError, TypeError) as error:
            raise InputError(
                f"{response_model!r} cannot be a response model: {str(error).splitlines()[0]}",
                suggestion="Give a pydantic model, a dataclass, or another type that has a JSON Schema.",
            ) from error
        name = getattr(response_model, "__name__", "answer")
        self._wrapped = schema.get("type") != "object" and "$ref" not in schema
        if self._wrapped:  # providers want an object at the top
            inner = {key: value for key, value in schema.items() if key != "$defs"}
            definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
            schema = {
                "type": "object",
                "properties": {"answer": inner},
                "required": ["answer"],
                **definitions,
            }
        self.schema = OutputSchema(name if name.isidentifier() else "answer", schema)

    def read(self, text: str) -> Any:
        """The value in a model's answer.

        Raises:
            ValueError: The text is no JSON, or not of the type; the message is for the model.
        """
        try:
            data = from_json(text)
            if self._wrapped:
                data = data["answer"]
            # as JSON, for a strict type takes a date, say, from JSON text only
            return self._adapter.validate_json(json.dumps(data))
        except ValidationError as error:
            raise ValueError(
                "; ".join(
                    f"{'.'.join(str(part) for part in one['loc']) or 'the answer'}: {one['msg']}"
                    for one in error.errors(include_url=False, include_input=False)
                )
            ) from error
        except BlueprintValidationError as error:
            raise ValueError(error.problems[0].detail) from error
        except (TypeError, KeyError) as error:
            raise ValueError("the answer is no object with the key 'answer'") from error


@lru_cache(maxsize=256)
def _hashable_output(response_model: Any) -> Output:
    return Output(response_model)


def output_for(response_model: Any) -> Output | None:
    """The output of a run's `response_model`; None for text.

    Raises:
        InputError: It is no type with a schema.
    """
    if response_model is None or response_model is str:
        return None
    try:
        return _hashable_output(response_model)
    except TypeError:
        return Output(response_model)


def opening(instructions: str, data: object) -> list[Message]:
    """The first messages of a conversation: instructions filled from the input, and the rest of the input.

    Raises:
        ContextError: The input is neither text nor named inputs.
    """
    context = to_context(data)
    named = [name for name in names(instructions) if name in context]
    rest = sections(context, leave_out=named) or sections(context)
    messages = [Message("user", rest)]
    if instructions:
        messages.insert(0, Message("system", fill(instructions, context)))
    return messages


def to_context(data: object) -> Mapping[str, Any]:
    """An input as named values; a text is named `input`.

    Raises:
        ContextError: It is neither text nor named inputs.
    """
    if isinstance(data, str):
        context: Mapping[str, Any] = {"input": data}
    elif isinstance(data, Mapping):
        context = cast("Mapping[str, Any]", data)
    else:
        raise ContextError(
            f"The input is a text or an object of named inputs, not {type(data).__name__}.",
            suggestion="Give a text, or named inputs such as {'input': …}.",
        )
    if not context:
        raise ContextError("The object of named inputs is empty.", suggestion="Name at least one input.")
    for key, value in context.items():
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from outside
            raise ContextError(f"The name of an input is a string, not {key!r}.")
        try:
            to_text(value).encode()
        except (UnicodeEncodeError, ValueError, RecursionError, TypeError) as error:
            raise ContextError(f"The input '{key}' is not JSON, or not Unicode text: {error}.") from error
    return context


async def run_chat(run: Run, party: ChatSession, messages: list[Message], response_model: Any = None) -> Any:
    """Ask the model, do what it wants done, and ask again, until it answers.

    Args:
        run: The run that this is the work of.
        party: Model, settings, tools and the most model calls.
        messages: The conversation so far; it is continued in place.
        response_model: The type of the answer; None is text.

    Raises:
        LoopLimitError: The model still called tools in its last call.
        OutputError: Its last answer did not fit the response model.
        ModelError, ToolError, LimitExceededError: See `podwright.errors`.
    """
    output = output_for(response_model)
    by_tool = output is not None and not party.model.json_output
    schemas = [tool.schema for tool in party.tools.values()]
    if by_tool and output:
        schemas.append(_answer_tool(output))
    told: set[str] = set()
    reason = ""
    for _ in range(party.max_loops):
        response = await ask(run, party, messages, schemas, output=output.schema if output and not by_tool else None)
        messages.append(Message("assistant", response.text, response.tool_calls))
        final = next((call for call in response.tool_calls if by_tool and call.name == ANSWER_TOOL), None)
        if output and (final or not response.tool_calls):
            try:
                return output.read(final.arguments if final else response.text)
            except ValueError as error:
                reason = str(error)
                complaint = f"The answer does not fit the schema: {reason}. Answer again, with JSON that fits."
            messages += [Message("tool", complaint, tool_call_id=call.id) for call in response.tool_calls]
            if not final:
                messages.append(Message("user", complaint))
        elif response.tool_calls:
            reason = ""
            before = frozenset(told)
            messages += await gather_or_cancel(
                _call_tool(run, party.tools, call, before, told) for call in response.tool_calls
            )
        else:
            return response.text
    if reason:
        raise OutputError(
            f"No answer of '{run.component}' fitted the response model in {party.max_loops} tries: {reason}."
        )
    raise LoopLimitError(f"'{run.component}' made {party.max_loops} model calls and still called tools.")


def _answer_tool(output: Output) -> ToolSchema:
    function = {
        "name": ANSWER_TOOL,
        "description": "Give the final answer.",
        "parameters": dict(output.schema.schema),
    }
    return {"type": "function", "function": cast("Any", function)}


async def ask(
    run: Run,
    party: ChatSession,
    messages: Sequence[Message],
    tools: Sequence[ToolSchema] = (),
    *,
    output: OutputSchema | None = None,
    tool_choice: str | None = None,
) -> ModelResponse:
    """One model call within a run's limits, with its events and its usage.

    Raises:
        LimitExceededError: The call does not fit the run's limits any more.
        ModelError: The model failed, or its answer was cut off.
    """
    model, settings = party.model, party.settings
    said, offered = tuple(messages), tuple(tools)
    request = ModelRequest(model.name, said, offered, settings, output, tool_choice, run.component, run.path)
    holds: list[Hold] = []
    spent: Usage | None = None
    try:
        if run.budgets:
            request = await _reserve(run, model, request, holds)
        spent = NOTHING
        response = await _complete(run, model, request)
        spent = response.usage
    finally:
        for budget, hold in zip(run.budgets, holds, strict=False):
            budget.settle(hold, spent)
    if response.finish_reason == "content_filter":
        raise ContentFilterError(f"The content filter of '{model.name}' stopped the answer.")
    if response.finish_reason == "length":
        limit = next((hold.limit for hold in reversed(holds) if hold.limit), "")
        if limit:
            raise LimitExceededError(f"The answer of '{model.name}' was cut off at the run's limits.", limit=limit)
        raise ModelError(
            f"The answer of '{model.name}' was cut off at {settings.get('max_tokens', 'its limit of')} output tokens.",
            suggestion="Raise max_tokens, or ask for a shorter answer.",
        )
    return response


async def _reserve(run: Run, model: Model, request: ModelRequest, holds: list[Hold]) -> ModelRequest:
    """Set aside the call's worst case in every budget; the answer may be as long as the tightest allows."""
    asked = request.settings.get("max_tokens")
    wanted = asked or ASSUMED_OUTPUT
    needed = estimate_input(request)
    allowed = wanted
    for budget in run.budgets:
        hold, allowed = await budget.reserve(needed, allowed, model.price)
        holds.append(hold)
    if allowed == wanted:
        return request
    settings: ModelSettings = {**request.settings, "max_tokens": allowed}
    return replace(request, settings=settings)


async def _complete(run: Run, model: Model, request: ModelRequest) -> ModelResponse:
    call, run.calls = run.calls, run.calls + 1
    run.emit(ModelCallStarted(call=call, request=request))
    started = perf_counter()
    first: float | None = None

    def elapsed() -> float:
        return round((perf_counter() - started) * 1000, 3)

    def on_token(text: str) -> None:
        nonlocal first
        if first is None:
            first = elapsed()
        run.emit(Token(call=call, text=text))

    async def attempt() -> ModelResponse:
        try:
            answer = await model.complete(request, on_token if run.streaming else None)
            if isinstance(answer, ModelResponse):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from a caller
                return answer
            raise TypeError(f"complete() returned {type(answer).__name__}, no ModelResponse")
        except ModelError as error:
            if first is not None:  # what a reader has seen cannot be taken back
                error.transient = False
            raise

    def on_retry(tries: int, error: ModelError, wait: float) -> None:
        facts, wait_ms = error.to_dict(), round(wait * 1000, 3)
        run.emit(ModelCallRetried(call=call, tries=tries, error=facts, wait_ms=wait_ms))

    total = request.settings.get("timeout", model.timeouts.total)
    try:
        response = await with_retries(
            attempt, total, model.retries, who=f"'{model.name}'", left=lambda: run.time_left, on_retry=on_retry
        )
    except CancelledError:
        run.emit(ModelCallFailed(call=call, model=model.name, error=_CANCELLED, duration_ms=elapsed()))
        raise
    except PodwrightError as error:
        run.emit(ModelCallFailed(call=call, model=model.name, error=error.to_dict(), duration_ms=elapsed()))
        raise
    except (Exception, SystemExit) as error:
        failure = ModelError(f"Model '{model.name}' raised {describe_error(error)}")
        run.emit(ModelCallFailed(call=call, model=model.name, error=failure.to_dict(), duration_ms=elapsed()))
        raise failure from error
    response = _priced(model, response)
    run.add_usage(response.usage.of_call(model.name))
    run.emit(
        ModelCallFinished(call=call, model=model.name, response=response, duration_ms=elapsed(), first_token_ms=first)
    )
    return response


def _priced(model: Model, response: ModelResponse) -> ModelResponse:
    if response.usage.cost is not None or response.usage.unpriced_model_calls:
        return response
    price = model.price(response.usage)
    if price is None:
        return response
    usage = response.usage.at(price)
    return ModelResponse(response.text, response.tool_calls, usage, response.finish_reason, response.model, response.id)


async def _call_tool(
    run: Run, tools: Mapping[str, Tool], call: ToolCall, before: frozenset[str], told: set[str]
) -> Message:
    """Call a tool as the model asked; what is wrong with the call itself goes back to the model, once a tool.

    Args:
        run: The run that the model works in.
        tools: The tools by name.
        call: What the model asked for.
        before: Names of tools whose wrong calls the model was told of in an earlier turn.
        told: To be given this one's name, if the model is told now.
    """
    started = perf_counter()
    arguments: Any = call.arguments
    run.add_usage(Usage(tool_calls=1))

    def failed(facts: Mapping[str, Any]) -> None:
        took = round((perf_counter() - started) * 1000, 3)
        run.emit(ToolCallFailed(tool=call.name, call_id=call.id, error=facts, duration_ms=took))

    try:
        try:
            arguments = _arguments(call)
        finally:
            run.emit(ToolCallStarted(tool=call.name, call_id=call.id, arguments=arguments))
        tool = tools.get(call.name)
        if tool is None:
            known = did_you_mean(call.name, tools) or "There are no tools."
            raise ToolArgumentsError(f"Unknown tool '{call.name}' in '{run.component}'. {known}")
        text = to_text(await tool.call(run, arguments))
    except CancelledError:
        failed(_CANCELLED)
        raise
    except ToolArgumentsError as error:
        failed(error.to_dict())
        if call.name in before or error.run_id is not None:  # told before, or the error of a nested run
            raise
        told.add(call.name)
        return Message("tool", f"Error: {error.message}", tool_call_id=call.id)
    except PodwrightError as error:  # of a run nested in the tool
        failed(error.to_dict())
        raise
    except Exception as error:
        failure = ToolError(f"Tool '{call.name}' raised {describe_error(error)}")
        failed(failure.to_dict())
        raise failure from error
    took = round((perf_counter() - started) * 1000, 3)
    run.emit(ToolCallFinished(tool=call.name, call_id=call.id, output=text, duration_ms=took))
    return Message("tool", text, tool_call_id=call.id)


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        parsed = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise ToolArgumentsError(f"Tool '{call.name}' was called with arguments that are no JSON: {error}.") from error
    if not isinstance(parsed, dict):
        raise ToolArgumentsError(f"Tool '{call.name}' was called with {type(parsed).__name__}, not with an object.")
    if nested_deeper(cast("object", parsed)):
        raise ToolArgumentsError(f"Tool '{call.name}' was called with arguments that are nested too deep.")
    return cast("dict[str, Any]", parsed)
