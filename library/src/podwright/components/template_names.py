"""The names in the templates of a blueprint that nothing can fill.

Any name may be an input of the caller, so only two kinds are problems: the output of a step that only comes later, and
a name that misspells one that is filled. Where a component gets a single text, as the members of a conductor do, no
other name is ever filled; that is a warning, because instructions keep their text then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from podwright import conditions
from podwright.blueprints.steps import inner_sequences
from podwright.blueprints.validation import kind_of
from podwright.components.base import Component, ModelComponent
from podwright.components.step_runner import ITERATION
from podwright.errors import Problem
from podwright.json_data import as_array, as_object
from podwright.templates import missing_names, suggest_name

_Step = Mapping[str, Any]

_INPUT = frozenset({"input"})
_OUTPUT = "_output"
_DIGIT = re.compile(r"\d")
_LONG_WORD = 6
"""Letters of a word in which one wrong letter does not make another word."""


@dataclass(slots=True)
class Findings:
    """What was found in the templates of a blueprint."""

    problems: list[Problem] = field(default_factory=list[Problem])
    """Names without which a step fails, or asks a person with the bare name."""
    warnings: list[Problem] = field(default_factory=list[Problem])
    """Names that stay as text in instructions."""


def check_names(
    blueprint: Mapping[str, Any], instructions: Mapping[str, str] | None = None
) -> Findings:
    """The names in the templates of a valid blueprint that nothing can fill.

    Args:
        blueprint: A blueprint of any kind.
        instructions: The instructions of the agents of a workflow, by the names of the agents.
    """
    findings = Findings()
    kind = kind_of(blueprint)
    if kind == "workflow":
        steps = as_array(blueprint.get("steps"))
        checks = _StepChecks(
            findings=findings,
            instructions=instructions or {},
            written=set(_written_names(steps)),
        )
        checks.check_sequence(steps, "/steps", set(_INPUT), in_loop=False)
    elif kind == "conductor":
        skills = as_array(blueprint.get("skills"))
        findings.warnings += _member_warnings(
            skills,
            pointer="/skills",
            first=0,
            reason="a skill is given its task only",
        )
    elif kind == "pipeline":
        agents = as_array(blueprint.get("steps"))
        findings.warnings += _member_warnings(
            agents,
            pointer="/steps",
            first=1,
            reason="it is given the output of the step before only",
        )
    return findings


def instructions_of(component: Component | None) -> dict[str, str]:
    """The instructions of the members of a component that have some, by name."""
    if component is None:
        return {}
    members = component.members()
    return {
        name: member.instructions
        for name, member in members.items()
        if isinstance(member, ModelComponent)
    }


def _member_warnings(
    members: list[Any], *, pointer: str, first: int, reason: str
) -> Iterator[Problem]:
    """The warnings for the members from the first one on that is given a single text."""
    for number, member in enumerate(members):
        if number < first:
            continue
        instructions = as_object(member).get("instructions", "")
        yield from _warnings(
            instructions,
            pointer=f"{pointer}/{number}/instructions",
            known=_INPUT,
            reason=reason,
        )


def _warnings(
    template: str,
    *,
    pointer: str,
    known: frozenset[str],
    reason: str,
) -> Iterator[Problem]:
    """A warning for each name in instructions that is filled from these names only."""
    for name in missing_names(template, known):
        yield Problem(
            pointer,
            detail=f"Nothing fills '{{{name}}}' in the instructions, because {reason}: it stays as text.",
            suggestion=suggest_name(name, known),
        )


def _written_names(steps: list[Any]) -> Iterator[str]:
    """The names that steps write, in their order."""
    for entry in steps:
        step = as_object(entry)
        if step.get("type") == "agent_step":
            yield _output_of(step)
        for _, inner in inner_sequences(step):
            yield from _written_names(inner)


def _output_of(step: _Step) -> str:
    """The name that an agent step writes."""
    output = step.get("output")
    if output:
        return output
    return f"{step.get('agent')}_output"


def _names_inside(step: _Step, known: set[str]) -> set[str]:
    """The names that are filled before the steps inside a step."""
    names = set(known)
    step_type = step.get("type")
    if step_type == "map_step":
        names.add(str(step.get("as")))
    elif step_type == "loop_step":
        names.add(ITERATION)
        # an iteration reads what the one before has written
        names.update(_written_names([step]))
    return names


@dataclass(frozen=True, slots=True)
class _StepChecks:
    """Checks the steps of a workflow."""

    findings: Findings
    instructions: Mapping[str, str]
    written: set[str]
    """What any step writes."""

    def check_sequence(
        self,
        steps: list[Any],
        pointer: str,
        known: set[str],
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
            inside = _names_inside(step, known)
            for inner_pointer, inner in inner_sequences(step):
                self.check_sequence(
                    inner,
                    step_pointer + inner_pointer,
                    set(inside),
                    in_loop=in_loop or is_loop,
                )
            known.update(_written_names([step]))

    def _check_iteration(self, step: _Step, pointer: str) -> None:
        """Warn of a step inside a loop that hides the number of the iteration."""
        named = (step.get("output"), step.get("as"))
        if ITERATION not in named:
            return
        problem = Problem(
            pointer,
            detail=f"The name '{ITERATION}' hides the number of the iteration from the templates of the loop.",
            suggestion="Choose another name if they need the number.",
        )
        self.findings.warnings.append(problem)

    def _check_step(self, step: _Step, pointer: str, known: set[str]) -> None:
        """Check a step without the steps inside it."""
        match step.get("type"):
            case "agent_step":
                self._check_agent(step, pointer, known)
            case "approval_step":
                message = step.get("message")
                self._check_template(message, f"{pointer}/message", known)
            case "condition_step":
                condition = step.get("condition")
                self._check_condition(condition, f"{pointer}/condition", known)
            case "map_step":
                name = str(step.get("over"))
                problem = self._problem(
                    name, name, f"{pointer}/over", known=known
                )
                if problem:
                    self.findings.problems.append(problem)
            case "loop_step":
                until = step.get("until")
                inside = _names_inside(step, known)
                self._check_condition(until, f"{pointer}/until", inside)
            case _:
                pass

    def _check_agent(self, step: _Step, pointer: str, known: set[str]) -> None:
        self._check_template(step.get("input"), f"{pointer}/input", known)
        agent = str(step.get("agent"))
        instructions = self.instructions.get(agent, "")
        agent_pointer = f"{pointer}/agent"
        if "input" not in step:
            warnings = self._template_problems(
                instructions, agent_pointer, known
            )
        else:
            warnings = _warnings(
                instructions,
                pointer=agent_pointer,
                known=_INPUT | ({ITERATION} & known),
                reason="this step gives the agent its 'input' only",
            )
        self.findings.warnings.extend(warnings)

    def _check_condition(
        self, reference: object, pointer: str, known: set[str]
    ) -> None:
        for template_pointer, template in conditions.templates(
            reference, pointer
        ):
            self._check_template(template, template_pointer, known)

    def _check_template(
        self, template: object, pointer: str, known: set[str]
    ) -> None:
        if isinstance(template, str):
            problems = self._template_problems(template, pointer, known)
            self.findings.problems.extend(problems)

    def _template_problems(
        self, template: str, pointer: str, known: set[str]
    ) -> Iterator[Problem]:
        for name in missing_names(template, known):
            shown = f"{{{name}}}"
            problem = self._problem(name, shown, pointer, known=known)
            if problem:
                yield problem

    def _problem(
        self,
        name: str,
        shown: str,
        pointer: str,
        *,
        known: set[str],
    ) -> Problem | None:
        """Why nothing can fill a name; None if something may.

        Args:
            name: The name.
            shown: The name as the blueprint has it.
            pointer: The JSON pointer of the text that has it.
            known: The names that are filled there.
        """
        if name in known:
            return None
        if name in self.written:
            return Problem(
                pointer,
                detail=f"Nothing fills '{shown}' here: only a later step writes '{name}'.",
                suggestion="Move that step up.",
            )
        for other in sorted(known):
            if _is_misspelling(name, other):
                return Problem(
                    pointer,
                    detail=f"Nothing fills '{shown}'.",
                    suggestion=suggest_name(name, [other]),
                )
        return None


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
    return name.casefold().replace("-", "_")


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
