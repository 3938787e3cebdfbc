"""The settings of models that a JSON Schema cannot judge: the tools that they name, and parameters of providers."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from podwright.blueprints.mcp_tools import mcp_tools, tools_besides_mcp
from podwright.blueprints.members import handoffs_of, parts_of
from podwright.blueprints.unsafe_keys import unsafe_key_in, unsafe_key_problem
from podwright.data.json_data import JsonMapping, as_object, json_pointer
from podwright.data.text import did_you_mean, short_repr
from podwright.data.tool_names import transfer_tool_names
from podwright.errors import Problem
from podwright.messages.messages import TOOL_CHOICES, ModelSettings

_EXTRA_BODY = "extra_body"
"""The parameter in which Gemini's Chat Completions take others, as LiteLLM does."""
_OF_REQUEST = frozenset({
    "best_of", "candidate_count", "fallbacks", "function_call", "functions", "max_completion_tokens", "max_gen_len",
    "max_new_tokens", "max_output_tokens", "max_tokens_to_sample", "messages", "model", "models", "n",
    "num_generations", "num_predict", "response_format", "stop_sequences", "stream", "stream_options", "system",
    "tool_choice", "tools",
})  # fmt: skip
"""What a request has anyway, or what multiplies its work or changes who answers."""
_OF_CONFIG = ModelSettings.__optional_keys__ - {"parameters"}


def chat_problems(blueprint: JsonMapping) -> Iterator[Problem]:
    """Yield what is wrong with the settings of the models in a blueprint whose shape is valid."""
    for at, part in parts_of(blueprint).items():
        config = as_object(part.get("config"))
        pointer = f"{at}/config"
        yield from _tool_problems(part, config, at)
        yield from _handoff_problems(part, at)
        parameters = as_object(config.get("parameters"))
        yield from _parameter_problems(parameters, f"{pointer}/parameters")


def _tool_problems(
    part: JsonMapping, config: JsonMapping, at: str
) -> Iterator[Problem]:
    """Yield the tools that `tool_choice` and `stop_at` name and the component does not have."""
    choice = config.get("tool_choice")
    stops = config.get("stop_at", [])
    if choice is None and not stops:
        return
    known = [
        *tools_besides_mcp(part),
        *(tool.name for tool in mcp_tools(part, at)),
    ]
    transfers = transfer_tool_names(handoffs_of(part), known)
    callable_names = [*known, *transfers]
    if choice not in (None, *TOOL_CHOICES) and choice not in callable_names:
        words = f"{', '.join(TOOL_CHOICES)}, or the name of a tool"
        yield _unknown_tool(
            choice,
            f"{at}/config/tool_choice",
            callable_names,
            f"Expected {words}.",
        )
    if choice == "required" and not callable_names:
        yield Problem(
            f"{at}/config/tool_choice",
            "A tool is required, and the component has none.",
        )
    if isinstance(stops, str) and stops not in known:
        yield _unknown_tool(stops, f"{at}/config/stop_at", known)
    elif not isinstance(stops, str):
        for number, name in enumerate(stops):
            if name not in known:
                place = f"{at}/config/stop_at/{number}"
                yield _unknown_tool(name, place, known)


def _handoff_problems(part: JsonMapping, at: str) -> Iterator[Problem]:
    """Yield the handoffs of an agent to itself."""
    for number, name in enumerate(handoffs_of(part)):
        if name == part["name"]:
            yield Problem(
                f"{at}/handoffs/{number}",
                f"The agent '{name}' cannot hand off to itself.",
            )


def _unknown_tool(
    name: object, pointer: str, known: Collection[str], hint: str = ""
) -> Problem:
    return Problem(
        pointer,
        detail=f"The component has no tool {short_repr(name)}.",
        suggestion=did_you_mean(str(name), known) or hint,
    )


def _parameter_problems(
    parameters: JsonMapping, pointer: str
) -> Iterator[Problem]:
    """Yield the parameters that are not for the provider alone."""
    for name, value in parameters.items():
        place = pointer + json_pointer(name)
        if name == _EXTRA_BODY and value == as_object(value):
            yield from _parameter_problems(as_object(value), place)
        elif _in_one_spelling(name) in map(_in_one_spelling, _OF_CONFIG):
            yield Problem(
                place,
                detail=f"'{name}' is a setting of its own.",
                suggestion="Write it in config, beside 'parameters'.",
            )
        elif _in_one_spelling(name) in map(_in_one_spelling, _OF_REQUEST):
            yield Problem(
                place,
                detail=f"'{name}' is a part of the request itself, or changes who answers.",
                suggestion="Remove it.",
            )
        else:
            unsafe = unsafe_key_in({name: value})
            if unsafe:
                yield unsafe_key_problem(pointer + unsafe)


def _in_one_spelling(name: str) -> str:
    """A name as providers spell it in one of two ways, such as `maxOutputTokens` and `max_output_tokens`."""
    return name.replace("_", "").lower()
