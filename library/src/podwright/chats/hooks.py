"""The functions before and after the work of an agent, a conductor or a pipeline."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from podwright.chats.function_calls import call_recorded
from podwright.chats.response_format import ResponseFormat, response_format
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    describe_value,
)
from podwright.data.names import INPUT, RUN, find_name
from podwright.data.text import did_you_mean
from podwright.errors import (
    ConfigurationError,
    ContextError,
    ModelRetry,
    ToolError,
)
from podwright.estimates.need import Need
from podwright.estimates.sizes import Size
from podwright.estimates.walk import Given, Walk
from podwright.location import ToolCallId
from podwright.messages.conversation import to_data
from podwright.messages.messages import Message
from podwright.messages.templates import names as template_names
from podwright.messages.templates import visible
from podwright.run.component import (
    Component,
    ModelComponent,
    PromptComponent,
)
from podwright.run.run import Run, Task
from podwright.tools.tool import Tool

OUTPUT = "output"
"""The name under which functions after the work get the answer, and may return another one."""


class Hooks:
    """The functions around the work of one run. They take named values, and return named values or None.

    Args:
        run: The run.
        component: Its component.
        task: What it is to do.
    """

    def __init__(
        self, run: Run, component: PromptComponent, task: Task
    ) -> None:
        self._run = run
        self._component = component
        self._task = task

    async def begin(self) -> Task:
        """Call the functions before the work, and return the task with what they returned.

        A value replaces the input of its name; any other is one that templates and later functions read.

        Raises:
            Refusal: A function refuses the task.
            ContextError: A value that a function needs is missing.
            ToolError: A function failed, or returned something else than named values.
        """
        for function in self._component.hooks("before"):
            returned = await self._call(function, {}, self._task.messages)
            self._task = _with_values(self._task, returned)
        return self._task

    async def finish(
        self,
        output: Any,
        messages: Sequence[Message] = (),
        *,
        may_retry: bool = False,
    ) -> Mapping[str, Any]:
        """Call the functions after the work, and return the last output among what they returned, by its name.

        Args:
            output: The answer as JSON data.
            messages: The conversation up to the answer.
            may_retry: Whether a model can give another answer.

        Raises:
            ModelRetry: A function asks the model for another answer.
            Refusal: A function refuses to give the answer.
            ContextError: A value that a function needs is missing.
            ToolError: A function failed, or returned something else than named values.
        """
        values: JsonObject = {OUTPUT: output}
        changed: JsonObject = {}
        for function in self._component.hooks("after"):
            returned = await self._call(
                function, values, messages, may_retry=may_retry
            )
            values.update(returned)
            if OUTPUT in returned:
                changed = {OUTPUT: returned[OUTPUT]}
        return changed

    async def _call(
        self,
        function: Tool,
        further: JsonMapping,
        messages: Sequence[Message],
        *,
        may_retry: bool = False,
    ) -> JsonMapping:
        """Call a function with the values of its parameters, and return the values that it returned."""
        run = self._run
        task = self._task
        values = {**task.values, **task.parsed_input.named, **further}
        call_id = ToolCallId(run.path, run.tool_calls)
        run.tool_calls += 1
        arguments = dict(_arguments(function, values, self._component.name))
        run.context_fields = {
            "inputs": visible(values),
            "messages": to_data(messages),
        }
        try:
            returned = await call_recorded(
                run, function, arguments, call_id, may_retry=may_retry
            )
        except ModelRetry as error:
            if may_retry or error.run_id is not None:
                raise
            raise ConfigurationError(
                f"The function '{function.name}' asks for another answer where '{run.component_name}' has no model "
                "that could give one.",
                suggestion="Raise ModelRetry in functions in 'after' of an agent or a conductor only.",
            ) from error
        finally:
            run.context_fields = {}
        if returned is None:
            return {}
        if not isinstance(returned, dict):
            raise ToolError(
                f"The function '{function.name}' returned {describe_value(returned)} instead of named values.",
                suggestion="Let it return a dictionary, such as {'output': …}, or None.",
            )
        return cast("JsonObject", returned)


def _arguments(
    function: Tool, values: JsonMapping, component: str
) -> Iterator[tuple[str, Any]]:
    """Yield the values of the parameters of a function.

    Raises:
        ContextError: One without a default has none.
    """
    required = as_array(
        function.schema["function"]["parameters"].get("required")
    )
    for name in function.parameters:
        if name in values:
            yield name, values[name]
        elif name in required:
            raise ContextError(
                f"The function '{function.name}' of '{component}' needs '{name}', which has no value.",
                suggestion=did_you_mean(name, values) or None,
            )


def _with_values(task: Task, returned: JsonMapping) -> Task:
    """Return a task with further values: those of inputs in their place."""
    named = task.parsed_input.named
    values = {
        name: value for name, value in returned.items() if name not in named
    }
    inputs = {name: returned[name] for name in returned if name in named}
    data = task.input
    if inputs:
        data = _with_inputs(task, inputs)
    return replace(task, input=data, values={**task.values, **values})


def _with_inputs(task: Task, inputs: JsonMapping) -> Any:
    """Return the input of a task with other values of some of its names."""
    content = task.parsed_input.content
    if content is None:
        return {**task.parsed_input.named, **inputs}
    text = inputs[INPUT]
    if not isinstance(text, str):
        return {INPUT: text}
    if isinstance(content, str):
        return text
    # what is no text stays beside the new one
    others = [part for part in content if part["type"] != "text"]
    return [{"type": "text", "text": text}, *others]


async def read_changed(
    output: Any, answer_format: ResponseFormat | None, component: str
) -> Any:
    """Return an answer that a function has changed, in the type of the answers.

    Args:
        output: The answer as JSON data.
        answer_format: The type; None for texts.
        component: The component whose answer it is.

    Raises:
        ToolError: It does not fit.
    """
    problem = ""
    if answer_format is not None:
        try:
            return await answer_format.convert(output)
        except ValueError as error:
            problem = str(error)
    elif not isinstance(output, str):
        problem = f"expected a text, got {describe_value(output)}"
    if problem:
        raise ToolError(
            f"The output of a function after '{component}' does not fit its answers: {problem}.",
            suggestion="Let the function return an output of the type that it is given.",
        )
    return output


async def read_changed_output(
    output: Any, before: Any, response_model: Any, component: str
) -> Any:
    """Return an output that a function has changed, of a component that has no chat.

    Args:
        output: The output as JSON data.
        before: What it was before.
        response_model: The type of the outputs; None if nobody has said it.
        component: The component whose output it is.

    Raises:
        ToolError: It does not fit.
    """
    answer_format = await response_format(response_model)
    if answer_format is None and not isinstance(before, str):
        return output
    return await read_changed(output, answer_format, component)


# --- Estimates --------------------------------------------------------------------------------------------------------


def before_work(
    walk: Walk, component: Component, given: Given
) -> tuple[Need, Given]:
    """Return what the functions before the work need, and what the component is given after them.

    A function that may return any name may also give what only the instructions and the members name.
    """
    need = Need()
    for function in component.hooks("before"):
        need += walk.call(function.name, function)
        known = dict(given.every_value)
        if given.content is not None:
            known[INPUT] = given.content
        names = _returned_names(function)
        if names is None:
            inside = _names_inside(component, set())
            new = {name for name in inside if find_name(name, known) is None}
            names = {*known, *new}
        sizes = {
            name: walk.replaced(known.get(name, Size(0)), function.name)
            for name in names
        }
        given = _given_with(given, sizes)
    return need, given


def after_work(
    walk: Walk, component: Component, answer: Size
) -> tuple[Need, Size]:
    """Return what the functions after the work need, and the size of the answer after them."""
    need = Need()
    for function in component.hooks("after"):
        need += walk.call(function.name, function)
        names = _returned_names(function)
        if names is None or OUTPUT in names:
            answer = walk.replaced(answer, function.name)
    return need, answer


def _returned_names(function: Tool) -> Collection[str] | None:
    """Return the names of the values that a function returns by its annotation; None if it may return any."""
    schema = function.result_schema
    if schema is None:
        return None
    if schema.get("type") == "null":
        return ()
    return as_object(schema.get("properties")) or None


def _names_inside(component: Component, seen: set[str]) -> Iterator[str]:
    """Yield the names that a component and its parts read or declare; agents may hand over in circles."""
    if isinstance(component, ModelComponent):
        yield from set(template_names(component.instructions)) - {RUN}
    for name, member in component.members().items():
        if name not in seen:
            seen.add(name)
            yield from member.inputs.schemas
            yield from _names_inside(member, seen)


def _given_with(given: Given, sizes: Mapping[str, Size]) -> Given:
    """Return what a run is given with further values: those of inputs in their place; see `_with_values`."""
    named = {name: sizes.get(name, size) for name, size in given.named.items()}
    values = {
        name: size for name, size in sizes.items() if name not in given.named
    }
    content = given.content
    if content is not None:
        content = sizes.get(INPUT, content)
    return replace(
        given,
        named=named,
        content=content,
        values={**given.values, **values},
    )
