"""Generated blueprints of all four kinds, and the live objects that they can be built from."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, Literal

from hypothesis import strategies as st
from tests.library.shapes import Json

from podwright import Agent, ScriptedModel, blueprints, load
from podwright.tools import to_tool


def search(query: str, limit: int = 3) -> str:
    """Search the archive.

    Args:
        query: What to look for.
        limit: How many results to give.
    """
    return f"{limit} results for {query}"


def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


async def weekday(day: Literal["today", "tomorrow"] = "today") -> str:
    """Say which day of the week it is."""
    return f"{day} is a Monday"


def is_urgent(context: dict[str, Any], **args: Any) -> bool:
    """Whether the input shouts."""
    return str(context.get("input", "")).endswith("!")


async def is_late(context: dict[str, Any], **args: Any) -> bool:
    """Whether it is late; it never is."""
    return False


TOOLS: list[Callable[..., Any]] = [search, add, weekday]
CONDITIONS: dict[str, Callable[..., Any]] = {"is_urgent": is_urgent, "is_late": is_late}

_known_names = st.sampled_from(["writer", "Ann Example", "研究员", "Müller-2", "a", "🚀", "x.y", "steps", "config"])
names = _known_names | st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="{}/"), min_size=1, max_size=10
)
_known_texts = ["", "Say {input}.", "{{x}} {", "line\nline\ttab", "yes", "1e5", " a ", "é\u2028\x85\x00"]
texts = st.sampled_from(_known_texts) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
model_names = st.sampled_from(["offline/echo", "openai/gpt-4o-mini", "a/b/c:1", "vendor/modèle"])
whole = st.integers(1, 1000)

settings: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.floats(0, 2) | st.integers(0, 2),
    "top_p": st.floats(0, 1),
    "max_tokens": whole,
    "seed": st.integers(-(2**63), 2**63),
    "stop": texts | st.lists(texts, max_size=2),
    "timeout": st.floats(0.001, 1e9),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "parallel_tool_calls": st.booleans(),
    "reasoning_effort": st.sampled_from(["none", "minimal", "low", "medium", "high", "xhigh"]),
}
extras: dict[str, st.SearchStrategy[Any]] = {
    "version": st.just(blueprints.VERSION),
    "description": texts,
}


def objects(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Json]:
    """Objects with all the required keys and any of the optional ones."""
    return st.fixed_dictionaries(required, optional=optional)


def shuffled(objects_in_order: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """The same objects, their keys in any order."""
    return objects_in_order.flatmap(lambda one: st.permutations(list(one.items())).map(dict))


def _tool_entry(function: Callable[..., Any], description: str | None) -> Json:
    entry = copy.deepcopy(to_tool(function).entry())
    if description is not None:
        entry["schema"]["function"]["description"] = description
    return entry


tool_lists = st.lists(
    st.builds(_tool_entry, st.sampled_from(TOOLS), st.none() | texts), max_size=3, unique_by=lambda one: one["name"]
)


def agents(model: bool = True) -> st.SearchStrategy[Json]:
    """Agents; without `model`, such as may lean on the model of the whole they are in."""
    loops = {"max_loops": whole, **settings}
    config = objects({"model": model_names}, loops) if model else objects({}, {"model": model_names, **loops})
    return objects(
        {"name": names, "instructions": texts, "config": config},
        {"type": st.just("Agent"), "tools": tool_lists, **extras},
    )


def members(model: bool) -> st.SearchStrategy[Json]:
    """Agents inside a conductor or pipeline: written out, or by name only."""
    by_name = objects({"type": st.just("Agent"), "name": names}, extras)
    return by_name | agents(model).map(lambda one: {"type": "Agent", **one})


conditions: st.SearchStrategy[Json] = st.recursive(
    st.sampled_from([
        {"name": "is_urgent"},
        {"name": "is_late", "args": {"hour": 22, "days": ["sat", None, 1.5]}},
        {"name": "equals", "args": {"value": "{input}", "to": "yes"}},
        {"name": "not_equals", "args": {"value": 1, "to": 2.5}},
        {"name": "contains", "args": {"value": "{input}", "text": "é"}},
        {"name": "starts_with", "args": {"value": "{input}", "text": "a"}},
        {"name": "one_of", "args": {"value": "{input}", "options": ["a", "b", True]}},
        {"name": "greater_than", "args": {"value": 2, "than": "1"}},
        {"name": "less_than", "args": {"value": 2, "than": "1"}},
        {"name": "is_empty", "args": {"value": ""}},
    ]),
    lambda inner: (
        st.builds(
            lambda name, many: {"name": name, "args": {"conditions": many}},
            st.sampled_from(["all", "any"]),
            st.lists(inner, min_size=1, max_size=3),
        )
        | inner.map(lambda one: {"name": "not", "args": {"condition": one}})
    ),
    max_leaves=3,
)  # fmt: skip


def _nested(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    some = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        objects(
            {"type": st.just("condition_step"), "name": names, "condition": conditions, "then": some},
            {"else": st.lists(inner, max_size=2)},
        ),
        objects(
            {"type": st.just("parallel_step"), "name": names, "branches": st.lists(some, min_size=1, max_size=2)}, {}
        ),
        objects(
            {
                "type": st.just("loop_step"), "name": names, "steps": some, "until": conditions,
                "max_iterations": whole,
            },
            {},
        ),
        objects(
            {"type": st.just("map_step"), "name": names, "over": names, "as": names, "steps": some},
            {"max_concurrency": st.integers(1, 64)},
        ),
        objects({"type": st.just("workflow_step"), "name": names, "workflow": _workflow(some)}, {}),
    )  # fmt: skip


def _workflow(some: st.SearchStrategy[list[Json]]) -> st.SearchStrategy[Json]:
    return objects({"name": names, "steps": some}, {"type": st.just("Workflow"), **extras})


_leaf = objects(
    {"type": st.just("agent_step"), "agent": names, "name": names}, {"input": texts, "output": names}
) | objects({"type": st.just("approval_step"), "name": names, "message": texts}, {})
steps = st.lists(st.recursive(_leaf, _nested, max_leaves=5), min_size=1, max_size=3)

conductors = objects(
    {
        "type": st.just("Conductor"),
        "name": names,
        "instructions": texts,
        "skills": st.lists(members(model=False), min_size=1, max_size=3, unique_by=lambda one: one["name"]),
        "config": objects({"model": model_names}, {"max_loops": whole, "planning": st.booleans(), **settings}),
    },
    extras,
)
pipelines = objects(
    {"type": st.just("Pipeline"), "name": names, "steps": st.lists(members(model=True), min_size=1, max_size=3)}, extras
) | objects(
    {
        "type": st.just("Pipeline"),
        "name": names,
        "steps": st.lists(members(model=False), min_size=1, max_size=3),
        "config": objects({"model": model_names}, {}),
    },
    extras,
)

valid: dict[str, st.SearchStrategy[Json]] = {
    "agent": shuffled(agents()),
    "workflow": shuffled(_workflow(steps)),
    "conductor": shuffled(conductors),
    "pipeline": shuffled(pipelines),
}
"""Valid blueprints of each kind."""


def rebuild(blueprint: Json) -> Any:
    """The component of a generated blueprint, with all that it may name."""
    wanted = [step.get("agent") for _, step in blueprints.walk_steps(blueprint.get("steps"))]
    wanted += [one["name"] for key in ("skills", "steps") for one in blueprint.get(key, ())]
    stand_ins = {name: Agent(name, "", ScriptedModel()) for name in wanted if name is not None}
    return load(blueprint, tools=TOOLS, agents=stand_ins, conditions=CONDITIONS)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to every value inside JSON data."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*at, key))


def changed(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """JSON data with one value replaced, or left out if the new one is `...`."""
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
