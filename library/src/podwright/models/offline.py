"""Models that need no network: for demonstrations, tests and replays.

They are part of the product: examples run on `offline/echo`, users test with `ScriptedModel` and
`FunctionModel`, and a recorded trace answers through `ReplayModel`.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Protocol

from podwright.errors import ModelError, ReplayMismatchError, TraceError
from podwright.events import Event, ModelCallFailed, ModelCallFinished, ModelCallStarted
from podwright.json_data import as_array, as_object, to_json_data
from podwright.messages import Message, ModelRequest, ModelResponse, ToolCall
from podwright.models.base import ANSWER_TOOL, Model, TokenCallback
from podwright.models.retries import Timeouts
from podwright.text import truncate
from podwright.usage import Usage

_PIECES = re.compile(r"\s*\S+|\s+")


def estimate_tokens(text: str) -> int:
    """About how many tokens a text is: a quarter of its bytes, rounded up."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4


def estimate_input(request: ModelRequest) -> int:
    """About how many input tokens a request is, tools and schemas included."""
    total = 3
    for message in request.messages:
        total += 4 + estimate_tokens(message.content)
        total += sum(estimate_tokens(call.name + call.arguments) for call in message.tool_calls)
    extra: list[Any] = [*request.tools, *([request.output.schema] if request.output else [])]
    return total + sum(estimate_tokens(json.dumps(one)) for one in extra)


class OfflineModel(Model):
    """What the offline models share: they cost nothing, take no time worth limiting, and stream word by word."""

    timeouts = Timeouts(total=math.inf)

    def price(self, usage: Usage) -> float | None:
        """Nothing."""
        return 0.0

    def _answer(self, request: ModelRequest, answer: ModelResponse, on_token: TokenCallback | None) -> ModelResponse:
        if on_token is not None:
            for piece in _PIECES.findall(answer.text):
                on_token(piece)
        if answer.usage.total_tokens:
            return answer
        output = estimate_tokens(answer.text) + sum(estimate_tokens(c.name + c.arguments) for c in answer.tool_calls)
        usage = Usage(input_tokens=estimate_input(request), output_tokens=output, cost=answer.usage.cost or 0.0)
        return dataclasses.replace(answer, usage=usage, model=answer.model or self.name)


class EchoModel(OfflineModel):
    """`offline/echo`: answers with what it was asked, the same each time.

    It calls each tool that it has not called yet once, with made-up arguments that fit the schema, and then
    answers; where an output schema is given, with made-up data that fits it.
    """

    name = "offline/echo"

    async def complete(self, request: ModelRequest, on_token: TokenCallback | None = None) -> ModelResponse:
        """Answer with an echo."""
        return self._answer(request, self._echo(request), on_token)

    def _echo(self, request: ModelRequest) -> ModelResponse:
        asked = _gist(next((m.content for m in request.messages if m.role == "user"), ""), 160)
        called = {call.name for message in request.messages for call in message.tool_calls}
        if request.output:
            return ModelResponse(json.dumps(example(request.output.schema, asked)))
        waiting = [tool["function"] for tool in request.tools if tool["function"]["name"] not in called]
        if request.tool_choice:
            waiting = [tool["function"] for tool in request.tools if tool["function"]["name"] == request.tool_choice]
        if waiting:
            calls = tuple(
                ToolCall(f"call_{len(called) + number}", one["name"], json.dumps(example(one["parameters"], asked)))
                for number, one in enumerate(waiting[:8])
            )
            return ModelResponse(tool_calls=calls, finish_reason="tool_calls")
        found = [_gist(message.content, 80) for message in request.messages if message.role == "tool"]
        return ModelResponse(f"Echo: {asked}" + (f" (found: {'; '.join(found)})" if found else ""))


def _gist(text: str, limit: int) -> str:
    """The text on one line, cut to a length: echoes of echoes must not grow."""
    line = " ".join(text.split())
    return truncate(line, limit)


_FORMATS = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
"""A text of each format that is often asked for."""


