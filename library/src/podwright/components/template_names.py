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
from podwright.blueprints.validation import kind_of
from podwright.components.base import Component, ModelComponent
from podwright.components.step_runner import ITERATION
from podwright.errors import Problem
from podwright.json_data import as_array, as_object
from podwright.templates import missing_names, suggest_name

_INPUT = frozenset({"input"})
_OUTPUT = "_output"
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
    match kind_of(blueprint):
        case "workflow":
            steps = as_array(blueprint.get("steps"))
            names_of_steps = _StepNames(
                findings, instructions or {}, set(_written(steps))
            )
            names_of_steps.check(steps, "/steps", set(_INPUT), in_loop=False)
        case "conductor":
            findings.warnings += _member_warnings(
                blueprint, "skills", 0, "a skill is given its task only"
            )
        case "pipeline":
            reason = "it is given the output of the step before only"
            findings.warnings += _member_warnings(blueprint, "steps", 1, reason)
        case "agent":
            pass
    return findings


def instructions_of(component: Component | None) -> dict[str, str]:
    """The instructions of the members of a component that have some, by name."""
    if component is None:
        return {}
    members = component.members().items()
    return {
        name: member.instructions
        for name, member in members
        if isinstance(member, ModelComponent)
    }


def _member_warnings(
    blueprint: Mapping[str, Any], key: str, first: int, reason: str
) -> Iterator[Problem]:
    for number, member in enumerate(as_array(blueprint.get(key))):
        if number >= first:
            at = f"/{key}/{number}/instructions"
            yield from _warnings(
                as_object(member).get("instructions", ""), at, _INPUT, reason
            )


def _warnings(
    template: str, at: str, known: frozenset[str], reason: str
) -> Iterator[Problem]:
    """A warning for each name in instructions that is filled from these names only."""
    for name in missing_names(template, known):
        detail = f"Nothing fills '{{{name}}}' in the instructions, because {reason}: it stays as text."
        yield Problem(at, detail, suggest_name(name, known))


def _written(steps: list[Any]) -> Iterator[str]:
    """The names that steps write, in their order."""
    for entry in steps:
        step = as_object(entry)
        if step.get("type") == "agent_step":
            yield _output_of(step)
        for _, inner in _inner_sequences(step):
            yield from _written(inner)


def _output_of(step: Mapping[str, Any]) -> str:
    return step.get("output") or f"{step.get('agent')}_output"


