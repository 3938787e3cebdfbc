"""Reading what checks need: their functions and judges, and the fakes; and checking the checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from podwright import blueprints
from podwright.blueprints.named_parts import names_in_condition
from podwright.conditions import BUILT_IN, Conditions
from podwright.data.json_data import JsonMapping, as_object, json_pointer
from podwright.data.text import did_you_mean, short_repr
from podwright.errors import PodwrightError
from podwright.evaluation.checks_form import (
    COMPARISONS,
    CheckForm,
    readable_values,
)
from podwright.evaluation.suite_reading.cases import ReadCase
from podwright.evaluation.suite_reading.source import Origin, SuiteSource

CHECKS_FILE = "checks.py"
"""The file beside a suite with functions for checks."""
_JUDGES = "judges"


def read_fakes(fakes: JsonMapping, source: SuiteSource) -> dict[str, Any]:
    """Return the values and functions in place of tools and functions, by name.

    Args:
        fakes: The suite's `fakes`.
        source: The suite, to which problems are added.
    """
    known = source.parts.callable_names
    found: dict[str, Any] = {}
    for name, value in fakes.items():
        at = f"/fakes{json_pointer(name)}"
        if known is not None and name not in known:
            source.add(
                at,
                f"There is no tool and no function {short_repr(name)} to fake.",
                did_you_mean(name, sorted(known)),
            )
            continue
        file = as_object(value).get("from")
        if isinstance(file, str) and len(value) == 1:
            function = _fake_of_file(name, file, f"{at}/from", source)
            if function is not None:
                found[name] = function
        else:
            found[name] = value
    return found


def _fake_of_file(
    name: str, file: str, at: str, source: SuiteSource
) -> Callable[..., Any] | None:
    if source.text(file, at) is None:
        return None
    before = len(source.problems)
    functions = source.functions(file, [name], at)
    if name not in functions and len(source.problems) == before:
        detail = f"'{file}' has no function '{name}'."
        source.add(at, detail, did_you_mean(name, functions))
    return functions.get(name)


def judges_in(folder: Path) -> dict[str, Path]:
    """Return the blueprint files of the judges beside a suite, by name."""
    files = sorted((folder / _JUDGES).glob("[!.]*"))
    return {
        file.stem: file
        for file in files
        if file.suffix in blueprints.SUFFIXES and file.is_file()
    }


class SuiteChecks:
    """The checks of a suite and of its cases.

    Args:
        own: The suite's `checks`.
        cases: The cases.
        source: The suite, to which problems are added.
    """

    def __init__(
        self,
        own: Sequence[JsonMapping],
        cases: Sequence[ReadCase],
        source: SuiteSource,
    ) -> None:
        self._source = source
        self._cases = cases
        self._checks: list[tuple[JsonMapping, Origin, str]] = []
        """Each check with the origin of what has it, and its JSON pointer there."""
        of_cases = [(case.origin, case.of("checks")) for case in cases]
        for origin, checks in [(Origin(), own), *of_cases]:
            for number, check in enumerate(checks):
                self._checks.append((check, origin, f"/checks/{number}"))

    def conditions(self) -> dict[str, Callable[..., Any]]:
        """Return the functions of `checks.py` that the checks name, or that they misspell."""
        names: dict[str, None] = {}
        for check, _, _ in self._checks:
            if "name" in check:
                names |= dict.fromkeys(names_in_condition(check))
        own = [name for name in names if name not in (*BUILT_IN, *COMPARISONS)]
        return self._source.functions(CHECKS_FILE, own, "/checks")

    def check(self, conditions: Conditions, judges: Mapping[str, Path]) -> None:
        """Add the problems of all checks.

        Args:
            conditions: The functions of `checks.py`.
            judges: The blueprint files of the judges.
        """
        inputs: dict[str, None] = {}
        for case in self._cases:
            inputs |= dict.fromkeys(as_object(case.data["inputs"]))
        parts = self._source.parts
        form = CheckForm(
            readable_values(parts.blueprint, parts.agents, [*inputs]),
            is_closed=parts.is_closed,
            conditions=conditions,
            judges=self._judge_blueprints(judges),
            callable_names=parts.callable_names,
        )
        for check, origin, at in self._checks:
            found = form.problems(check, at)
            self._source.problems += map(origin.locate, found)

    def _judge_blueprints(
        self, files: Mapping[str, Path]
    ) -> dict[str, JsonMapping]:
        """Return the blueprints of the judges that checks name."""
        judges: dict[str, JsonMapping] = {}
        named = {
            check.get("judge", check.get("prefer"))
            for check, _, _ in self._checks
        }
        for name, file in files.items():
            judges[name] = {}
            if name not in named:
                continue
            try:
                judges[name] = blueprints.read_file(file)
            except PodwrightError as error:
                self._source.add("", error.message, error.suggestion)
        return judges
