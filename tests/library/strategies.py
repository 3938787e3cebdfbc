"""Hypothesis strategies: blueprints of all kinds, the objects they refer to, and damaged JSON data."""

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

from hypothesis import strategies as st
from tests.library.shapes import Json

from podwright import Agent, ScriptedModel, blueprints, load
from podwright.messages.templates import names as names_in
from podwright.steps.registry import step_problems
from podwright.tools.function_tool import to_tool


def search(query: str, limit: int = 3) -> str:
    """Search the archive.

    Args:
        query: What to look for.
        limit: How many results to give.
    """
    return f"{limit} results for {query}"


async def weekday(day: Literal["today", "tomorrow"] = "today") -> str:
    """Say which day of the week it is."""
    return f"{day} is a Monday"


def is_urgent(context: dict[str, Any], **args: Any) -> bool:
    return str(context.get("input", "")).endswith("!")


async def is_late(context: dict[str, Any], **args: Any) -> bool:
    return False


TOOLS: list[Callable[..., Any]] = [search, weekday]
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "search": search,
    "weekday": weekday,
}
CONDITIONS: dict[str, Callable[..., Any]] = {
    "is_urgent": is_urgent,
    "is_late": is_late,
}

any_json: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=10,
)

_allowed = st.characters(
    exclude_categories=["Cs", "Cc"], exclude_characters="{}/"
)
names = st.sampled_from(
    ["writer", "研究员", "🚀", "steps", "config"]
) | st.text(_allowed, min_size=1, max_size=10)
texts = st.sampled_from(
    [
        "Say {input}.",
        "{{x}} {",
        "line\nline\ttab",
        "yes",
        "1e5",
        " a ",
        "é\u2028\x85\x00",
    ]
)
# nothing fills a name that is there by chance, nor a text that is the name of a step
texts |= st.text(max_size=20).filter(
    lambda text: not names_in(text) and not re.search(r"\{[^{}]", text)
)
data = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | texts,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(max_size=8), inner, max_size=2)
    ),
    max_leaves=4,
)
"""JSON data whose texts are templates."""
model_names = st.sampled_from(
    ["offline/echo", "openai/gpt-4o-mini", "a/b/c:1", "vendor/modèle"]
)
counts = st.integers(1, 1000)

settings: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.floats(0, 2) | st.integers(0, 2),
    "top_p": st.floats(0, 1),
    "max_tokens": counts,
    "seed": st.integers(-(2**63), 2**63),
    "stop": texts | st.lists(texts, max_size=2),
    "timeout": st.floats(0.001, 1e9),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "parallel_tool_calls": st.booleans(),
    "reasoning_effort": st.sampled_from(
        ["none", "minimal", "low", "medium", "high", "xhigh"]
    ),
}
further = st.just({"a": [{"b": None}]}) | st.lists(counts)
json_schemas: st.SearchStrategy[Json] = st.sampled_from(
    [
        {},
        {"type": "string", "description": "Any text."},
        {"enum": ["a", None, 1.5]},
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        },
        {
            "type": "array",
            "items": {"$ref": "#/$defs/entry"},
            "$defs": {"entry": {"type": "number"}},
        },
    ]
).map(copy.deepcopy)
limits = st.fixed_dictionaries(
    {},
    optional={
        "model_calls": counts,
        "tokens": counts,
        "cost": st.floats(0, 100),
        "seconds": st.floats(0.001, 1e6),
    },
)
in_config: dict[str, st.SearchStrategy[Any]] = {
    "response_schema": json_schemas,
    "max_loops": counts,
    "max_tool_retries": st.integers(0, 1000),
    "max_corrections": st.integers(0, 1000),
    "max_history": st.integers(0, 1000),
    "max_input_tokens": counts,
    **settings,
    "研究/x": further,
}
"""Optional keys of `config`, one of which is unknown."""
notes = st.dictionaries(texts, st.lists(texts), max_size=2)
inputs = st.dictionaries(
    st.sampled_from(["tone", "ticket-1", "Kunde", "x_y"]),
    json_schemas | st.just({"type": "integer", "default": 3}),
    max_size=3,
)
additions: dict[str, Any] = {
    "version": st.just(blueprints.VERSION),
    "description": texts,
    "metadata": notes,
    "inputs": inputs,
    "limits": limits,
}
"""The optional keys that are not in the specification."""


