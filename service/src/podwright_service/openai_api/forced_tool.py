"""A tool of the client that the model is forced to call: a form of the answer in other words.

Many clients that want data instead of text send its JSON Schema as the parameters of a function, and force the model
to call it. The component answers by that schema, and the client gets the answer as a call of the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import AfterValidator, JsonValue
from pydantic_core import PydanticCustomError

from podwright.connection.schemas import Object
from podwright.data.json_data import as_object
from podwright.data.tool_names import TOOL_NAME
from podwright.schemas.json_schema import subschema

_NO_TOOLS = (
    "Tools of the client are not supported: the component has its own. Only a single function that 'tool_choice' "
    "forces is taken, as the form of the answer"
)
_NO_OBJECT = "The parameters of a function must be the JSON Schema of an object"
_NO_NAME = "The name of a function has letters a to z and A to Z, digits, '_' and '-', 64 at most"
_ANY_TOOL = ("required", "any")
"""Values of `tool_choice` that force the model to call a tool, whichever."""
_UNFORCED = ("auto", "none")


class UnsupportedToolsError(ValueError):
    """The tools of a request are not a single forced function.

    Args:
        pointer: Where that is in the request.
        reason: What is wrong there.
    """

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(reason)
        self.pointer = pointer
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ForcedTool:
    """A function whose arguments are the answer."""

    name: str
    parameters: Object
    """The JSON Schema of its arguments."""
    description: str = ""
    is_named: bool = False
    """Whether `tool_choice` has its name; if not, the model has to call some tool, and this is the only one."""

    def answer_schema(self) -> Object:
        """The JSON Schema of the answer."""
        schema = self.parameters
        # the root of a recursive type may only refer to its definition
        if "$ref" not in schema:
            schema = {"type": "object", **schema}
        return described_schema(self.name, self.description, schema)


def described_schema(name: str, description: str, schema: Object) -> Object:
    """Return a client's JSON Schema of the answer, with its name and description unless it has its own."""
    described: Object = {"title": name}
    if description:
        described["description"] = description
    return {**described, **schema}


def _check_choice(choice: JsonValue) -> JsonValue:
    if choice in (*_UNFORCED, *_ANY_TOOL) or _forced_name(choice):
        return choice
    expected = "Must be 'auto', 'none', 'required', or a function by its name"
    raise PydanticCustomError("value_error", cast("Any", expected))


ToolChoice = Annotated[JsonValue, AfterValidator(_check_choice)]
"""Whether the model may, must or must not call tools of the client: a word, or a function by its name."""


def forced_tool(tools: JsonValue, choice: JsonValue) -> ForcedTool | None:
    """The single function of the client that is forced; None if the client has no tools.

    Without tools, `required` has no effect: there is nothing to call, and clients send it all the same.

    Args:
        tools: The tools of the request.
        choice: Its `tool_choice`.

    Raises:
        UnsupportedToolsError: There are tools, but they are not a single forced function.
    """
    name = _forced_name(choice)
    if not tools:
        if name:
            reason = f"There is no tool '{name}'"
            raise UnsupportedToolsError("/tool_choice", reason)
        return None
    functions = [_function(tool) for tool in _as_list(tools)]
    tool = functions[0]
    is_forced = bool(name) or choice in _ANY_TOOL
    if len(functions) > 1 or tool is None or not is_forced:
        raise UnsupportedToolsError("/tools", _NO_TOOLS)
    if name and tool["name"] != name:
        reason = f"There is no tool '{name}'"
        raise UnsupportedToolsError("/tool_choice", reason)
    if not TOOL_NAME.fullmatch(tool["name"]):
        raise UnsupportedToolsError("/tools", _NO_NAME)
    parameters: object = tool.get("parameters")
    if parameters is None:
        parameters = {}
    if not _is_object_schema(parameters):
        raise UnsupportedToolsError("/tools", _NO_OBJECT)
    return ForcedTool(
        tool["name"],
        cast("Object", parameters),
        str(tool.get("description") or ""),
        is_named=bool(name),
    )


def _is_object_schema(schema: object) -> bool:
    """Whether a schema is that of objects; the root of a recursive type refers to a definition."""
    root = as_object(schema)
    part = root
    if not isinstance(schema, dict):
        return False
    seen: set[int] = set()
    while "$ref" in part and id(part) not in seen:
        seen.add(id(part))
        target = subschema(root, str(part["$ref"]))
        if target is None or isinstance(target, bool):
            return False
        part = target
    return part.get("type", "object") in ("object", ["object"])


def _as_list(tools: JsonValue) -> Sequence[JsonValue]:
    if isinstance(tools, list):
        return tools
    return [tools]


def _function(tool: JsonValue) -> Object | None:
    """The function of a tool, as Chat Completions or Responses has it; None if the tool is none."""
    match tool:
        case {"type": "function", "function": {"name": str(name)} as function}:
            pass
        case {"type": "function", "name": str(name)} as function:
            pass
        case _:
            return None
    if not name:
        return None
    return cast("Object", function)


def _forced_name(choice: JsonValue) -> str:
    """The name of the function that a `tool_choice` forces; empty if it names none."""
    function = _function(choice)
    if function is None:
        return ""
    return function["name"]