_MOST_PARTS = 1_000
"""How many values made-up data has: types that each name the next one twice double it at each step."""
_DEEPEST = 64
_LONGEST = 1_000
_MOST_ITEMS = 64


def example(schema: Mapping[str, Any], text: str) -> Any:
    """Made-up data that fits a JSON Schema, with `text` for its strings; enough for function parameters.

    A schema that asks for more than a sample should have, or makes no sense, is followed as far as it goes.
    """
    return _Example(schema, text).of(schema)


class _Example:
    """Makes one example."""

    def __init__(self, schema: Mapping[str, Any], text: str) -> None:
        self._text = text
        self._definitions = as_object(schema.get("$defs"))
        self._parts = 0

    def of(self, schema: object, inside: tuple[str, ...] = (), depth: int = 0) -> Any:
        """An example of a part of the schema, `inside` the definitions of these names."""
        known = as_object(schema)
        while "$ref" in known and self._ends(known, inside):
            inside = (*inside, _target(known))
            known = as_object(self._definitions[inside[-1]])
            self._parts += 1
        self._parts += 1
        if depth > _DEEPEST or self._parts > _MOST_PARTS:
            return None
        for given in (*(known[key] for key in ("const", "default") if key in known), *as_array(known.get("enum"))):
            return self._given(given)
        for key in ("anyOf", "oneOf", "allOf"):
            if options := as_array(known.get(key))[:_MOST_ITEMS]:
                ends = (one for one in options if self._ends(as_object(one), inside))
                return self.of(next(ends, options[0]), inside, depth + 1)
        match _type(known):
            case "object":
                return self._properties(known, inside, depth + 1)
            case "array":
                return self._items(known, inside, depth + 1)
            case "integer" | "number":
                return _example_number(known)
            case "boolean":
                return True
            case "null":
                return None
            case _:
                text = _FORMATS.get(str(known.get("format")), self._text)
                longest = _count(known, "maxLength", _LONGEST, _LONGEST)
                return text[:longest].ljust(_count(known, "minLength", 0, _LONGEST), ".")

    def _given(self, value: Any) -> Any:
        """A value that the schema gives, unless it is too long to be given often."""
        try:
            self._parts += len(json.dumps(value)) // _LONGEST
        except (TypeError, ValueError, RecursionError):
            return None
        return value

    def _ends(self, schema: Mapping[str, Any], inside: tuple[str, ...]) -> bool:
        """Whether an example of it can be made: a type that holds itself must stop somewhere."""
        if "$ref" not in schema:
            return True
        return _target(schema) in self._definitions and _target(schema) not in inside and len(inside) < _MOST_PARTS

    def _properties(self, schema: Mapping[str, Any], inside: tuple[str, ...], depth: int) -> dict[str, Any]:
        """The properties that an object must have."""
        properties = as_object(schema.get("properties"))
        made: dict[str, Any] = {}
        for name in as_array(schema.get("required"))[:_MOST_PARTS]:
            if self._parts <= _MOST_PARTS and isinstance(name, str) and len(name) <= _LONGEST and name in properties:
                made[name] = self.of(properties[name], inside, depth)
        return made

    def _items(self, schema: Mapping[str, Any], inside: tuple[str, ...], depth: int) -> list[Any]:
        """One item for each value of the first choice inside it, so that a plan names every skill once."""
        item = as_object(schema.get("items"))
        if "prefixItems" in schema or not self._ends(item, inside):
            return [self.of(one, inside, depth) for one in as_array(schema.get("prefixItems"))[:_MOST_ITEMS]]
        target = as_object(self._definitions.get(_target(item), item))
        for name, inner in islice(as_object(target.get("properties")).items(), _MOST_PARTS):
            if choices := as_array(as_object(inner).get("enum")):
                most = _count(schema, "maxItems", 8, _MOST_ITEMS)
                return [{**as_object(self.of(item, inside, depth)), name: self._given(one)} for one in choices[:most]]
        least = max(1, _count(schema, "minItems", 1, _MOST_ITEMS))
        return [self.of(item, inside, depth) for _ in range(min(least, _count(schema, "maxItems", 64, _MOST_ITEMS)))]


