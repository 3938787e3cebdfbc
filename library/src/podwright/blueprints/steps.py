"""Walking the steps of a workflow blueprint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from podwright.json_data import as_array, as_object


def walk_steps(
    steps: object, at: str = "/steps"
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every step of a list of steps, nested ones too, with its JSON pointer; anything that is not an object is skipped.

    Args:
        steps: The `steps` of a workflow blueprint, valid or not.
        at: The JSON pointer of the list.
    """
    for index, entry in enumerate(as_array(steps)):
        here = f"{at}/{index}"
        step = as_object(entry)
        if step:
            yield here, step
        for key in ("then", "else", "steps"):
            yield from walk_steps(step.get(key), f"{here}/{key}")
        for number, branch in enumerate(as_array(step.get("branches"))):
            yield from walk_steps(branch, f"{here}/branches/{number}")
        yield from walk_steps(
            as_object(step.get("workflow")).get("steps"), f"{here}/workflow/steps"
        )