def _inner_sequences(step: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """The sequences of steps inside a step, with their JSON pointers from there."""
    for key in ("then", "else", "steps"):
        if key in step:
            yield f"/{key}", as_array(step[key])
    for number, branch in enumerate(as_array(step.get("branches"))):
        yield f"/branches/{number}", as_array(branch)
    if "workflow" in step:
        yield "/workflow/steps", as_array(as_object(step["workflow"]).get("steps"))


@dataclass(frozen=True, slots=True)
class _StepNames:
    """Checks the steps of a workflow."""

    findings: Findings
    instructions: Mapping[str, str]
    written: set[str]
    """What any step writes."""

    def check(
        self, steps: list[Any], at: str, known: set[str], *, in_loop: bool
    ) -> None:
        """Check a sequence of steps.

        Args:
            steps: The sequence.
            at: Its JSON pointer.
            known: The names that are filled before it; what it writes is added.
            in_loop: Whether it is inside a loop.
        """
        for number, entry in enumerate(steps):
            step = as_object(entry)
            here = f"{at}/{number}"
            inside = set(known)
            if in_loop and ITERATION in (step.get("output"), step.get("as")):
                detail = f"The name '{ITERATION}' hides the number of the iteration from the templates of the loop."
                self.findings.warnings.append(
                    Problem(
                        here, detail, "Choose another name if they need the number."
                    )
                )
            match step.get("type"):
                case "agent_step":
                    self._check_agent(step, here, known)
                    known.add(_output_of(step))
                case "approval_step":
                    self._check_template(step.get("message"), f"{here}/message", known)
                case "condition_step":
                    self._check_condition(
                        step.get("condition"), f"{here}/condition", known
                    )
                case "map_step":
                    self._check_name(
                        str(step.get("over")), f"{here}/over", known, is_template=False
                    )
                    inside.add(str(step.get("as")))
                case "loop_step":
                    inside |= {ITERATION, *_written(as_array(step.get("steps")))}
                    self._check_condition(step.get("until"), f"{here}/until", inside)
                case _:
                    pass
            for pointer, inner in _inner_sequences(step):
                is_loop = step.get("type") == "loop_step"
                self.check(
                    inner, here + pointer, set(inside), in_loop=in_loop or is_loop
                )
                known.update(_written(inner))

    def _check_agent(self, step: Mapping[str, Any], at: str, known: set[str]) -> None:
        self._check_template(step.get("input"), f"{at}/input", known)
        instructions = self.instructions.get(str(step.get("agent")), "")
        if "input" in step:
            filled = _INPUT | ({ITERATION} & known)
            reason = "this step gives the agent its 'input' only"
            self.findings.warnings += _warnings(
                instructions, f"{at}/agent", frozenset(filled), reason
            )
            return
        for name in missing_names(instructions, known):
            if problem := self._problem(name, f"{at}/agent", known, is_template=True):
                self.findings.warnings.append(problem)

    def _check_condition(self, reference: object, at: str, known: set[str]) -> None:
        for pointer, template in conditions.templates(reference, at):
            self._check_template(template, pointer, known)

    def _check_template(self, template: object, at: str, known: set[str]) -> None:
        for name in missing_names(template, known) if isinstance(template, str) else ():
            self._check_name(name, at, known, is_template=True)

    def _check_name(
        self, name: str, at: str, known: set[str], *, is_template: bool
    ) -> None:
        if problem := self._problem(name, at, known, is_template=is_template):
            self.findings.problems.append(problem)

    def _problem(
        self, name: str, at: str, known: set[str], *, is_template: bool
    ) -> Problem | None:
        """Why nothing can fill a name; None if something may."""
        shown = f"{{{name}}}" if is_template else name
        if name in known:
            return None
        if name in self.written:
            return Problem(
                at,
                f"Nothing fills '{shown}' here: only a later step writes '{name}'.",
                "Move that step up.",
            )
        if meant := next(
            (other for other in sorted(known) if _is_misspelt(name, other)), None
        ):
            return Problem(at, f"Nothing fills '{shown}'.", suggest_name(name, [meant]))
        return None


def _is_misspelt(name: str, other: str) -> bool:
    """Whether a name is certainly meant to be another one.

    That is: they differ in case or separators, two neighbouring letters are swapped, or a letter inside a long word is
    wrong, missing or added. Names that differ in a digit or at their end, such as `draft1` or `drafts`, are not.
    """
    first = name.casefold().replace("-", "_")
    second = other.casefold().replace("-", "_")
    if first == second:
        return True
    if first.endswith(_OUTPUT) and second.endswith(_OUTPUT):
        first = first.removesuffix(_OUTPUT)
        second = second.removesuffix(_OUTPUT)
    if re.sub(r"\d", "", first) == re.sub(r"\d", "", second):
        return False
    start = 0
    while start < min(len(first), len(second)) and first[start] == second[start]:
        start += 1
    rest = first[start:]
    other_rest = second[start:]
    is_swapped = rest[:2] == other_rest[:2][::-1] and rest[2:] == other_rest[2:]
    if is_swapped:
        return len(first) > 3
    is_missing_or_added = rest[1:] == other_rest or rest == other_rest[1:]
    is_wrong = rest[1:] == other_rest[1:]
    is_inside = start > 0 and bool(rest[1:]) and bool(other_rest[1:])
    return len(second) >= _LONG_WORD and is_inside and (is_missing_or_added or is_wrong)
