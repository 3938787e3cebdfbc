"""The names in the templates of a blueprint that nothing can fill.

If a component declares its inputs, each other name is a problem. If it does not, any name may be an input of the
caller, so only two kinds are problems: the output of a step that only comes later, and a name that misspells one that
is filled. A field is a problem if the schema of the value has no such field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podwright import conditions
from podwright.blueprints.outputs import DECIDING, writes_of
from podwright.blueprints.steps import inner_sequences
from podwright.blueprints.validation import kind_of
from podwright.components.base import Component
from podwright.components.frames import ERROR, ITERATION
from podwright.components.inputs import INPUT
from podwright.components.options import ParsedBlueprint
from podwright.errors import Problem
from podwright.json_data import (
    JsonMapping,
    as_array,
    as_object,
    json_pointer,
    walk_json,
)
from podwright.json_schema import subschema
from podwright.names import (
    Expression,
    find_name,
    normal_form,
    path_expression,
)
from podwright.templates import (
    expressions,
    is_index,
    suggest_name,
    unfilled_values,
)
from podwright.text import did_you_mean, most_similar

_Step = Mapping[str, Any]
_Known = dict[str, JsonMapping | None]
"""The names that are filled at some place, each with the JSON Schema of its value; None if that is not known."""

_TEXT: JsonMapping = {"type": "string"}
_LIST: JsonMapping = {"type": "array"}
_ERROR_SCHEMA: JsonMapping = {
    "type": "object",
    "additionalProperties": False,
    "properties": dict.fromkeys(("code", "message", "component"), _TEXT),
}
_DECISION_SCHEMA: JsonMapping = {
    "type": "object",
    "additionalProperties": False,
    "properties": dict.fromkeys(("decision", "comment"), _TEXT),
}
_WHERE_KNOWN = {ITERATION: "inside a loop", ERROR: "in 'catch'"}
_OUTPUT = "_output"
_DIGIT = re.compile(r"\d")
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
    blueprint: JsonMapping, agents: Mapping[str, JsonMapping] | None = None
) -> Findings:
    """The names in the templates of a valid blueprint that nothing can fill.

    Args:
        blueprint: A blueprint of any kind.
        agents: The blueprints of the agents that it names, as far as they are known.
    """
    findings = Findings()
    known = _inputs_of(blueprint)
    is_closed = bool(blueprint.get("inputs"))
    if kind_of(blueprint) == "workflow":
        steps = as_array(blueprint.get("steps"))
        check = _NameCheck(
            findings=findings,
            agents=agents or {},
            written=dict(_written_values(steps, agents or {})),
            is_closed=is_closed,
        )
        check.check_sequence(steps, "/steps", known, in_loop=False)
        return findings
    check = _NameCheck(
        findings=findings, agents={}, written={}, is_closed=is_closed
    )
    check.check_team(blueprint, known)
    return findings


def name_problems(
    parsed: ParsedBlueprint, agents: Mapping[str, Component] | None = None
) -> list[Problem]:
    """The problems that `check_names` finds in a parsed blueprint; none if it has others already.

    Args:
        parsed: The blueprint.
        agents: The agents that it names.
    """
    if parsed.problems:
        return []
    blueprints = {
        name: agent.to_blueprint() for name, agent in (agents or {}).items()
    }
    return check_names(parsed.data, blueprints).problems


def blueprints_of(component: Component | None) -> dict[str, JsonMapping]:
    """The blueprints of the members of a component, by name."""
    if component is None:
        return {}
    members = component.members()
    return {name: member.to_blueprint() for name, member in members.items()}


def _inputs_of(blueprint: JsonMapping) -> _Known:
    """The names that a run begins with."""
    known: _Known = {INPUT: None}
    known.update(as_object(blueprint.get("inputs")))
    return known


def _written_values(
    steps: list[Any], agents: Mapping[str, JsonMapping]
) -> Iterator[tuple[str, JsonMapping | None]]:
    """The names that steps write, in their order, each with the schema of its value.

    Args:
        steps: The steps.
        agents: The blueprints of the agents that they name.
    """
    for write in writes_of(steps, ""):
        if write.kind == "edit":
            continue
        if write.gathered:
            decides = any(key in write.step for key in DECIDING)
            # of the items of a map, only decisions that are a part of the context are known afterwards
            if write.kind == "output" or decides:
                yield write.name, _LIST if write.gathered == "collect" else None
        elif write.kind == "decision":
            yield write.name, _DECISION_SCHEMA
        elif write.step.get("type") == "agent_step":
            yield write.name, _schema_of_answer(write.step, agents)
        else:
            yield write.name, None


def _schema_of_answer(
    step: _Step, agents: Mapping[str, JsonMapping]
) -> JsonMapping | None:
    """The schema of what an agent step writes; None if it is not known."""
    own = step.get("response_schema")
    if own is not None:
        return as_object(own)
    agent = agents.get(str(step.get("agent")), {})
    if "instructions" not in agent:
        return None
    config = as_object(agent.get("config"))
    return config.get("response_schema", _TEXT)


@dataclass(frozen=True, slots=True)
class _NameCheck:
    """Checks the templates of one blueprint."""

    findings: Findings
    agents: Mapping[str, JsonMapping]
    written: _Known
    """What any step writes."""
    is_closed: bool
    """Whether the inputs are declared, so that a caller gives no other."""

    # --- Conductors, pipelines and agents -----------------------------------------------------------------------------

    def check_team(self, blueprint: JsonMapping, known: _Known) -> None:
        """Check the instructions of a blueprint and of its members, which are filled from the inputs of the run."""
        instructions = blueprint.get("instructions", "")
        self._check_template(instructions, "/instructions", known)
        for key in ("skills", "steps"):
            members = as_array(blueprint.get(key))
            for number, entry in enumerate(members):
                member = as_object(entry)
                self._check_template(
                    member.get("instructions", ""),
                    f"/{key}/{number}/instructions",
                    {**known, **_inputs_of(member)},
                )

    # --- Workflows ----------------------------------------------------------------------------------------------------

    def check_sequence(
        self,
        steps: list[Any],
        pointer: str,
        known: _Known,
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
            self._check_step(step, step_pointer, known)
            is_loop = step.get("type") == "loop_step"
            for inner_pointer, inner in inner_sequences(step):
                self.check_sequence(
                    inner,
                    step_pointer + inner_pointer,
                    self._known_inside(step, inner_pointer, known),
                    in_loop=in_loop or is_loop,
                )
            known.update(_written_values([step], self.agents))

    def _known_inside(
        self, step: _Step, sequence: str, known: _Known
    ) -> _Known:
        """The names that are filled before the steps inside a step.

        Args:
            step: The step.
            sequence: The JSON pointer of the inner sequence from there.
            known: The names that are filled before the step.
        """
        inside = dict(known)
        match step.get("type"):
            case "map_step":
                inside[str(step.get("as"))] = _item_schema(step, known)
            case "loop_step":
                inside.setdefault(ITERATION, None)
                # an iteration reads what the one before has written
                inside.update(_written_values([step], self.agents))
            case "approval_step":
                inside[str(step.get("name"))] = _DECISION_SCHEMA
            case "try_step" if sequence == "/catch":
                inside[ERROR] = _ERROR_SCHEMA
            case "workflow_step":
                workflow = as_object(step.get("workflow"))
                inside.update(as_object(workflow.get("inputs")))
            case _:
                pass
        return inside

    def _check_iteration(self, step: _Step, pointer: str) -> None:
        """Warn of a step inside a loop that hides the number of the iteration."""
        named = [step.get("output"), step.get("as")]
        if step.get("type") == "approval_step":
            named.append(step.get("name"))
        if ITERATION not in named:
            return
        problem = Problem(
            pointer,
            detail=f"The name '{ITERATION}' hides the number of the iteration from the templates of the loop.",
            suggestion="Choose another name if they need the number.",
        )
        self.findings.warnings.append(problem)

    def _check_step(self, step: _Step, pointer: str, known: _Known) -> None:
        """Check a step without the steps inside it."""
        match step.get("type"):
            case "agent_step":
                self._check_agent(step, pointer, known)
            case "function_step":
                self._check_data(
                    step.get("arguments"), f"{pointer}/arguments", known
                )
            case "approval_step":
                message = step.get("message")
                self._check_template(message, f"{pointer}/message", known)
                own = {
                    name: schema
                    for name, schema in known.items()
                    if name in self.written or name not in (ITERATION, ERROR)
                }
                for name in as_object(step.get("edit")):
                    place = f"{pointer}/edit{json_pointer(name)}"
                    self._check_expression(
                        Expression(name), f"'{name}'", place, own
                    )
            case "condition_step":
                condition = step.get("condition")
                self._check_condition(condition, f"{pointer}/condition", known)
            case "map_step":
                path = path_expression(str(step.get("over")))
                shown = f"'{path.text}'"
                self._check_expression(path, shown, f"{pointer}/over", known)
            case "loop_step":
                until = step.get("until")
                inside = self._known_inside(step, "/steps", known)
                self._check_condition(until, f"{pointer}/until", inside)
            case _:
                pass

    def _check_agent(self, step: _Step, pointer: str, known: _Known) -> None:
        given = step.get("input")
        self._check_data(given, f"{pointer}/input", known)
        agent = self.agents.get(str(step.get("agent")), {})
        declared = as_object(agent.get("inputs"))
        named = as_object(given)
        for name in named:
            is_known = name == INPUT or find_name(name, declared) is not None
            if declared and not is_known:
                problem = Problem(
                    f"{pointer}/input{json_pointer(name)}",
                    detail=f"The agent '{step.get('agent')}' has no input '{name}'.",
                    suggestion=did_you_mean(name, declared),
                )
                self.findings.problems.append(problem)
        self._check_template(
            agent.get("instructions", ""),
            f"{pointer}/agent",
            {**known, **declared, **dict.fromkeys(named)},
            place=f" in the instructions of '{step.get('agent')}'",
        )

    # --- Templates ----------------------------------------------------------------------------------------------------

    def _check_condition(
        self, reference: object, pointer: str, known: _Known
    ) -> None:
        for template_pointer, template in conditions.templates(
            reference, pointer
        ):
            self._check_template(template, template_pointer, known)

    def _check_data(self, value: object, pointer: str, known: _Known) -> None:
        """Check the templates in JSON data."""
        for inner_pointer, template, _ in walk_json(value):
            self._check_template(template, pointer + inner_pointer, known)

    def _check_template(
        self,
        template: object,
        pointer: str,
        known: _Known,
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
                self._check_expression(expression, shown, pointer, known)

    def _check_expression(
        self,
        expression: Expression,
        shown: str,
        pointer: str,
        known: _Known,
    ) -> None:
        """Note why nothing can fill a name with fields, if that is so.

        Args:
            expression: The name with its fields.
            shown: The same as the blueprint has it, in quotation marks.
            pointer: The JSON pointer of the text that has it.
            known: The names that are filled there.
        """
        name = find_name(expression.name, known)
        if name is None:
            problem = self._missing_problem(expression, shown, pointer, known)
        else:
            problem = _field_problem(
                known[name], expression.fields, shown=shown, pointer=pointer
            )
        if problem is not None:
            self.findings.problems.append(problem)

    def _missing_problem(
        self, expression: Expression, shown: str, pointer: str, known: _Known
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
        if is_closed and name in _WHERE_KNOWN:
            return Problem(
                pointer,
                detail=f"Nothing fills {shown} here: it is known {_WHERE_KNOWN[name]} only.",
            )
        if is_closed:
            return Problem(
                pointer,
                detail=f"Nothing fills {shown}: it is no declared input, and no step writes it.",
                suggestion=suggest_name(expression, known),
            )
        for other in sorted(known):
            if _is_misspelling(name, other):
                return Problem(
                    pointer,
                    detail=f"Nothing fills {shown}.",
                    suggestion=f"{suggest_name(expression, [other])} If it is an input, declare it in 'inputs'.",
                )
        return None


def _item_schema(step: _Step, known: _Known) -> JsonMapping | None:
    """The schema of the items of a map; None if it is not known."""
    path = path_expression(str(step.get("over")))
    root = known.get(find_name(path.name, known) or "")
    schema = root
    for key in path.fields:
        schema = _schema_of_field(schema, key, root)
    items = as_object(as_object(schema).get("items"))
    if not items or "$ref" in items:
        return None
    return items


def _has_fields(known: _Known, expression: Expression) -> bool:
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
                suggestion="Only data has fields: declare it as an object, or give the agent a 'response_schema'.",
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
