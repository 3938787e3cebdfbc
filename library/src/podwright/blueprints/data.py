"""Looking into JSON data that may be anything, without trusting its shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast


def pointer(*parts: str | int) -> str:
    """A JSON pointer (RFC 6901) to a place."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def copy(value: Any) -> Any:
    """A deep copy of JSON data."""
    if isinstance(value, dict):
        return {key: copy(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [copy(item) for item in cast("list[Any]", value)]
    return value


def as_object(value: object) -> dict[str, Any]:
    """The value if it is an object, else an empty one: for looking into data that may be anything."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_array(value: object) -> list[Any]:
    """The value if it is an array, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def walk_steps(steps: object, at: str = "/steps") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every step in a workflow's list, nested ones too, with its JSON pointer; what is no step is passed over."""
    for index, step in enumerate(as_array(steps)):
        here, known = f"{at}/{index}", as_object(step)
        if known:
            yield here, known
        for key in ("then", "else", "steps"):
            yield from walk_steps(known.get(key), f"{here}/{key}")
        for number, branch in enumerate(as_array(known.get("branches"))):
            yield from walk_steps(branch, f"{here}/branches/{number}")
        yield from walk_steps(as_object(known.get("workflow")).get("steps"), f"{here}/workflow/steps")


def deep(value: object, most: int = 100) -> bool:
    """Whether data is nested in more levels than some: what is far deeper cannot be written as JSON again."""
    within = as_object(value).values() or as_array(value)
    return (most < 1 and isinstance(value, dict | list)) or any(deep(one, most - 1) for one in within)
