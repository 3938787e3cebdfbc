"""The interface of tools: what a run, approvals, blueprints and steps ask of one, whatever its code is."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar, cast

from podwright.blueprints.schema import ToolOptions
from podwright.blueprints.validation import Blueprint
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    copy_json,
    describe_value,
    json_pointer,
    to_exact_json_data,
    to_json_data,
)
from podwright.data.text import short_repr
from podwright.errors import (
    Problem,
    Refusal,
    ToolArgumentsError,
    ToolDefinitionError,
    ToolError,
    error_from,
)
from podwright.functions.callables import exits_as_errors
from podwright.messages.messages import ToolSchema
from podwright.settings import current_settings
from podwright.threads import compute

T = TypeVar("T")

_JSON_TYPES = (bool, int, float, str, list, dict)
"""Types of JSON data."""


class Tool(ABC):
    """A tool of a model, or the function of a step.

    `FunctionTool` is the form of a Python function. Another form has a schema of its own, and says how arguments are
    checked and how the tool is called:

        class Shelf(Tool):
            def validate(self, arguments: JsonObject) -> JsonObject:
                if not isinstance(arguments.get("isbn"), str):
                    raise self.arguments_error([Problem("/isbn", "Expected a text.")])
                return arguments

            async def perform(self, values: JsonObject, seconds: float | None) -> Any:
                return await server.call("shelf", values)

    Its objects stand wherever a function may: in `tools=[…]`, in a function step, in the `tools.py` of a folder.

    Args:
        schema: What a model is shown of it.
        options: What is said of its calls; a blueprint's entry takes precedence.

    Raises:
        ToolDefinitionError: The schema is not one of a function, or is no JSON data.
    """

    is_performed_again: ClassVar[bool] = False
    """Whether a new attempt performs its calls again: what they do is recorded by itself, as a nested run or a plan."""
    validates_in_thread: bool = False
    """Whether `validate` may take long, and so is called in a thread."""
    trusts_patterns: bool = True
    """Whether the regular expressions of its schema may be evaluated; those of a stranger may take for ever."""

    def __init__(
        self, schema: ToolSchema, options: ToolOptions | None = None
    ) -> None:
        self.schema = _checked_schema(schema)
        self.options = options or ToolOptions()
        self._original: Tool | None = None
        """The tool as its code has it, if a blueprint says something else of this one."""

    @abstractmethod
    def validate(self, arguments: JsonObject) -> JsonObject:
        """Return the values for a call; arguments whose meaning is certain may be repaired.

        They are checked by what the code takes: by `own_schema`, since `schema` may be that of an older blueprint.

        Args:
            arguments: A copy of the arguments, which may be changed.

        Raises:
            ToolArgumentsError: They do not fit the parameters; see `arguments_error`.
        """

    @abstractmethod
    async def perform(self, values: JsonObject, seconds: float | None) -> Any:
        """Call the tool.

        Args:
            values: What `validate` returned.
            seconds: How long the call may take before it is cancelled; None if it is not.

        Raises:
            Exception: The call failed.
        """

    def with_defaults(self, values: JsonObject) -> JsonObject:
        """Return all values that the tool is called with, as a person is shown them."""
        return values

    async def apply_approval_rule(self, values: JsonObject) -> bool:
        """Return whether a person has to approve a call, of a tool of which that is true for some or all calls.

        Raises:
            Exception: The rule failed; the tool is not called.
        """
        return True

    async def for_run(self) -> Tool:
        """Return the tool as it is shown to a model and called in one run.

        Raises:
            PodwrightError: It is not available.
        """
        return self

    @property
    def mcp_server(self) -> str:
        """The MCP server that it is a tool of; empty for others."""
        return ""

    @property
    def mcp_tool(self) -> str:
        """The tool as its MCP server calls it; empty for others."""
        return ""

    @property
    def mcp_digest(self) -> str:
        """The digest of its locked definition; empty if it has none."""
        return ""

    @property
    def takes_any_argument(self) -> bool:
        """Whether a call may have arguments besides the parameters of its schema."""
        return False

    @property
    def definition(self) -> object:
        """The object that defines it in a module of the user's code: a function, or the tool itself."""
        return self._original or self

    @property
    def result_schema(self) -> JsonMapping | None:
        """The JSON Schema of its results; None if it is not known. Results are not checked against it."""
        return None

    @property
    def may_report_usage(self) -> bool:
        """Whether its calls may report model calls of their own, which have a price."""
        return False

    @property
    def own_schema(self) -> ToolSchema:
        """The schema that its code has; that of a blueprint may be older."""
        return (self._original or self).schema

    @property
    def name(self) -> str:
        """The name that the model uses."""
        return self.schema["function"]["name"]

    @property
    def parameters(self) -> JsonMapping:
        """The schemas of its parameters by name."""
        parameters = self.schema["function"]["parameters"]
        return as_object(parameters.get("properties"))

    @property
    def idempotent(self) -> bool:
        """Whether a call may be repeated if its end is unknown, such as after the end of a process."""
        return self.options.get("idempotent", False)

    @property
    def may_need_approval(self) -> bool:
        """Whether a person has to approve its calls, or some of them."""
        return self.options.get("approval", False)

    @property
    def reports_errors(self) -> bool:
        """Whether the model is told when it raises an error; if not, the run fails."""
        if self.is_performed_again:
            return False
        return self.options.get("on_error") != "fail"

    @property
    def timeout(self) -> float | None:
        """Seconds that a call may take; None without a limit.

        Raises:
            ConfigurationError: A variable of the library is invalid.
        """
        if self.is_performed_again:
            return None
        if "timeout" in self.options:
            return self.options["timeout"]
        return current_settings().tool_timeout

    @property
    def max_result_tokens(self) -> int | None:
        """Estimated tokens after which a result is cut; None without a limit.

        Raises:
            ConfigurationError: A variable of the library is invalid.
        """
        if self.is_performed_again:
            return None
        if "max_result_tokens" in self.options:
            return self.options["max_result_tokens"]
        return current_settings().max_result_tokens

    def entry(self) -> Blueprint:
        """The tool's entry in a blueprint (spec §2.1)."""
        return {"name": self.name, "schema": self.schema, **self.options}

    def is_same_as(self, other: Tool) -> bool:
        """Return whether both are the same in code, under whatever names and with whatever options."""
        return self.definition is other.definition

    def renamed(self, name: str) -> Self:
        """Return the same tool under another name."""
        if name == self.name:
            return self
        schema = copy_json(self.schema)
        schema["function"]["name"] = name
        return self.with_schema(schema)

    def with_schema(self, schema: ToolSchema) -> Self:
        """Return the same tool with what a blueprint shows a model of it."""
        return self._with(schema=schema)

    def with_options(self, options: ToolOptions) -> Self:
        """Return the same tool with what a blueprint says of its calls."""
        return self._with(options=options)

    def _with(self, **attributes: object) -> Self:
        # not by `copy`, which makes a new object in the way of pickle
        changed = object.__new__(type(self))
        vars(changed).update(
            vars(self), _original=self._original or self, **attributes
        )
        return changed

    async def needs_approval(self, arguments: JsonObject) -> bool:
        """Return whether a person has to approve a call.

        Raises:
            ToolArgumentsError: The arguments do not fit the parameters.
            ToolError: The tool's rule of approval failed.
            Refusal: The rule refuses the call.
        """
        if not self.may_need_approval:
            return False
        values = await self.run_validation(self._validated, arguments)
        try:
            with exits_as_errors():
                return await self.apply_approval_rule(values)
        except Refusal:
            raise
        except Exception as error:
            subject = f"The approval rule of tool '{self.name}'"
            raise error_from(ToolError, subject, error) from error

    def final_arguments(self, arguments: JsonObject) -> JsonObject:
        """Return the arguments with which the tool is called, as JSON data: validated, and with their defaults.

        Raises:
            ToolArgumentsError: The arguments do not fit the parameters.
        """
        values = self.with_defaults(self._validated(arguments))
        return {name: _to_shown_data(value) for name, value in values.items()}

    def problems_of_changes(
        self, arguments: JsonObject, changes: JsonMapping
    ) -> Iterator[Problem]:
        """Say which changes of arguments the tool would not be called with, with pointers such as `/amount`.

        Args:
            arguments: The arguments of the call, as the model wrote them.
            changes: Other values, by name.
        """
        try:
            values = self._validated({**arguments, **changes})
        except ToolArgumentsError as error:
            yield from error.problems
            return
        for name, value in changes.items():
            final = values.get(name)
            # another type, such as a date, is what the text stands for
            is_changed = type(final) in _JSON_TYPES and final != value
            if is_changed:
                yield Problem(
                    json_pointer(name),
                    f"The tool '{self.name}' changes '{name}': it would be {describe_value(final)}.",
                    "Send the value that the tool is to be called with.",
                )

    def arguments_error(
        self, problems: Sequence[Problem]
    ) -> ToolArgumentsError:
        """Return the error for arguments that do not fit the parameters.

        Args:
            problems: Everything that is wrong in them, with pointers such as `/amount`.
        """
        reasons = "; ".join(map(str, problems))
        error = ToolArgumentsError(
            f"Invalid arguments for tool '{self.name}': {reasons}"
        )
        error.problems = tuple(problems)
        return error

    async def call(self, arguments: JsonObject) -> Any:
        """Validate the arguments and call the tool within its time.

        After a time-out an async function is cancelled; a blocking one keeps its thread until it returns.

        Raises:
            ToolArgumentsError: The arguments do not fit the parameters.
            ToolError: The call took longer than `timeout`.
            Exception: The call failed.
        """
        values = await self.run_validation(self._validated, arguments)
        seconds = self.timeout
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                with exits_as_errors():
                    return await self.perform(values, seconds)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ToolError(
                f"Tool '{self.name}' did not answer within {seconds:g} s; what it did is unknown.",
                suggestion="Make the tool faster, or raise its timeout.",
            ) from error

    async def run_validation(
        self, function: Callable[..., T], /, *args: Any
    ) -> T:
        """Call a function that validates arguments; in a thread if that may take long."""
        if self.validates_in_thread:
            return await compute(function, *args)
        return function(*args)

    def _validated(self, arguments: JsonMapping) -> JsonObject:
        # the record of the run has the same object
        return self.validate(copy_json(arguments))

    async def __call__(self, **arguments: Any) -> Any:
        """Call the tool as the function that it stands for; see `call`."""
        return await self.call(arguments)


async def prepare_tools(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """Return tools as they are shown to a model and called in one run, by name.

    Raises:
        PodwrightError: One is not available.
    """
    return {name: await tool.for_run() for name, tool in tools.items()}


def _checked_schema(schema: object) -> ToolSchema:
    try:
        copied = to_exact_json_data(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolDefinitionError(
            f"The schema of a tool is not JSON data: {error}"
        ) from error
    match copied:
        case {
            "type": "function",
            "function": {"name": str(name), "parameters": dict()},
        } if name:
            return cast("ToolSchema", copied)
        case _:
            raise ToolDefinitionError(
                f"This is not the schema of a tool: {short_repr(schema)}",
                suggestion="Write {'type': 'function', 'function': {'name': …, 'parameters': {'type': 'object', …}}}.",
            )


def _to_shown_data(value: object) -> Any:
    """Return a value as JSON data for a person; a description, if it has no JSON form."""
    try:
        return to_json_data(value)
    except (ValueError, RecursionError):
        return short_repr(value)
