"""JSON Schemas without regular expressions, for schemas whose author is not trusted.

Python's time for a regular expression has no bound, so those of a client are not evaluated. Since each text might match
them, the schema that is checked instead takes all that the whole schema takes. To leave `pattern` out is not enough:
where a subschema has to fail (`not`), decides about others (`if`), or must not fit too often (`oneOf`, `maxContains`),
one that takes more would refuse more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from typing import Any, cast

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
)
from podwright.schemas.json_schema import (
    DEFINITIONS,
    SUBSCHEMA_LISTS,
    SUBSCHEMA_MAPS,
    SUBSCHEMAS,
    Part,
    parts_of,
    subschema,
)


def without_patterns(schema: JsonMapping) -> JsonObject:
    """A schema without regular expressions that takes all that a schema takes; the same one if it has none.

    Args:
        schema: A valid schema that `podwright.schemas.json_schema.measure` has taken.
    """
    root = as_object(schema)
    parts = parts_of(root)
    uncertain = _uncertain(parts)
    if not uncertain:
        return root
    return _Relaxation(root, uncertain).relaxed_root()


def _uncertain(parts: Mapping[int, Part]) -> Set[int]:
    """The subschemas that apply a regular expression, themselves or by others."""
    users: defaultdict[int, list[int]] = defaultdict(list)
    for key, part in parts.items():
        for applied in part.applied():
            users[applied].append(key)
    waiting = [key for key, part in parts.items() if _has_pattern(part.schema)]
    uncertain: set[int] = set()
    while waiting:
        key = waiting.pop()
        if key not in uncertain:
            uncertain.add(key)
            waiting += users[key]
    return uncertain


def _has_pattern(part: JsonMapping) -> bool:
    return "pattern" in part or "patternProperties" in part


class _Relaxation:
    """Makes the copy of a schema.

    Args:
        root: The schema.
        uncertain: Its subschemas that apply a regular expression, by their identity.
    """

    def __init__(self, root: JsonObject, uncertain: Set[int]) -> None:
        self._root = root
        self._uncertain = uncertain
        self._names: dict[int, str] = {}
        """The names of the parts that are referred to, by their identity."""
        self._waiting: list[tuple[str, JsonObject | bool]] = []
        """Parts with a name that are not copied yet."""

    def relaxed_root(self) -> JsonObject:
        """The copy. Parts may be in other places of it, so all that are referred to are definitions."""
        relaxed = self._relaxed_part(self._root)
        definitions: JsonObject = {}
        while self._waiting:
            name, part = self._waiting.pop()
            definitions[name] = self._relaxed(part)
        if definitions:
            relaxed["$defs"] = definitions
        return relaxed

    def _relaxed(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._relaxed_part(cast("JsonObject", value))
        return value

    def _relaxed_part(self, part: JsonObject) -> JsonObject:
        relaxed: JsonObject = {}
        for key, value in part.items():
            if key == "$ref":
                relaxed[key] = self._reference(value)
            elif key in SUBSCHEMAS:
                relaxed[key] = self._relaxed(value)
            elif key in SUBSCHEMA_LISTS:
                relaxed[key] = [self._relaxed(item) for item in value]
            elif key in SUBSCHEMA_MAPS:
                relaxed[key] = {
                    name: self._relaxed(item) for name, item in value.items()
                }
            elif key not in DEFINITIONS:
                relaxed[key] = value
        if id(part) in self._uncertain:
            self._relax_keywords(part, relaxed)
        return relaxed

    def _reference(self, reference: str) -> str:
        """The reference to the copy of a part."""
        part = subschema(self._root, reference)
        if part is None:
            # `measure` refuses such a schema
            raise ValueError(f"Unknown part of the schema: {reference}")
        if part is self._root:
            return "#"
        key = id(part)
        if key not in self._names:
            self._names[key] = str(len(self._names))
            self._waiting.append((self._names[key], part))
        return f"#/$defs/{self._names[key]}"

    def _relax_keywords(self, part: JsonObject, relaxed: JsonObject) -> None:
        """Change the keywords that evaluate a regular expression, or that subschemas with one would make stricter."""
        relaxed.pop("pattern", None)
        if relaxed.pop("patternProperties", None) is not None:
            # each property may be one of those
            relaxed["additionalProperties"] = True
        if self._is_uncertain(part.get("not")):
            del relaxed["not"]
        if self._is_uncertain(part.get("contains")):
            relaxed.pop("maxContains", None)
        either: list[JsonObject] = []
        if self._is_uncertain(part.get("if")):
            both = [relaxed.pop("if"), relaxed.pop("then", True)]
            otherwise = relaxed.pop("else", True)
            either.append({"anyOf": [{"allOf": both}, otherwise]})
        if any(map(self._is_uncertain, as_array(part.get("oneOf")))):
            either.append({"anyOf": relaxed.pop("oneOf")})
        if either:
            relaxed["allOf"] = [*relaxed.get("allOf", ()), *either]

    def _is_uncertain(self, value: object) -> bool:
        return id(value) in self._uncertain
