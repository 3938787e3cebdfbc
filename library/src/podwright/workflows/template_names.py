"""The names in the templates of a blueprint that nothing can fill.

If a component declares its inputs, each other name is a problem. If it does not, any name may be an input of the
caller, so only two kinds are problems: the output of a step that only comes later, and a name that misspells one that
is filled. A field is a problem if the schema of the value has no such field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from podwright import conditions
from podwright.blueprints.members import members_of
from podwright.blueprints.validation import kind_of
from podwright.data.json_data import (
    JsonMapping,
    as_array,
    as_object,
    to_text,
    walk_json,
)
from podwright.data.names import (
    INPUT,
    RUN,
    RUN_FIELDS,
    Expression,
    find_name,
    normal_form,
    path_expression,
)
from podwright.data.text import did_you_mean, most_similar, short_repr
from podwright.errors import Problem
from podwright.messages.templates import (
    expressions,
    is_index,
    names,
    only_name,
    suggest_name,
    unfilled_values,
)
from podwright.run.component import Component
from podwright.run.options import ParsedBlueprint
from podwright.schemas.json_schema import subschema
from podwright.steps.base import Known
from podwright.steps.loop_step import ITERATION
from podwright.steps.registry import (
    inner_sequences,
    kinds,
    step_class,
    writes_of,
)
from podwright.tools.tool import Tool

_LIST: JsonMapping = {"type": "array"}
_TEXT: JsonMapping = {"type": "string"}
_OF_RUN: JsonMapping = {
    "type": "object",
    "properties": {**dict.fromkeys(RUN_FIELDS, _TEXT), "metadata": {}},
}
"""The schema of what templates read of their run."""
_OUTPUT = "_output"
_DIGIT = re.compile(r"\d")
_MOST_WARNINGS = 100
_MOST_OPTIONS = 64
"""Values of an enumeration with which conditions are compared."""
_LONGEST_OPTION = 200
"""Characters of such a value, and of what it is compared with."""
_LONG_WORD = 6
"""Letters of a word in which one wrong letter does not make another word."""


@dataclass(slots=True)
class Findings:
    """What was found in the templates of a blueprint."""

    problems: list[Problem] = field(default_factory=list[Problem])
    """Names that nothing fills."""
    warnings: list[Problem] = field(default_factory=list[Problem])
    """Names that hide others."""


def check_names(
    blueprint: JsonMapping,
    agents: Mapping[str, JsonMapping] | None = None,
    functions: Mapping[str, Tool] | None = None,
) -> Findings:
    """The names in the templates of a valid blueprint that nothing can fill.

    Args:
        blueprint: A blueprint of any kind.
        agents: The blueprints of the agents that it names, as far as they are known.
        functions: The functions that its steps call, as far as they are known.
    """
    findings = Findings()
    known = _inputs_of(blueprint)
    is_closed = bool(blueprint.get("inputs"))
    if kind_of(blueprint) == "workflow":
        steps = as_array(blueprint.get("steps"))
        check = NameCheck(findings, agents or {}, is_closed, functions or {})
        for name, schema in check.written_values(steps):
            if check.written.get(name, schema) != schema:
                check.rewritten.add(name)
            check.written[name] = schema
        check.check_sequence(steps, "/steps", known, in_loop=False)
        return findings
    check = NameCheck(findings, {}, is_closed)
    check.check_team(blueprint, known)
    return findings


def name_problems(
    parsed: ParsedBlueprint,
    agents: Mapping[str, Component] | None = None,
    functions: Mapping[str, Tool] | None = None,
) -> list[Problem]:
    """The problems that `check_names` finds in a parsed blueprint; none if it has others already.

    Args:
        parsed: The blueprint.
        agents: The agents that it names.
        functions: The functions that its steps call.
    """
    if parsed.problems:
        return []
    blueprints = {
        name: agent.to_blueprint() for name, agent in (agents or {}).items()
    }
    return check_names(parsed.data, blueprints, functions).problems


def blueprints_of(component: Component | None) -> dict[str, JsonMapping]:
    """The blueprints of the members of a component, by name."""
    if component is None:
        return {}
    members = component.members()
    return {name: member.to_blueprint() for name, member in members.items()}


def _inputs_of(blueprint: JsonMapping) -> Known:
    """The names that a run begins with."""
    known: Known = {INPUT: None}
    known.update(as_object(blueprint.get("inputs")))
    return known


@dataclass(frozen=True, slots=True)
class NameCheck:
    """Checks the templates of one blueprint."""

    findings: Findings
    agents: Mapping[str, JsonMapping]
    is_closed: bool
    """Whether the inputs are declared, so that a caller gives no other."""
    functions: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    written: Known = field(default_factory=dict[str, JsonMapping | None])
    """What any step writes."""
    rewritten: set[str] = field(default_factory=set[str])
    """The names that steps write with different schemas."""

    def inside(self, part: JsonMapping) -> NameCheck:
        """Return the check of the templates of an agent or a team, whose functions before the work may add any name."""
        if "before" in part:
            return replace(self, is_closed=False)
        return self

    # --- Conductors, pipelines and agents -----------------------------------------------------------------------------

    def check_team(self, blueprint: JsonMapping, known: Known) -> None:
        """Check the instructions of a blueprint and of its members, which are filled from the inputs of the run."""
        instructions = blueprint.get("instructions", "")
        check = self.inside(blueprint)
        check.template(instructions, "/instructions", known)
        for pointer, member in members_of(blueprint):
            check.inside(member).template(
                member.get("instructions", ""),
                f"{pointer}/instructions",
                {**known, **_inputs_of(member)},
            )

    # --- Workflows ----------------------------------------------------------------------------------------------------

    def check_sequence(
        self,
        steps: list[Any],
        pointer: str,
        known: Known,
        *,
        in_loop: bool,
    ) -> None:
        """Check a sequence of steps.

        Args:
            steps: The sequence.
            pointer: Its JSON pointer.
            known: The names that are filled before it; what it writes is added.
            in_loop: Whether it is inside a loop.
        """
        for number, entry in enumerate(steps):
            step = as_object(entry)
            step_pointer = f"{pointer}/{number}"
            if in_loop:
                self._check_iteration(step, step_pointer)
            kind = step_class(step)
            for key in kind.template_keys:
                self._check_data(step.get(key), f"{step_pointer}/{key}", known)
            kind.check_names(step, step_pointer, known, self)
            for place, inner in inner_sequences(step):
                inside = kind.names_inside(step, place, known, self)
                self.check_sequence(
                    inner,
                    step_pointer + place,
                    {**known, **inside},
                    in_loop=in_loop or kind.is_loop,
                )
            known.update(self.written_values([step]))

    def written_values(
        self, steps: Sequence[JsonMapping]
    ) -> Iterator[tuple[str, JsonMapping | None]]:
        """Yield the names that steps write, in their order, each with the schema of its value."""
        for write in writes_of(list(steps), ""):
            if write.kind == "edit":
                continue
            if not write.gathered:
                kind = step_class(write.step)
                yield write.name, kind.schema_of_value(write.step, self)
            # of the items of a map, only decisions that are a part of the context are known afterwards
            elif not write.is_label:
                yield write.name, _LIST if write.gathered == "collect" else None

    def schema_of_items(self, path: str, known: Known) -> JsonMapping | None:
        """Return the schema of the items of a list in the context; None if it is not known."""
        expression = path_expression(path)
        root = known.get(find_name(expression.name, known) or "")
        schema = root
        for key in expression.fields:
            schema = _schema_of_field(schema, key, root)
        schema = as_object(_resolved(schema, root))
        items = as_object(_resolved(as_object(schema.get("items")), root))
        if not items or root is None or _refers_outside_definitions(root):
            return None
        # by itself, it refers to the same definitions
        return {**items, "$defs": as_object(root.get("$defs"))}

    def in_context(self, known: Known) -> Known:
        """Return the known names that are in the context, and not only in templates inside a step."""
        inner_names = _inner_names()
        return {
            name: schema
            for name, schema in known.items()
            if name in self.written or name not in inner_names
        }

    def _check_iteration(self, step: JsonMapping, pointer: str) -> None:
        """Warn of a step inside a loop that hides the number of the iteration."""
        if ITERATION not in step_class(step).own_names(step):
            return
        problem = Problem(
            pointer,
            detail=f"The name '{ITERATION}' hides the number of the iteration from the templates of the loop.",
            suggestion="Choose another name if they need the number.",
        )
        self.findings.warnings.append(problem)

    # --- Templates ----------------------------------------------------------------------------------------------------

    def condition(self, reference: object, pointer: str, known: Known) -> None:
        """Check the templates in the arguments of a condition."""
        for place, template in conditions.templates(reference, pointer):
            self.template(template, place, known)
        for value, other, place in conditions.expected_values(
            reference, pointer
        ):
            self._check_expected(value, other, place, known)

    def _check_expected(
        self, value: object, other: object, pointer: str, known: Known
    ) -> None:
        """Warn of a comparison with what a value never is, because its schema lists all that it may be."""
        if len(self.findings.warnings) >= _MOST_WARNINGS:
            return
        expression = only_name(value) if isinstance(value, str) else None
        is_constant = _is_short(other) and not names(to_text(other))
        if expression is None or not is_constant:
            return
        name = find_name(expression.name, known) or ""
        if name in self.rewritten:
            return
        options = _options(known.get(name), expression.fields)
        if any(conditions.is_equal(other, option) for option in options):
            return
        if options:
            texts = [to_text(option) for option in options]
            problem = Problem(
                pointer,
                detail=f"'{value}' is never {short_repr(other)}.",
                suggestion=did_you_mean(
                    str(other),
                    texts,
                    otherwise=f"It is {' or '.join(texts[:12])}.",
                ),
            )
            self.findings.warnings.append(problem)

    def _check_data(self, value: object, pointer: str, known: Known) -> None:
        """Check the templates in JSON data."""
        for inner_pointer, template, _ in walk_json(value):
            self.template(template, pointer + inner_pointer, known)

    def template(
        self,
        template: object,
        pointer: str,
        known: Known,
        *,
        place: str = "",
    ) -> None:
        """Check the names of a template; `place` says where it is, if the pointer does not."""
        if not isinstance(template, str):
            return

        def has_fields(expression: Expression) -> bool:
            return _has_fields(known, expression)

        unfilled = dict(unfilled_values(template, known, has_fields))
        for text, meant in unfilled.items():
            problem = Problem(
                pointer,
                detail=f"Nothing fills '{{{text}}}'{place}: it is not a valid expression.",
                suggestion=f"Write '{{{meant.text}}}'.",
            )
            self.findings.problems.append(problem)
        for expression in expressions(template, known):
            if expression.text not in unfilled:
                shown = f"'{{{expression.text}}}'{place}"
                self.expression(expression, shown, pointer, known)

    def expression(
        self,
        expression: Expression,
        shown: str,
        pointer: str,
        known: Known,
    ) -> None:
        """Note why nothing can fill a name with fields, if that is so.

        Args:
            expression: The name with its fields.
            shown: The same as the blueprint has it, in quotation marks.
            pointer: The JSON pointer of the text that has it.
            known: The names that are filled there.
        """
        name = find_name(expression.name, known)
        schema = known.get(name or "")
        is_written = find_name(expression.name, self.written) is not None
        if expression.is_of_run:
            if name is not None or is_written:
                self.findings.problems.append(_run_problem(expression, pointer))
                return
            name = RUN
            schema = _OF_RUN
        if name is None:
            problem = self._missing_problem(expression, shown, pointer, known)
        else:
            problem = _field_problem(
                schema, expression.fields, shown=shown, pointer=pointer
            )
        if problem is not None:
            self.findings.problems.append(problem)

    def _missing_problem(
        self, expression: Expression, shown: str, pointer: str, known: Known
    ) -> Problem | None:
        name = expression.name
        if find_name(name, self.written) is not None:
            return Problem(
                pointer,
                detail=f"Nothing fills {shown} here: no step before it writes '{name}'.",
                suggestion="Move the step that writes it up.",
            )
        # brackets after an unknown name may be code
        is_closed = self.is_closed and not expression.is_indexed
        place = _inner_names().get(name)
        if is_closed and place:
            return Problem(
                pointer,
                detail=f"Nothing fills {shown} here: it is known {place} only.",
            )
        if is_closed:
            return Problem(
                pointer,
                detail=f"Nothing fills {shown}: it is no declared input, and no step writes it.",
                suggestion=_suggest(expression, known),
            )
        for other in sorted(known):
            if _is_misspelling(name, other):
                return Problem(
                    pointer,
                    detail=f"Nothing fills {shown}.",
                    suggestion=f"{suggest_name(expression, [other])} If it is an input, declare it in 'inputs'.",
                )
        return None


def _run_problem(expression: Expression, pointer: str) -> Problem:
    """Return the problem of a name that stands for the run, where a value has the same name."""
    own = f'["{RUN}"]' + expression.text.removeprefix(RUN)
    return Problem(
        pointer,
        detail=f"'{{{expression.text}}}' is of the run itself, and a value is called '{RUN}'.",
        suggestion=f"Write '{{{own}}}' for the value, or rename it.",
    )


def _suggest(expression: Expression, known: Known) -> str:
    if expression.name == RUN and expression.fields:
        return did_you_mean(expression.fields[0], RUN_FIELDS)
    return suggest_name(expression, known)


def _inner_names() -> Mapping[str, str]:
    """Return the names that only templates inside a step may use, each with where that is."""
    names: dict[str, str] = {}
    for kind in kinds():
        names.update(kind.inner_names)
    return names


def _has_fields(known: Known, expression: Expression) -> bool:
    """Whether the schema of a value names all fields of an expression."""
    root = known[find_name(expression.name, known) or ""]
    schema = root
    for key in expression.fields:
        schema = _schema_of_field(schema, key, root)
        if schema is None:
            return False
    return True


def _field_problem(
    root: JsonMapping | None,
    fields: Sequence[str],
    *,
    shown: str,
    pointer: str,
) -> Problem | None:
    """Why the value of a name certainly lacks a field; None if it may have it."""
    schema = root
    for key in fields:
        schema = as_object(_resolved(schema, root))
        if schema.get("type") in ("string", "number", "integer", "boolean"):
            return Problem(
                pointer,
                detail=f"Nothing fills {shown}: the value is a {schema['type']}, which has no fields.",
                suggestion="Only data has fields: declare it as an object, give the agent a 'response_schema', or let "
                "the function return data.",
            )
        if schema.get("type") == "array" and not is_index(key):
            return Problem(
                pointer,
                detail=f"Nothing fills {shown}: the value is a list, whose items have numbers.",
                suggestion="Items are counted from 0.",
            )
        properties = as_object(schema.get("properties"))
        if properties and _lacks(schema, key):
            return Problem(
                pointer,
                detail=f"Nothing fills {shown}: its schema has no field '{key}'.",
                suggestion=did_you_mean(key, properties),
            )
        schema = _schema_of_field(schema, key, root)
    return None


_OPEN = frozenset(
    {
        "patternProperties",
        "anyOf",
        "oneOf",
        "allOf",
        "if",
        "then",
        "else",
        "dependentSchemas",
        "items",
    }
)
"""Keywords beside which an object may have other fields than its `properties` name."""


def _lacks(schema: JsonMapping, key: str) -> bool:
    """Whether an object certainly lacks a field: it may have no others, or the name misspells that of one.

    Args:
        schema: Its schema, which allows other fields unless it says that it does not.
        key: The field.
    """
    properties = as_object(schema.get("properties"))
    if find_name(key, properties) is not None:
        return False
    if schema.keys() & _OPEN or schema.get("additionalProperties"):
        return False
    if schema.get("additionalProperties") is False:
        return True
    return most_similar(key, properties) is not None


def _schema_of_field(
    schema: JsonMapping | None, key: str, root: JsonMapping | None
) -> JsonMapping | None:
    """The schema of a field; None if it is not known."""
    own = as_object(_resolved(schema, root))
    if is_index(key) and "items" in own:
        return as_object(own["items"]) or None
    properties = as_object(own.get("properties"))
    return as_object(properties.get(find_name(key, properties) or key)) or None


def _options(root: JsonMapping | None, fields: Sequence[str]) -> list[Any]:
    """The values that a field may have; empty if they are not known."""
    schema = root
    for key in fields:
        schema = _schema_of_field(schema, key, root)
    own = as_object(_resolved(schema, root))
    if own.get("type") == "boolean":
        return [True, False]
    options = as_array(own.get("enum"))
    if len(options) > _MOST_OPTIONS or not all(map(_is_short, options)):
        return []
    return options


def _is_short(value: object) -> bool:
    """Whether a value is compared in no time: the blueprint may be a caller's."""
    if isinstance(value, str):
        return len(value) <= _LONGEST_OPTION
    return not isinstance(value, list | dict)