def objects(
    required: dict[str, Any], optional: dict[str, Any] | None = None
) -> st.SearchStrategy[Json]:
    """Objects with all of the required keys and any of the optional ones."""
    return st.fixed_dictionaries(required, optional=optional or {})


def shuffled(blueprint: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """The same objects with their keys in any order."""
    return blueprint.flatmap(
        lambda data: st.permutations(list(data.items())).map(dict)
    )


def _tool_entry(function: Callable[..., Any], description: str | None) -> Json:
    entry = copy.deepcopy(to_tool(function).entry())
    if description is not None:
        entry["schema"]["function"]["description"] = description
    return entry


tool_lists = st.lists(
    st.builds(_tool_entry, st.sampled_from(TOOLS), st.none() | texts),
    max_size=2,
    unique_by=lambda tool: tool["name"],
)


_hook_names = st.sampled_from(sorted(FUNCTIONS))
_hook_lists = _hook_names | st.lists(_hook_names, min_size=1, max_size=3)
hooks: dict[str, Any] = {"before": _hook_lists, "after": _hook_lists}
"""Functions before and after the work of a component."""


def agents(model: bool = True) -> st.SearchStrategy[Json]:
    """Agents that use their inputs; without `model`, their config may lack one."""
    config = (
        objects({"model": model_names}, in_config)
        if model
        else objects({}, {"model": model_names, **in_config})
    )
    return objects(
        {"name": names, "instructions": texts, "config": config},
        {"type": st.just("Agent"), "tools": tool_lists, **hooks, **additions},
    ).map(_with_inputs_used)


def _with_inputs_used(blueprint: Json) -> Json:
    names = "".join(f" {{{name}}}" for name in blueprint.get("inputs", {}))
    return {**blueprint, "instructions": blueprint["instructions"] + names}


def members(model: bool) -> st.SearchStrategy[Json]:
    """Agents inside a conductor or pipeline: whole ones, and names."""
    by_name = objects({"type": st.just("Agent"), "name": names}, additions)
    return by_name | agents(model).map(lambda agent: {"type": "Agent", **agent})


conditions: st.SearchStrategy[Json] = st.recursive(
    st.sampled_from([
        {"name": "is_urgent"},
        {"name": "is_late", "args": {"hour": 22, "days": ["sat", None, 1.5]}},
        {"name": "equals", "args": {"value": "{input}", "to": "yes"}},
        {"name": "contains", "args": {"value": "{input}", "text": "é"}},
        {"name": "one_of", "args": {"value": "{input}", "options": ["a", "b", True]}},
        {"name": "less_than", "args": {"value": 2, "than": "1"}},
        {"name": "is_empty", "args": {"value": ""}},
    ]),
    lambda inner: (
        st.builds(
            lambda name, listed: {"name": name, "args": {"conditions": listed}},
            st.sampled_from(["all", "any"]),
            st.lists(inner, min_size=1, max_size=3),
        )
        | inner.map(lambda condition: {"name": "not", "args": {"condition": condition}})
    ),
    max_leaves=3,
)  # fmt: skip


def _step(
    step_type: str,
    required: dict[str, Any],
    optional: dict[str, Any] | None = None,
) -> st.SearchStrategy[Json]:
    return objects(
        {"type": st.just(step_type), "name": names, **required}, optional
    )


def _nested(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    some = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        _step(
            "condition_step",
            {"condition": conditions, "then": some},
            {"else": st.lists(inner, max_size=2)},
        ),
        _step(
            "parallel_step",
            {"branches": st.lists(some, min_size=1, max_size=2)},
        ),
        _step(
            "parallel_step",
            {
                "branches": some.map(lambda steps: [steps, steps]),
                "collect": st.just(True),
            },
        ),
        _step(
            "loop_step",
            {"steps": some, "until": conditions, "max_iterations": counts},
            {"on_exhausted": st.sampled_from(["continue", "fail"])},
        ),
        _step(
            "map_step",
            {
                "over": st.sampled_from(["input", "input.lists.0"]),
                "as": names,
                "steps": some,
            },
            {"max_concurrency": st.integers(1, 64)},
        ),
        _step(
            "try_step",
            {"steps": some, "catch": some},
            {
                "retries": st.integers(1, 10),
                "on": st.lists(
                    st.sampled_from(["tool_failed", "out_of_stock"]),
                    min_size=1,
                ),
            },
        ),
        _step("try_step", {"steps": some, "retries": st.integers(1, 10)}),
        _step("workflow_step", {"workflow": _workflow(some)}),
    )


def _workflow(some: st.SearchStrategy[list[Json]]) -> st.SearchStrategy[Json]:
    return objects(
        {"name": names, "steps": some},
        {"type": st.just("Workflow"), **additions},
    )


_leaf = st.one_of(
    _step(
        "agent_step",
        {"agent": names},
        {
            "input": texts | st.dictionaries(names, data, max_size=2),
            "output": names,
            "response_schema": json_schemas,
            "limits": limits,
        },
    ),
    _step(
        "function_step",
        {
            "function": st.just("search"),
            "arguments": objects({"query": data}, {"limit": data}),
        },
        {"output": names},
    ),
    _step(
        "function_step",
        {"function": st.just("weekday")},
        {"arguments": objects({}, {"day": data}), "output": names},
    ),
    _step("approval_step", {"message": texts}),
)
_steps = st.lists(
    st.recursive(_leaf, _nested, max_leaves=5), min_size=1, max_size=3
)
_conductors = objects(
    {
        "type": st.just("Conductor"),
        "name": names,
        "instructions": texts,
        "skills": st.lists(
            members(model=False),
            min_size=1,
            max_size=3,
            unique_by=lambda member: member["name"],
        ),
        "config": objects(
            {"model": model_names}, {"planning": st.booleans(), **in_config}
        ),
    },
    {**hooks, **additions},
)


def _pipelines(model: bool) -> st.SearchStrategy[Json]:
    required: dict[str, Any] = {"type": st.just("Pipeline"), "name": names}
    required["steps"] = st.lists(
        members(model=not model), min_size=1, max_size=3
    )
    return objects(
        {**required, "config": objects({"model": model_names})}
        if model
        else required,
        {**hooks, **additions},
    )


valid: dict[str, st.SearchStrategy[Json]] = {
    "agent": shuffled(agents()),
    "workflow": shuffled(_workflow(_steps)).filter(
        # outputs of branches may have the same name by chance
        lambda workflow: not list(step_problems(workflow["steps"]))
    ),
    "conductor": shuffled(_conductors),
    "pipeline": shuffled(_pipelines(model=True) | _pipelines(model=False)),
}
"""Valid blueprints of each kind."""


def load_generated(blueprint: Json) -> Any:
    """The component of a generated blueprint, with all that it may refer to."""
    needed = [
        step.get("agent")
        for _, step in blueprints.walk_steps(blueprint.get("steps"))
    ]
    needed += [
        member["name"]
        for key in ("skills", "steps")
        for member in blueprint.get(key, ())
    ]
    given = {
        name: Agent(name, "", ScriptedModel())
        for name in needed
        if name is not None
    }
    return load(
        blueprint,
        tools=TOOLS,
        agents=given,
        conditions=CONDITIONS,
        functions=FUNCTIONS,
    )


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The location of every value inside JSON data."""
    yield at
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inner:
        yield from places(item, (*at, key))


def changed(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """JSON data with the value at a location replaced, or removed if the new one is `...`."""
    if not at:
        return None if new is ... else new
    data = copy.deepcopy(value)
    inner = data
    for key in at[:-1]:
        inner = inner[key]
    if new is ...:
        del inner[at[-1]]
    else:
        inner[at[-1]] = new
    return data


def damaged(
    value: Any, replacements: st.SearchStrategy[Any] = any_json
) -> st.SearchStrategy[Any]:
    """JSON data with one value anywhere in it replaced or removed."""
    return st.builds(
        changed,
        st.just(value),
        st.sampled_from(list(places(value))),
        st.just(...) | replacements,
    )