def _target(schema: Mapping[str, Any]) -> str:
    """The name of the definition that a schema refers to; empty if it does not."""
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _count(schema: Mapping[str, Any], key: str, otherwise: int, most: int) -> int:
    value = schema.get(key)
    return max(0, min(value, most)) if isinstance(value, int) else otherwise


def _type(schema: Mapping[str, Any]) -> str:
    match schema.get("type"):
        case [str(first), *_]:
            return first
        case given:
            return given if isinstance(given, str) else ""


def _example_number(schema: Mapping[str, Any]) -> int | float:
    bounds = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")
    given = {key: schema[key] for key in bounds if isinstance(schema.get(key), int | float)}
    try:
        return _number_within(given, _type(schema) == "integer")
    except (ArithmeticError, ValueError):  # no number can be worked out
        return 1


def _number_within(schema: Mapping[str, Any], whole: bool) -> int | float:
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    high = schema.get("maximum", schema.get("exclusiveMaximum", low + 2))
    step = schema.get("multipleOf") or (1 if whole else (high - low) / 4 or 1)

    def fits(number: float) -> bool:
        above = number >= schema.get("minimum", number) and number > schema.get("exclusiveMinimum", number - 1)
        below = number <= schema.get("maximum", number) and number < schema.get("exclusiveMaximum", number + 1)
        return above and below and not (whole and number % 1) and not number % schema.get("multipleOf", number or 1)

    candidates = (1, low, low + step, high, high - step, math.ceil(low / step) * step, math.floor(high / step) * step)
    return next((number for number in candidates if fits(number)), 1)


Answer = str | ModelResponse | ToolCall | list[ToolCall] | BaseException
"""What a scripted model may be told to do: say a text, give a response, call tools, or raise an error."""


def _as_response(answer: Answer) -> ModelResponse:
    match answer:
        case ModelResponse():
            return answer
        case str():
            return ModelResponse(answer)
        case ToolCall():
            return ModelResponse(tool_calls=(answer,), finish_reason="tool_calls")
        case BaseException():
            raise answer
        case _:
            return ModelResponse(tool_calls=tuple(answer), finish_reason="tool_calls")


class ScriptedModel(OfflineModel):
    """Gives the answers of a script, one a call, and keeps the requests that it was asked.

    Args:
        *answers: Texts, responses, tool calls (one, or a list for one turn), or exceptions to raise.
        name: Its name in requests, events and usage.
    """

    def __init__(self, *answers: Answer, name: str = "offline/scripted") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._answers = deque(answers)

    async def complete(self, request: ModelRequest, on_token: TokenCallback | None = None) -> ModelResponse:
        """Give the next answer of the script.

        Raises:
            ModelError: The script has ended.
        """
        self.requests.append(request)
        if not self._answers:
            raise ModelError(
                f"The script of '{self.name}' has ended: call {len(self.requests)} has no answer.",
                suggestion="Add an answer to the script, or find out why the component asks so often.",
            )
        return self._answer(request, _as_response(self._answers.popleft()), on_token)


class FunctionModel(OfflineModel):
    """Answers with what a function returns.

    Args:
        function: Is given the `ModelRequest`; returns a text, a response or tool calls. It may be async.
        name: Its name in requests, events and usage.
    """

    def __init__(self, function: Callable[[ModelRequest], Any], name: str = "offline/function") -> None:
        self.name = name
        self._function = function

    async def complete(self, request: ModelRequest, on_token: TokenCallback | None = None) -> ModelResponse:
        """Ask the function."""
        answer = self._function(request)
        if inspect.isawaitable(answer):
            answer = await answer
        return self._answer(request, _as_response(answer), on_token)


class Trace(Protocol):
    """Whatever has recorded events, such as an `ExecutionResult`."""

    @property
    def events(self) -> Iterable[Event]:
        """The events, in their order."""
        ...