def _resolved(
    schema: JsonMapping | None, root: JsonMapping | None
) -> JsonMapping | bool | None:
    """A schema, or the one that it refers to."""
    if schema is None or root is None:
        return None
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return subschema(root, reference)
    return schema


def _refers_outside_definitions(schema: JsonMapping) -> bool:
    """Whether a schema refers to something else than its definitions, such as to itself."""
    return any(
        pointer.endswith("/$ref") and not str(value).startswith("#/$defs/")
        for pointer, value, _ in walk_json(schema)
    )


def _is_misspelling(name: str, other: str) -> bool:
    """Whether a name is certainly meant to be another one.

    That is: they differ in case or separators, two neighbouring letters are swapped, or a letter inside a long word is
    wrong, missing or added. Names that differ in a digit or at their end, such as `draft1` or `drafts`, are not.
    """
    first = _normalized(name)
    second = _normalized(other)
    if first == second:
        return True
    if first.endswith(_OUTPUT) and second.endswith(_OUTPUT):
        first = first.removesuffix(_OUTPUT)
        second = second.removesuffix(_OUTPUT)
    if _DIGIT.sub("", first) == _DIGIT.sub("", second):
        return False
    start = _common_length(first, second)
    rest = first[start:]
    other_rest = second[start:]
    if _begins_swapped(rest, other_rest):
        return len(first) > 3
    if len(second) < _LONG_WORD:
        return False
    is_inside = start > 0 and len(rest) > 1 and len(other_rest) > 1
    return is_inside and _differs_in_one_letter(rest, other_rest)


def _normalized(name: str) -> str:
    return normal_form(name).casefold().replace("-", "_")


def _common_length(first: str, second: str) -> int:
    """How many letters are equal at the start of both."""
    length = 0
    for letter, other in zip(first, second, strict=False):
        if letter != other:
            break
        length += 1
    return length


def _begins_swapped(rest: str, other: str) -> bool:
    """Whether two texts differ in the order of their first two letters only."""
    swapped = other[:2][::-1] + other[2:]
    return rest == swapped


def _differs_in_one_letter(rest: str, other: str) -> bool:
    """Whether two texts are equal after their first letter, which is wrong, missing or added in one of them."""
    tail = rest[1:]
    other_tail = other[1:]
    is_wrong = tail == other_tail
    is_added = tail == other
    is_missing = rest == other_tail
    return is_wrong or is_added or is_missing
