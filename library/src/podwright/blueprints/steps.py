"""Walking the steps of a workflow blueprint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from podwright.json_data import JsonMapping, JsonObject, as_array, as_object

SEQUENCES = ("then", "else", "steps", "catch", "on_reject")
"""The keys of steps that hold one sequence of steps; `branches` holds several."""


def walk_steps(
    steps: object, at: str = "/steps"
) -> Iterator[tuple[str, JsonObject]]:
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
        for pointer, inner in inner_sequences(step):
            yield from walk_steps(inner, here + pointer)


def inner_sequences(step: JsonMapping) -> Iterator[tuple[str, list[Any]]]:
    """The sequences of steps directly inside a step, with their JSON pointers from there.

    Args:
        step: A step of a workflow blueprint, valid or not.
    """
    for key in SEQUENCES:
        if key in step:
            yield f"/{key}", as_array(step[key])
    branches = as_array(step.get("branches"))
    for number, branch in enumerate(branches):
        yield f"/branches/{number}", as_array(branch)
    workflow = as_object(step.get("workflow"))
    if workflow:
        yield "/workflow/steps", as_array(workflow.get("steps"))
