"""The form of checks: what is wrong with one before any run, and what reports call it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from podwright import blueprints, conditions
from podwright.blueprints.named_parts import names_in_condition
from podwright.conditions import BUILT_IN, Conditions
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    json_pointer,
    to_text,
    walk_json,
)
from podwright.data.names import INPUT
from podwright.data.text import did_you_mean, truncate
from podwright.errors import Problem
from podwright.schemas.validator import SchemaValidator
from podwright.steps.base import Known
from podwright.steps.registry import walk_steps
from podwright.workflows.template_names import Findings, NameCheck

COMPARISONS: Mapping[str, tuple[str, ...]] = {
    "matches": ("value", "pattern"),
    "close_to": ("value", "to", "within"),
    "fits": ("value", "schema"),
}
"""The comparisons that only checks have, and their arguments, all of them required."""
_NO_TEMPLATES = ("pattern", "schema")
"""The arguments of these that are data: braces of a regular expression are no template."""
_LONGEST_LABEL = 60

_TEXT: JsonMapping = {"type": "string"}
_NUMBER: JsonMapping = {"type": "number"}


def _closed(properties: Mapping[str, JsonMapping]) -> JsonObject:
    return {
        "type": "object",
        "properties": dict(properties),
        "additionalProperties": False,
    }


def label_of(check: JsonMapping) -> str:
    """Return what reports call a check: its label, or a short text of what it says.

    Args:
        check: A valid check.
    """
    if "label" in check:
        return str(check["label"])
    if "judge" in check:
        return str(check["judge"])
    if "prefer" in check:
        return f"preferred by {check['prefer']}"
    if "called" in check:
        names = [
            str(as_object(call).get("tool", call)) for call in check["called"]
        ]
        return truncate(
            f"calls {', '.join(names) or 'nothing'}", _LONGEST_LABEL
        )
    return truncate(_describe_condition(check), _LONGEST_LABEL)


def _describe_condition(condition: JsonMapping) -> str:
    """Return a condition as a text, such as `ticket.category equals refund`."""
    name = str(condition["name"]).replace("_", " ")
    args = as_object(condition.get("args"))
    if "condition" in args:
        return f"{name} {_describe_condition(args['condition'])}"
    if "conditions" in args:
        inner = map(_describe_condition, args["conditions"])
        return f"{name} of: {'; '.join(inner)}"
    words = [name]
    for key, value in args.items():
        text = " ".join(to_text(value).split())
        if key == "value":
            words.insert(0, re.sub(r"^\{([^{}]+)\}$", r"\1", text))
        elif key not in ("schema", "within"):
            words.append(text)
    return " ".join(words)


def readable_values(
    blueprint: JsonMapping,
    agents: Mapping[str, JsonMapping],
    inputs: Collection[str],
) -> Known:
    """Return the names that checks may read of a run, each with the JSON Schema of its value as far as it is known.

    Args:
        blueprint: The component's blueprint, valid.
        agents: The blueprints of the agents that it names, as far as they are known.
        inputs: The names of the inputs that cases have.
    """
    declared = as_object(blueprint.get("inputs"))
    known: Known = {INPUT: None, **dict.fromkeys(inputs), **declared}
    loops: dict[str, JsonMapping] = {}
    if blueprints.kind_of(blueprint) == "workflow":
        steps = as_array(blueprint.get("steps"))
        written: Known = {}
        check = NameCheck(Findings(), agents, is_closed=True)
        for name, schema in check.written_values(steps):
            is_same = written.get(name, schema) == schema
            written[name] = schema if is_same else None
        known.update(written)
        for _, step in walk_steps(steps):
            if "until" in step:
                loops[str(step.get("name"))] = _NUMBER
    config = as_object(blueprint.get("config"))
    usage = _closed(dict.fromkeys(("cost", "tokens", "model_calls"), _NUMBER))
    return {
        **known,
        "inputs": {"type": "object", "properties": declared},
        "output": as_object(config.get("response_schema")) or None,
        "status": _TEXT,
        "error": _closed({"code": _TEXT, "message": _TEXT}),
        "called": {"type": "array", "items": _TEXT},
        "usage": usage,
        "seconds": _NUMBER,
        "rounds": _closed(loops),
        "question": _TEXT,
    }


@dataclass(frozen=True, slots=True)
class CheckForm:
    """Finds what is wrong with the checks of one suite."""

    known: Known
    """See `readable_values`."""
    is_closed: bool
    """Whether a run has no other values."""
    conditions: Conditions
    """The functions of `checks.py`, by name."""
    judges: Mapping[str, JsonMapping]
    """The blueprints of the judges, by name."""
    callable_names: Collection[str] | None
    """The tools and functions that a run may call; None if they are not known."""

    def problems(self, check: JsonMapping, at: str) -> Iterator[Problem]:
        """Yield what is wrong with a check whose keys and types are right.

        Args:
            check: The check.
            at: Its JSON pointer.
        """
        if "called" in check:
            yield from self._call_problems(check, at)
        elif "name" in check:
            yield from self._condition_problems(check, at)
        else:
            key = "judge" if "judge" in check else "prefer"
            yield from self._judge_problems(check, key, at)

    def _template_problems(self, data: object, at: str) -> list[Problem]:
        """Return the names in the texts of some data that nothing fills."""
        names = self._names()
        for pointer, value, _ in walk_json(data):
            names.template(value, at + pointer, self.known)
        return names.findings.problems

    def _names(self) -> NameCheck:
        return NameCheck(Findings(), {}, self.is_closed)

    def _condition_problems(
        self, check: JsonMapping, at: str
    ) -> Iterator[Problem]:
        name = check["name"]
        if name in COMPARISONS and name not in self.conditions:
            yield from self._comparison_problems(check, at)
            return
        found = conditions.problems(check, at, self.conditions)
        for problem in found:
            yield self._with_all_names(check, problem)
        if not found:
            names = self._names()
            names.condition(check, at, self.known)
            yield from names.findings.problems

    def _with_all_names(self, check: JsonMapping, problem: Problem) -> Problem:
        """Suggest the comparisons of checks, too, instead of an unknown condition."""
        name = str(check["name"])
        inner = [
            each for each in names_in_condition(check) if each in COMPARISONS
        ]
        if problem.pointer.endswith("/name") and inner:
            return Problem(
                problem.pointer,
                detail=f"'{inner[0]}' is a check by itself, and cannot be inside a condition.",
            )
        if name in (*self.conditions, *BUILT_IN):
            return problem
        known = (*self.conditions, *BUILT_IN, *COMPARISONS)
        return Problem(
            problem.pointer,
            detail=f"Unknown condition '{name}': it is not built in, and 'checks.py' has no function of this name.",
            suggestion=did_you_mean(name, known),
        )

    def _comparison_problems(
        self, check: JsonMapping, at: str
    ) -> Iterator[Problem]:
        name = check["name"]
        args = as_object(check.get("args"))
        wanted = COMPARISONS[name]
        pointer = f"{at}/args"
        for key in wanted:
            if key not in args:
                yield Problem(pointer, f"'{name}' needs the argument '{key}'.")
        for key in args:
            if key not in wanted:
                yield Problem(
                    pointer + json_pointer(key),
                    detail=f"'{name}' has no argument '{key}'.",
                    suggestion=did_you_mean(key, wanted),
                )
        if "pattern" in args:
            yield from _pattern_problems(args["pattern"], f"{pointer}/pattern")
        if name == "fits" and "schema" in args:
            yield from _schema_problems(args["schema"], f"{pointer}/schema")
        for key, value in args.items():
            if key not in _NO_TEMPLATES:
                yield from self._template_problems(value, f"{pointer}/{key}")

    def _call_problems(self, check: JsonMapping, at: str) -> Iterator[Problem]:
        for number, call in enumerate(check["called"]):
            pointer = f"{at}/called/{number}"
            name = call
            expected = as_object(call)
            if expected:
                name = expected["tool"]
                arguments = expected.get("arguments")
                yield from self._template_problems(
                    arguments, f"{pointer}/arguments"
                )
                pointer += "/tool"
            known = self.callable_names
            if known is not None and name not in known:
                yield Problem(
                    pointer,
                    detail=f"Nothing calls '{name}': it is no tool and no function of the component.",
                    suggestion=did_you_mean(name, sorted(known)),
                )

    def _judge_problems(
        self, check: JsonMapping, key: str, at: str
    ) -> Iterator[Problem]:
        name = check[key]
        pointer = f"{at}/{key}"
        blueprint = self.judges.get(name)
        if blueprint is None:
            yield Problem(
                pointer,
                detail=f"There is no judge '{name}': the folder 'judges' has no blueprint file of this name.",
                suggestion=did_you_mean(name, sorted(self.judges)),
            )
            return
        # of one that cannot be read, the reason is known
        for reason in judge_mistakes(blueprint) if blueprint else ():
            yield Problem(pointer, f"The judge '{name}': {reason}")
        given = as_object(check.get("input"))
        for each, schema in as_object(blueprint.get("inputs")).items():
            is_known = each in given or each in (INPUT, "output", "inputs")
            if not is_known and "default" not in as_object(schema):
                yield Problem(
                    f"{at}/input",
                    detail=f"The judge '{name}' needs the input '{each}'.",
                )
        yield from self._template_problems(given, f"{at}/input")


def judge_mistakes(blueprint: JsonMapping) -> Iterator[str]:
    """Yield why a blueprint is not that of a judge: an agent whose answer has the boolean `good`.

    Args:
        blueprint: The blueprint, valid or not.
    """
    for problem in blueprints.problems(blueprint, "agent"):
        yield str(problem)
        return
    config = as_object(blueprint.get("config"))
    schema = as_object(config.get("response_schema"))
    good = as_object(as_object(schema.get("properties")).get("good"))
    is_required = "good" in as_array(schema.get("required"))
    if good.get("type") != "boolean" or not is_required:
        yield "its 'response_schema' needs the required property 'good', a boolean."


def _pattern_problems(pattern: Any, at: str) -> Iterator[Problem]:
    if not isinstance(pattern, str):
        yield Problem(at, "Expected a regular expression.")
        return
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        yield Problem(at, f"Invalid regular expression: {error}.")


def _schema_problems(schema: Any, at: str) -> Iterator[Problem]:
    parts = as_object(schema)
    if schema != parts:
        yield Problem(at, "Expected a JSON Schema, an object.")
        return
    try:
        SchemaValidator(parts)
    except ValueError as error:
        yield Problem(at, f"Invalid JSON Schema: {str(error).rstrip('.')}.")