class ReplayModel(OfflineModel):
    """Gives the answers that a trace recorded, so that a component runs again with no model at all.

    Give it to every component of the run, for example by `podwright.load(path, model=ReplayModel(result))`. A
    request is matched with the recorded ones of the same component at the same place, in their order; one
    that differs fails by name, so a trace from production is a regression test.

    Args:
        trace: The `ExecutionResult` of the recorded run.

    Raises:
        TraceError: The trace has the end of a model call without its start.
    """

    name = "offline/replay"

    def __init__(self, trace: Trace) -> None:
        self._recorded: defaultdict[tuple[str, tuple[int, ...]], deque[_Call]] = defaultdict(deque)
        calls: dict[tuple[str, int], _Call] = {}
        for event in trace.events:
            match event:
                case _ if event.remote is not None:  # another process made that call, and makes it again
                    pass
                case ModelCallStarted():
                    call = calls[event.run_id, event.call] = _Call(len(calls), event.request)
                    self._recorded[event.component, event.path].append(call)
                case ModelCallFinished() | ModelCallFailed():
                    call = calls.get((event.run_id, event.call))
                    if call is None:
                        raise TraceError(f"The trace is damaged: model call {event.call} ended before it began.")
                    if isinstance(event, ModelCallFinished):
                        call.response = event.response
                    else:
                        call.error = event.error
                case _:
                    pass
        offered = (tool["function"]["name"] for call in calls.values() for tool in call.request.tools)
        self.json_output = ANSWER_TOOL not in offered

    @property
    def left(self) -> list[ModelRequest]:
        """Recorded requests that have not been asked for; empty after a faithful replay."""
        return [call.request for queue in self._recorded.values() for call in queue]

    async def complete(self, request: ModelRequest, on_token: TokenCallback | None = None) -> ModelResponse:
        """Give the recorded answer.

        Raises:
            ReplayMismatchError: The trace has no such request at this place.
            ModelError: The recorded call failed.
        """
        queue = self._recorded.get((request.component, request.path))
        where = f"'{request.component}'" + (f" at {list(request.path)}" if request.path else "")
        if not queue:
            raise ReplayMismatchError(f"{where} made a model call that the trace does not have.")
        call = queue.popleft()
        if found := differences(call.request, request):
            raise ReplayMismatchError(f"Model call {call.number} of the trace, by {where}, differs: {found}.")
        if call.response is None:
            raise ModelError(f"Recorded: {call.error.get('message', 'the call did not finish.')}")
        return self._answer(request, call.response, on_token)


@dataclasses.dataclass(slots=True)
class _Call:
    number: int
    request: ModelRequest
    response: ModelResponse | None = None
    error: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])


def differences(recorded: ModelRequest, asked: ModelRequest) -> str:
    """The first place in which two requests differ, in words; the model's own name does not count."""
    for number, (was, now) in enumerate(zip(recorded.messages, asked.messages, strict=False)):
        if was != now:
            return f"message {number} ({now.role}) was {_excerpt(was, now)}, now {_excerpt(now, was)}"
    if len(recorded.messages) != len(asked.messages):
        return f"it had {len(recorded.messages)} messages, now {len(asked.messages)}"
    for name in ("tools", "settings", "output", "tool_choice"):
        was, now = to_json_data(getattr(recorded, name)), to_json_data(getattr(asked, name))
        if was != now:
            return f"{name} was {_gist(json.dumps(was), 120)}, now {_gist(json.dumps(now), 120)}"
    return ""


def _excerpt(message: Message, other: Message) -> str:
    """What a message says where it first differs from another."""
    text, against = (json.dumps(to_json_data(one), ensure_ascii=False) for one in (message, other))
    if message.content != other.content:
        text, against = message.content, other.content
    start = next(
        (i for i, (a, b) in enumerate(zip(text, against, strict=False)) if a != b),
        min(len(text), len(against)),
    )
    begin = max(0, start - 20)
    return repr(("…" if begin else "") + text[begin : start + 40] + ("…" if len(text) > start + 40 else ""))
