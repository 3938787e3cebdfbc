"""Reading the variants of a suite: of a matrix or by name, their effects, and the baseline."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from podwright import blueprints
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    json_pointer,
    to_text,
)
from podwright.data.text import did_you_mean, short_repr, truncate
from podwright.errors import (
    BlueprintValidationError,
    ConfigurationError,
)
from podwright.evaluation.suite_reading.source import SuiteSource
from podwright.evaluation.suite_schema import MAX_VARIANTS, VARIANT_KEYS
from podwright.folders.folder import Folder

AS_IT_IS = "as it is"
"""The name of the variant that changes nothing, and of null as a value."""
_LONGEST_NAME = 40


@dataclass(slots=True)
class ReadVariant:
    """A variant: the arguments of `Variant`, apart from its name."""

    changes: JsonObject = field(default_factory=dict[str, Any])
    blueprint: Path | None = None
    image: str = ""
    url: str = ""
    api_key_file: Path | None = None

    @property
    def target(self) -> tuple[Path | None, str, str, Path | None]:
        """What answers instead of the component."""
        return self.blueprint, self.image, self.url, self.api_key_file


class VariantReader:
    """Reads the variants of a suite.

    Args:
        data: The data of the suite, whose keys and types are right.
        source: The suite, to which problems are added.
    """

    def __init__(self, data: JsonMapping, source: SuiteSource) -> None:
        self._data = data
        self._matrix = as_object(data.get("matrix"))
        self._source = source
        self._members = source.parts.members
        self._choices: dict[str, JsonObject] = {}
        """The names of the values that each variant of the matrix has, by place."""
        self.variants: dict[str, ReadVariant] = {}

    def read(self) -> None:
        """Fill `variants`."""
        before = len(self._source.problems)
        if "variants" not in self._data:
            self._read_matrix()
        elif "matrix" in self._data:
            self._source.add(
                "/variants",
                "There is a matrix, too.",
                "Use 'matrix' for all combinations, or 'variants' for some.",
            )
        else:
            self._read_named(self._data["variants"])
        # of wrong values, the effect means nothing
        if len(self._source.problems) == before:
            self._check_effects()

    # --- Matrix -------------------------------------------------------------------------------------------------------

    def _read_matrix(self) -> None:
        columns = {
            place: self._values(place, listed)
            for place, listed in self._matrix.items()
        }
        if not all(columns.values()):
            return
        count = math.prod(map(len, columns.values()))
        if count > MAX_VARIANTS:
            detail = f"The matrix has {count} combinations, more than {MAX_VARIANTS}."
            hint = "Use 'variants' for some of them."
            self._source.add("/matrix", detail, hint)
            return
        for names in itertools.product(*columns.values()):
            variant = ", ".join(names) or AS_IT_IS
            if variant in self.variants:
                detail = f"Two variants are called {short_repr(variant)}."
                self._source.add("/matrix", detail)
            chosen = dict(zip(columns, names, strict=True))
            values = {
                place: columns[place][name] for place, name in chosen.items()
            }
            self._choices[variant] = chosen
            self.variants[variant] = ReadVariant(_without_nulls(values))

    def _values(self, place: str, listed: Any) -> dict[str, Any]:
        """Return the values of a place by name; none if it is wrong."""
        at = f"/matrix{json_pointer(place)}"
        problem = self._members.place_problem(place, at)
        if problem is not None:
            self._source.problems.append(problem)
            return {}
        values: dict[str, Any] = {}
        for key, name, value in _named_values(listed):
            pointer = at + json_pointer(key)
            if name in values:
                self._source.add(
                    pointer,
                    f"Two values are called {short_repr(name)}.",
                    "Write an object, with names of your own.",
                )
            values[name] = self._value(place, value, pointer)
        if not values:
            self._source.add(at, "Expected at least one value.")
        return values

    def _value(self, place: str, value: Any, at: str) -> Any:
        """Return a value for a place that exists, with the text of the file that it names."""
        file = as_object(value).get("file")
        if isinstance(file, str) and len(value) == 1:
            value = self._source.text(file, f"{at}/file")
        if value is not None:
            found = self._members.value_problems(place, value, at)
            self._source.problems += found
        return value

    # --- By name ------------------------------------------------------------------------------------------------------

    def _read_named(self, variants: JsonMapping) -> None:
        for name, entry in variants.items():
            at = f"/variants{json_pointer(name)}"
            variant = ReadVariant()
            self.variants[name] = variant
            keys = as_object(entry)
            for key in VARIANT_KEYS:
                if key in keys:
                    self._read_target(variant, key, keys[key], f"{at}/{key}")
            for place, value in keys.items():
                if place not in VARIANT_KEYS:
                    pointer = at + json_pointer(place)
                    self._read_change(variant, place, value, pointer)
            self._check_target(variant, at)

    def _read_change(
        self, variant: ReadVariant, place: str, value: Any, at: str
    ) -> None:
        if "." not in place:
            self._source.add(
                at,
                f"Unknown key {short_repr(place)}.",
                did_you_mean(place, VARIANT_KEYS),
            )
            return
        problem = self._members.place_problem(place, at)
        if problem is not None:
            self._source.problems.append(problem)
            return
        changed = self._value(place, value, at)
        if changed is not None:
            variant.changes[place] = changed

    def _read_target(
        self, variant: ReadVariant, key: str, value: Any, at: str
    ) -> None:
        if not isinstance(value, str) or not value:
            self._source.add(at, f"Expected a text, got {short_repr(value)}.")
        elif key == "blueprint":
            variant.blueprint = self._source.component / value
            self._check_blueprint(variant.blueprint, value, at)
        elif key == "api_key_file":
            variant.api_key_file = self._source.folder / value
            if not _exists(variant.api_key_file):
                detail = f"There is no file {short_repr(value)}."
                self._source.add(at, detail)
        elif key == "image":
            variant.image = value
        else:
            variant.url = value
            if not value.startswith(("http://", "https://")):
                self._source.add(at, f"Invalid URL {short_repr(value)}.")

    def _check_blueprint(self, path: Path, name: str, at: str) -> None:
        """Add the problems of the blueprint that a variant names."""
        try:
            file = path
            if _exists(path) and path.is_dir():
                file = Folder(path).blueprint_file()
            found = blueprints.problems(blueprints.read_file(file))
        except BlueprintValidationError as error:
            found = list(error.problems)
        except ConfigurationError as error:
            self._source.add(at, error.message, error.suggestion)
            return
        for problem in found:
            detail = f"{name}{problem.pointer}: {problem.detail}"
            self._source.add(at, detail, problem.suggestion)

    def _check_target(self, variant: ReadVariant, at: str) -> None:
        keys = ("blueprint", "image", "url")
        targets = [f"'{key}'" for key in keys if getattr(variant, key)]
        if len(targets) > 1:
            listed = " and ".join(targets)
            detail = f"Only one component can answer, but it has {listed}."
            self._source.add(at, detail)
        elif targets and variant.changes:
            self._source.add(
                at,
                f"What {targets[0]} names answers as it is, and nothing of it is changed.",
                f"Remove {targets[0]}, or the other keys.",
            )
        if variant.api_key_file and not variant.url:
            self._source.add(f"{at}/api_key_file", "The key is for a 'url'.")

    # --- Effects and the baseline -------------------------------------------------------------------------------------

    def _check_effects(self) -> None:
        """Add the problems of variants that change nothing, and of those that are the same as another."""
        seen: list[tuple[str, Any]] = []
        for name, variant in self.variants.items():
            at = "/matrix"
            if not self._matrix:
                at = f"/variants{json_pointer(name)}"
            is_same = not self._members.changes_something(variant.changes)
            # a combination of a matrix may be what the component is
            if variant.changes and is_same and not self._matrix:
                self._source.add(
                    at,
                    f"The variant {short_repr(name)} changes nothing: the blueprints have these values.",
                    "Write null for the component as it is.",
                )
                continue
            effect = (self._members.effect(variant.changes), variant.target)
            for other, known in seen:
                if known == effect:
                    names = f"{short_repr(other)} and {short_repr(name)}"
                    detail = f"The variants {names} have the same effect."
                    self._source.add(at, detail, "Remove one of them.")
                    break
            seen.append((name, effect))

    def baseline(self) -> str:
        """Return the name of the baseline: the chosen variant, else the first; empty if there is one alone."""
        baseline = self._data.get("baseline")
        names = list(self.variants)
        if baseline is None:
            return names[0] if len(names) > 1 else ""
        if isinstance(baseline, str):
            if names and baseline not in names:
                self._source.add(
                    "/baseline",
                    f"There is no variant {short_repr(baseline)}.",
                    did_you_mean(baseline, names),
                )
            return baseline
        wanted = self._choice(as_object(baseline))
        for name, chosen in self._choices.items():
            if chosen == wanted:
                return name
        return ""

    def _choice(self, baseline: JsonMapping) -> JsonObject:
        """Return the names of the values that a baseline chooses of the matrix, by place."""
        if not self._matrix:
            detail = "There is no matrix to choose of."
            hint = "Write the name of a variant."
            self._source.add("/baseline", detail, hint)
            return {}
        for place in baseline:
            if place not in self._matrix:
                self._source.add(
                    f"/baseline{json_pointer(place)}",
                    f"The matrix has no key {short_repr(place)}.",
                    did_you_mean(place, self._matrix),
                )
        chosen: JsonObject = {}
        for place, listed in self._matrix.items():
            if place not in baseline:
                detail = f"It lacks a choice for '{place}'."
                self._source.add("/baseline", detail)
                continue
            choice = baseline[place]
            values = {name: value for _, name, value in _named_values(listed)}
            name = next(_names_of_choice(choice, values), None)
            if name is None:
                self._source.add(
                    f"/baseline{json_pointer(place)}",
                    f"The matrix has no value {short_repr(choice)} there.",
                    did_you_mean(str(choice), values),
                )
            chosen[place] = name
        return chosen


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        # the name is too long, or the folder may not be read
        return False


def _names_of_choice(choice: Any, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names that a choice may mean: it is a name, or a value."""
    if isinstance(choice, str) and choice in values:
        yield choice
    for name, value in values.items():
        # true is no 1
        if value == choice and type(value) is type(choice):
            yield name


def _named_values(listed: Any) -> Iterator[tuple[str | int, str, Any]]:
    """Yield the values of a place in a matrix: the key in their object or list, the name, and the value."""
    for name, value in as_object(listed).items():
        yield name, name, value
    for number, value in enumerate(as_array(listed)):
        yield number, _name_of(value), value


def _name_of(value: Any) -> str:
    """Return the name of a value in a list of a matrix: its last part."""
    if value is None:
        return AS_IT_IS
    file = as_object(value).get("file")
    if isinstance(file, str):
        return PurePosixPath(file).stem or file
    text = " ".join(to_text(value).split())
    last_part = text.rstrip("/").rpartition("/")[2]
    return truncate(last_part, _LONGEST_NAME) or "empty"


def _without_nulls(values: JsonMapping) -> JsonObject:
    return {key: value for key, value in values.items() if value is not None}
