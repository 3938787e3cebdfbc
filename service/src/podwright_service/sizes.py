"""How large a posted blueprint may be: looked at before anything else, for all that follows takes its time for it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, cast

from podwright import blueprints
from podwright.errors import Problem
from podwright.json_data import as_array, json_pointer
from podwright_service.settings import Settings

MOST_VALUES = 10_000
"""Most JSON values of a posted blueprint and its agents."""
MOST_NAMED = 256
"""How often all their texts together may name values."""
MOST_REPEATS = 16
"""How often one text may name the same value: what a template makes stays of the order of what was sent."""

Blueprints = Mapping[str, Mapping[str, Any]]
_NAMED = re.compile(r"\{[\w-]+\}")
_OWN = ("agent", "instructions", "config", "tools")


def too_large(settings: Settings, blueprint: Mapping[str, Any], agents: Blueprints) -> list[Problem]:
    """Where a posted blueprint, with the agents that it names, has more of something than it may have."""
    if len(agents) > settings.max_steps:
        return [_problem("/agents", len(agents), "agents", settings.max_steps)]
    places = {"/blueprint": blueprint} | {json_pointer("agents", name): one for name, one in agents.items()}
    sizes = {at: len(json.dumps(one, separators=(",", ":"))) for at, one in places.items()}
    values = {at: _values(one) for at, one in places.items()}
    for counts, what, most in ((sizes, "bytes", settings.max_blueprint_bytes), (values, "JSON values", MOST_VALUES)):
        if (total := sum(counts.values())) > most:
            return [_problem(max(counts, key=lambda at: counts[at]), total, what, most)]
    found = [one for at, part in places.items() for one in _entries(settings, part, at)]
    return found or list(_nested(settings, blueprint, agents)) or list(_named(places))


def in_order(agents: Blueprints) -> list[str]:
    """The names of the agents, those first that need no others."""
    return sorted(agents, key=lambda name: "steps" in agents[name] or "skills" in agents[name])


def _problem(at: str, count: int, what: str, most: int) -> Problem:
    return Problem(at, f"{count} {what} are too many; {most} are allowed.", "Split it.")


def _values(data: object) -> int:
    count, stack = 0, [data]
    while stack:
        item = stack.pop()
        count += 1
        if isinstance(item, Mapping):
            stack += cast("Mapping[str, object]", item).values()
        elif isinstance(item, list):
            stack += cast("list[object]", item)
    return count


def _entries(settings: Settings, blueprint: Mapping[str, Any], at: str) -> Iterator[Problem]:
    """What one blueprint has too many of."""
    counts = {"/steps": _steps(blueprint), "/skills": len(as_array(blueprint.get("skills")))}
    counts["/tools"] = len(as_array(blueprint.get("tools")))
    for place, member in members(blueprint):
        counts[f"{place}/tools"] = len(as_array(member.get("tools")))
    for place, count in counts.items():
        if count > settings.max_steps:
            yield _problem(at + place, count, place.rpartition("/")[2], settings.max_steps)


def _nested(settings: Settings, blueprint: Mapping[str, Any], agents: Blueprints) -> Iterator[Problem]:
    """Where there are too many steps once each agent stands in the place of its name, or too deep ones."""
    steps: dict[str, int] = {}
    depths: dict[str, int] = {}
    parts = {json_pointer("agents", name): (name, agents[name]) for name in in_order(agents)}
    own = 0
    for at, (name, part) in {**parts, "/blueprint": ("", blueprint)}.items():
        here = _steps(part) + len(as_array(part.get("skills")))
        inside = [one for one in _references(part) if one in steps]
        own += here
        steps[name] = here + sum(steps[one] for one in inside)
        depths[name] = bool(here) + max((depths[one] for one in inside), default=0)
        if steps[name] > settings.max_steps:
            yield _problem(at, steps[name], "steps, with those of its agents,", settings.max_steps)
        elif depths[name] > settings.max_nesting:
            yield Problem(at, f"agents name each other deeper than {settings.max_nesting} levels.", "Flatten them.")
    if own > settings.max_steps:
        yield _problem("/agents", own, "steps in all", settings.max_steps)


def _references(blueprint: Mapping[str, Any]) -> Iterator[str]:
    """The agents that a blueprint refers to by name, as often as it does."""
    names = [step.get("agent") for _, step in blueprints.walk_steps(blueprint.get("steps"))]
    names += [one.get("name") for _, one in members(blueprint) if not any(key in one for key in _OWN)]
    yield from (name for name in names if isinstance(name, str))


def members(blueprint: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The skills and steps of a blueprint, each with its place."""
    for key in ("skills", "steps"):
        for number, one in entries(blueprint.get(key)):
            yield f"/{key}/{number}", one


def entries(value: object) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects in an array, each with its index; none in what is no array."""
    for number, one in enumerate(as_array(value)):
        if isinstance(one, dict):
            yield number, cast("dict[str, Any]", one)


def _steps(blueprint: Mapping[str, Any]) -> int:
    return sum(1 for _ in blueprints.walk_steps(blueprint.get("steps")))


def _named(places: Blueprints) -> Iterator[Problem]:
    """Where values are named so often that what the texts make would fill the memory."""
    total, most_at = 0, (0, "")
    for at, text in (one for place, part in places.items() for one in _texts(part, place)):
        counts = Counter(_NAMED.findall(text))
        total += counts.total()
        for name, times in counts.most_common(1):
            if times > MOST_REPEATS:
                yield Problem(at, f"the text names {name} {times} times; {MOST_REPEATS} are allowed.", "Say it once.")
        most_at = max(most_at, (counts.total(), at))
    if total > MOST_NAMED:
        yield _problem(most_at[1], total, "values named in its texts", MOST_NAMED)


def _texts(value: object, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, Mapping):
        for key, one in cast("Mapping[str, object]", value).items():
            yield from _texts(one, at + json_pointer(key))
    elif isinstance(value, list):
        for number, one in enumerate(cast("list[object]", value)):
            yield from _texts(one, f"{at}/{number}")
