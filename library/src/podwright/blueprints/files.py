"""Blueprints as text, JSON and YAML in and out, and their digest. YAML is another notation for JSON data."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

from podwright.blueprints.validation import Blueprint, invalid
from podwright.errors import BlueprintValidationError, ConfigurationError, Problem
from podwright.text import did_you_mean, os_error_reason, truncate

SUFFIXES = (".json", ".yaml", ".yml")

_MOST_BYTES = 16 * 1024 * 1024
"""No file of a blueprint or of settings is larger."""

_MOST_DIGITS = 4_300
"""No number is longer: Python would not write it out again."""
_TOO_LARGE = 10**_MOST_DIGITS


def to_json(blueprint: Mapping[str, Any]) -> str:
    """The blueprint as JSON text, indented, keys in their order."""
    return json.dumps(blueprint, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def to_yaml(blueprint: Mapping[str, Any]) -> str:
    """The blueprint as YAML text, keys in their order."""
    import yaml  # costs a third of this library's import time, and JSON needs none of it

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True  # `from_yaml` knows none

        def represent_scalar(self, tag: str, value: Any, style: str | None = None) -> yaml.ScalarNode:
            # what YAML 1.1 takes for a line break is read back as it was from within double quotes only
            odd = isinstance(value, str) and any(char in value for char in "\x85\u2028\u2029")
            chosen = '"' if odd else style
            return super().represent_scalar(tag, value, chosen)  # pyright: ignore[reportUnknownMemberType] - as below

    return yaml.dump(dict(blueprint), Dumper=Dumper, allow_unicode=True, sort_keys=False, width=110)


def from_json(text: str | bytes) -> Any:
    """The data in a JSON text; duplicate keys, NaN and infinities are errors.

    Raises:
        BlueprintValidationError: The text is no JSON.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        if text.startswith("\ufeff"):
            raise ValueError("it begins with a byte order mark")
        return _JSON.decode(text)
    except RecursionError:
        raise invalid([Problem("", "nested far too deep.", "Flatten it.")]) from None
    except ValueError as error:
        raise invalid([Problem("", f"not JSON: {error}.", "Check quotes, commas and brackets.")]) from error


def from_yaml(text: str | bytes) -> Any:
    """The data in a YAML text; tags, anchors and duplicate keys are errors.

    Raises:
        BlueprintValidationError: The text is no YAML, or more than data.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):  # pyright: ignore[reportUnknownMemberType] - untyped in its stubs
                raise yaml.YAMLError("aliases (*name) are not allowed; write the value out")
            return super().compose_node(parent, index)  # pyright: ignore[reportArgumentType] - stubs say Node

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            construct = cast("Callable[..., Any]", self.construct_object)  # pyright: ignore[reportUnknownMemberType] - as above
            _no_duplicates([(str(construct(key, deep=True)), None) for key, _ in node.value])
            return super().construct_mapping(node, deep)

        def whole_number(self, node: yaml.ScalarNode) -> int:
            number = self.construct_yaml_int(node)  # pyright: ignore[reportUnknownMemberType] - as above
            if abs(number) >= _TOO_LARGE:
                raise ValueError(f"an integer has more than {_MOST_DIGITS} digits")
            return number

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.whole_number)
    try:
        return yaml.load(text, Loader)  # noqa: S506 - a SafeLoader with fewer features
    except RecursionError:
        raise invalid([Problem("", "nested far too deep.", "Flatten it.")]) from None
    except (yaml.YAMLError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        said = " ".join(str(error).split())
        raise invalid([Problem("", f"not YAML: {said}.", "Check indentation and quotes.")]) from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    whole = dict(pairs)
    if len(whole) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return whole


_JSON = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constant)


def read_file(path: str | Path) -> Blueprint:
    """The data in a blueprint file, not yet checked.

    Raises:
        ConfigurationError: There is no such file, or it cannot be read.
        BlueprintValidationError: It holds no JSON or YAML.
    """
    file = Path(path)
    if file.suffix.lower() not in SUFFIXES:
        if not _exists(file):
            raise ConfigurationError(f"There is no '{_shown(file)}'.", suggestion=_nearest(file))
        raise ConfigurationError(
            f"'{file}' is not a blueprint file: its name ends in '{file.suffix}'.",
            suggestion=f"Name it one of {', '.join('*' + suffix for suffix in SUFFIXES)}.",
        )
    try:
        text = read_bytes(file)
    except (OSError, ValueError) as error:
        there = "Name a regular file of at most 16 MiB, which this user can read."
        hint = there if _exists(file) else _nearest(file)
        raise ConfigurationError(f"Cannot read '{_shown(file)}': {os_error_reason(error)}.", suggestion=hint) from error
    try:
        data = from_json(text) if file.suffix.lower() == ".json" else from_yaml(text)
    except BlueprintValidationError as error:
        raise invalid(list(error.problems), f"The blueprint '{_shown(file)}'") from error
    if not isinstance(data, dict):
        raise invalid([Problem("", f"a blueprint is an object, not {type(data).__name__}.")], f"The blueprint '{file}'")
    return cast("Blueprint", data)


def read_bytes(path: str | Path) -> bytes:
    """What stands in a regular file of at most 16 MiB.

    Raises:
        OSError: It cannot be read.
        ValueError: It is larger, or something else: a pipe may never end, nor even begin.
    """
    file = Path(path)
    mode = file.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError("it is no regular file")
    with file.open("rb") as opened:
        content = opened.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES // 1024 // 1024} MiB")
    return content


def _exists(file: Path) -> bool:
    try:
        return file.exists()
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return False


def _nearest(file: Path) -> str | None:
    """The blueprint file or folder whose name is nearest to one that is not there."""
    if not _exists(file.parent):
        return None
    beside = [one.name for one in sorted(file.parent.glob("*")) if one.suffix in SUFFIXES or one.is_dir()]
    return did_you_mean(file.name, (name for name in beside if name != file.name)) or None


def _shown(file: Path) -> str:
    return truncate(str(file), 200)


def digest(blueprint: Mapping[str, Any]) -> str:
    """`sha256:` and 64 hex digits over the canonical JSON: sorted keys, no white space, 1.0 written as 1."""
    text = json.dumps(_canonical(blueprint), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _canonical(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in cast("list[Any]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value
