"""What variants change: places in the blueprints of a component, and the values there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from podwright import blueprints
from podwright.blueprints.members import parts_of
from podwright.blueprints.schema import CONFIG_KEYS
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    copy_json,
)
from podwright.data.text import did_you_mean, short_repr
from podwright.errors import Problem
from podwright.evaluation.suite_schema import PLACE

EVERY = "*"
"""The member that stands for all members with a model."""
_FORMS = "Write 'NAME.model', 'NAME.instructions', 'NAME.config.KEY' or 'NAME.tools.TOOL.KEY'."
_DEFINING = ("instructions", "config", "tools")
"""The keys of which a member has at least one that is more than the name of an agent."""


class Place(NamedTuple):
    """A place in the blueprints of a component."""

    member: str
    """The name of an agent, a conductor or a pipeline; `*` for all that have a model."""
    keys: tuple[str, ...]
    """`model`, `instructions`, `config` and a key, or `tools`, the name of a tool and a key."""

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """Parse a place as a suite has it, such as `writer.config.temperature`; None if it has none of the forms."""
        match = re.fullmatch(PLACE, text)
        if match is None:
            return None
        keys = tuple(match[2].split("."))
        if keys == ("model",):
            keys = ("config", "model")
        return cls(match[1], keys)


def changed_blueprint(
    blueprint: JsonMapping, changes: Mapping[str, Any]
) -> JsonObject:
    """Return a copy of a blueprint with the values of a variant.

    Args:
        blueprint: One blueprint of a component; places of members that it does not define are ignored.
        changes: Values by place; null changes nothing. What names a member takes precedence over `*`.

    Raises:
        BlueprintValidationError: The `type` of the blueprint is unknown.
    """
    changed = copy_json(dict(blueprint))
    places: list[tuple[Place, Any]] = []
    for text, value in changes.items():
        place = Place.parse(text)
        if place is not None and value is not None:
            places.append((place, value))
    # the more specific ones come last
    places.sort(key=lambda entry: entry[0].member != EVERY)
    for part in _changeable_parts(changed):
        for place, value in places:
            if place.member in (EVERY, part.get("name")):
                _change(part, place, copy_json(value))
    return changed


def _changeable_parts(blueprint: JsonMapping) -> Iterator[JsonObject]:
    """Yield the components that a blueprint defines and that have a model or members, and not those that it names."""
    if blueprints.kind_of(blueprint) == "workflow":
        return
    for at, part in parts_of(blueprint).items():
        if not at or part.keys() & set(_DEFINING):
            yield as_object(part)


def _change(part: JsonObject, place: Place, value: Any) -> None:
    is_pipeline = part.get("type") == "Pipeline"
    if place.keys == ("instructions",):
        if "instructions" in part or place.member != EVERY:
            part["instructions"] = value
    elif place.keys[0] == "config":
        _, key = place.keys
        config = as_object(part.get("config"))
        is_own = place.member != EVERY
        # others have the model of the whole, and a pipeline calls none itself
        if is_own or (key in config if key == "model" else not is_pipeline):
            part["config"] = {**config, key: value}
    else:
        _, tool, key = place.keys
        for entry in as_array(part.get("tools")):
            if as_object(entry).get("name") == tool:
                _change_tool(entry, key, value)


def _change_tool(entry: JsonObject, key: str, value: Any) -> None:
    if key == "description":
        entry["schema"]["function"]["description"] = value
    else:
        entry[key] = value


class Members:
    """The members of a component whose blueprints a variant may change.

    Args:
        sources: All blueprints of the component, valid ones.
        fixed: Names of members that have no blueprint of their own, such as those in Python.
    """

    def __init__(
        self, sources: Sequence[JsonMapping], fixed: Sequence[str] = ()
    ) -> None:
        self.sources = sources
        self._fixed = {*fixed}
        self._tools: dict[str, set[str]] = {}
        for source in sources:
            self._fixed.add(str(source.get("name")))
            for part in _changeable_parts(source):
                tools = self._tools.setdefault(str(part.get("name")), set())
                for entry in as_array(part.get("tools")):
                    tools.add(entry["name"])

    def effect(self, changes: Mapping[str, Any]) -> list[JsonObject]:
        """Return all blueprints with the values of a variant."""
        return [changed_blueprint(source, changes) for source in self.sources]

    def changes_something(self, changes: Mapping[str, Any]) -> bool:
        """Whether the values of a variant differ from what the blueprints have."""
        return self.effect(changes) != self.effect({})

    def place_problem(self, text: str, at: str) -> Problem | None:
        """Return why a text is no place in these blueprints; None if it is one.

        Args:
            text: The place.
            at: The JSON pointer of its key.
        """
        place = Place.parse(text)
        shown = short_repr(text)
        if place is None:
            if re.search(r"(^|\.)steps(\.|$)", text):
                return Problem(
                    at,
                    detail=f"{shown} would change steps, which makes another blueprint.",
                    suggestion="Write that blueprint, and name it in a variant: {blueprint: ../other}.",
                )
            return Problem(at, f"{shown} is no place in a blueprint.", _FORMS)
        tools = self._tools.get(place.member)
        if place.member == EVERY:
            tools = {name for own in self._tools.values() for name in own}
        if tools is None:
            return self._member_problem(place, shown, at)
        if place.keys[0] == "tools" and place.keys[1] not in tools:
            return Problem(
                at,
                detail=f"{shown} names the unknown tool '{place.keys[1]}'.",
                suggestion=did_you_mean(place.keys[1], sorted(tools)),
            )
        return None

    def _member_problem(self, place: Place, shown: str, at: str) -> Problem:
        if place.member in self._fixed:
            return Problem(
                at,
                detail=f"{shown}: '{place.member}' has no model and no instructions in a blueprint.",
                suggestion=did_you_mean("", sorted(self._tools)),
            )
        return Problem(
            at,
            detail=f"{shown} names the unknown member '{place.member}'.",
            suggestion=did_you_mean(
                place.member, [*sorted(self._tools), EVERY]
            ),
        )

    def value_problems(
        self, text: str, value: Any, at: str
    ) -> Iterator[Problem]:
        """Yield why the blueprints are not valid with a value at a place that exists.

        Args:
            text: The place.
            value: The value.
            at: Its JSON pointer in the suite.
        """
        found: dict[str, Problem] = {}
        for source in self.sources:
            changed = changed_blueprint(source, {text: value})
            for problem in blueprints.problems(changed):
                detail = (
                    f"'{source['name']}'{problem.pointer}: {problem.detail}"
                )
                found[detail] = Problem(at, detail, problem.suggestion)
            before = {each.pointer for each in blueprints.warnings(source)}
            for warning in blueprints.warnings(changed):
                if warning.pointer not in before:
                    key = text.rpartition(".")[2]
                    detail = f"Unknown key '{key}' of 'config'."
                    hint = did_you_mean(key, sorted(CONFIG_KEYS))
                    found[detail] = Problem(at, detail, hint)
        yield from found.values()
