"""Reading the cases of a suite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from podwright.blueprints.files import from_json
from podwright.blueprints.inputs import DeclaredInputs
from podwright.blueprints.validation import json_problems
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
)
from podwright.data.names import INPUT
from podwright.data.text import did_you_mean, short_repr
from podwright.errors import (
    BlueprintValidationError,
    InputsError,
    MessagesError,
    Problem,
)
from podwright.evaluation.suite_reading.source import Origin, SuiteSource
from podwright.evaluation.suite_schema import case_problems
from podwright.messages.approvals import DEFAULT_OPTIONS
from podwright.messages.conversation import parse_messages


@dataclass(frozen=True, slots=True)
class ReadCase:
    """A case whose keys and types are right."""

    data: JsonObject
    origin: Origin

    def of(self, key: str) -> Sequence[JsonMapping]:
        """Return one of its lists, such as `checks`; an empty one if it has none."""
        return as_array(self.data.get(key))


def read_cases(
    entries: Sequence[JsonMapping], source: SuiteSource
) -> list[ReadCase]:
    """Return the cases of a suite and of the files of cases that it names, each name once.

    Args:
        entries: The suite's `cases`.
        source: The suite, to which problems are added.
    """
    cases: dict[str, ReadCase] = {}
    for case in _all_cases(entries, source):
        name = case.data["name"]
        if name not in cases:
            cases[name] = case
            continue
        problem = Problem(
            "/name",
            detail=f"Two cases are called {short_repr(name)}.",
            suggestion="Names tell cases apart in reports: rename one of them.",
        )
        source.problems.append(case.origin.locate(problem))
    if not cases and not source.problems:
        source.add("/cases", "There are no cases.")
    return list(cases.values())


def _all_cases(
    entries: Sequence[JsonMapping], source: SuiteSource
) -> Iterator[ReadCase]:
    for number, entry in enumerate(entries):
        at = f"/cases/{number}"
        if "name" in entry:
            yield ReadCase(dict(entry), Origin(at))
            continue
        file = entry["file"]
        text = source.text(file, f"{at}/file") or ""
        for line_number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                place = f"{file}, line {line_number}"
                origin = Origin(f"{at}/file", place)
                yield from _case_of_line(line, origin, source)


def _case_of_line(
    line: str, origin: Origin, source: SuiteSource
) -> Iterator[ReadCase]:
    try:
        data = from_json(line)
    except BlueprintValidationError as error:
        source.problems += map(origin.locate, error.problems)
        return
    found = list(json_problems(data)) or case_problems(data)
    source.problems += map(origin.locate, found)
    if not found:
        yield ReadCase(as_object(data), origin)


def check_inputs(cases: Sequence[ReadCase], source: SuiteSource) -> None:
    """Add the problems of inputs that do not fit the declared ones, and of earlier turns."""
    blueprint = source.parts.blueprint
    schemas = as_object(blueprint.get("inputs"))
    declared = DeclaredInputs(blueprint["name"], schemas)
    for case in cases:
        found = [
            *_input_problems(case.data["inputs"], declared),
            *_message_problems(case.data.get("messages", [])),
        ]
        source.problems += map(case.origin.locate, found)


def _input_problems(inputs: Any, declared: DeclaredInputs) -> list[Problem]:
    named = {INPUT: inputs} if isinstance(inputs, str) else inputs
    try:
        declared.complete(named)
    except InputsError as error:
        return _below("/inputs", error.problems)
    return []


def _message_problems(messages: object) -> list[Problem]:
    try:
        parse_messages(messages)
    except MessagesError as error:
        return _below("/messages", error.problems)
    return []


def _below(at: str, problems: Sequence[Problem]) -> list[Problem]:
    origin = Origin(at)
    return [origin.locate(problem) for problem in problems]


def check_decisions(
    decisions: Sequence[JsonMapping],
    cases: Sequence[ReadCase],
    source: SuiteSource,
) -> None:
    """Add the problems of decisions, of the suite and of its cases, that no question can have."""
    of_cases = [(case.origin, case.of("decisions")) for case in cases]
    options = sorted({*DEFAULT_OPTIONS, *source.parts.approval_options})
    for origin, own in [(Origin(), decisions), *of_cases]:
        for number, each in enumerate(own):
            decision = each["decision"]
            if decision in options:
                continue
            problem = Problem(
                f"/decisions/{number}/decision",
                detail=f"Unknown decision {short_repr(decision)}.",
                suggestion=did_you_mean(decision, options),
            )
            source.problems.append(origin.locate(problem))
