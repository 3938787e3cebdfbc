"""Blueprints as text: JSON and YAML in and out, files, and the digest. YAML is another notation for JSON data."""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import orjson

from podwright.blueprints.content import read_bytes
from podwright.blueprints.texts import with_texts
from podwright.blueprints.validation import Blueprint, invalid, with_types
from podwright.data.json_data import JsonMapping, JsonObject
from podwright.data.text import did_you_mean, os_error_reason, truncate
from podwright.errors import (
    BlueprintValidationError,
    ConfigurationError,
    Problem,
)

SUFFIXES = (".json", ".yaml", ".yml")
"""The file names of blueprints end in one of these."""

_YAML_BREAK = re.compile("[\x85\u2028\u2029]")
_BOOLEAN_TAG = "tag:yaml.org,2002:bool"
_TEXT_TAG = "tag:yaml.org,2002:str"
_FLOAT_TAG = "tag:yaml.org,2002:float"
_GO_BOOLEAN = re.compile("[yYnN]$")
"""What the YAML of Go, such as Helm's, takes for booleans besides those that PyYAML does."""
_GO_NUMBER = re.compile("[-+.0-9][-+.0-9_a-fA-FxXoO]*$")
"""What the YAML of Go may take for a number, such as `1e3`, `.5e1`, `0o14` and `1_000`; and some texts more."""
_JSON_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?[eE][-+]?[0-9]+$")
"""Numbers of JSON that PyYAML takes for texts, such as `1e-07`."""


def to_json(blueprint: JsonMapping) -> str:
    """The blueprint as indented JSON text; keys keep their order."""
    return (
        json.dumps(blueprint, ensure_ascii=False, indent=2, allow_nan=False)
        + "\n"
    )


def to_yaml(blueprint: JsonMapping) -> str:
    """The blueprint as YAML text, which Helm reads as the same data; keys keep their order."""
    # a third of the library's import time, and JSON needs none of it
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

        def represent_scalar(
            self, tag: str, value: Any, style: str | None = None
        ) -> yaml.ScalarNode:
            # YAML 1.1 takes these characters for line breaks, except within double quotes
            if isinstance(value, str) and _YAML_BREAK.search(value):
                style = '"'
            elif isinstance(value, str) and "\n" in value:
                style = "|"
            return super().represent_scalar(tag, value, style)  # pyright: ignore[reportUnknownMemberType] - untyped in its stubs

    # untyped in the stubs of PyYAML; a text that another tag may match is quoted
    dumper: Any = Dumper
    dumper.add_implicit_resolver(_BOOLEAN_TAG, _GO_BOOLEAN, list("yYnN"))
    dumper.add_implicit_resolver(_FLOAT_TAG, _GO_NUMBER, list("+-.0123456789"))
    return yaml.dump(
        dict(blueprint),
        Dumper=Dumper,
        allow_unicode=True,
        sort_keys=False,
        width=110,
    )


def from_json(text: str | bytes) -> Any:
    """The data in a JSON text.

    Raises:
        BlueprintValidationError: The text is not valid JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        problem = Problem(
            "",
            detail=f"Invalid JSON: {error}.",
            suggestion="Check quotes, commas and brackets.",
        )
        raise invalid([problem]) from error


def from_yaml(text: str | bytes) -> Any:
    """The data in a YAML text; only data, no tags.

    Raises:
        BlueprintValidationError: The text is not valid YAML.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(
            self, node: yaml.MappingNode, deep: bool = False
        ) -> dict[Any, Any]:
            # keys are texts, also `on` and `no`, which YAML 1.1 takes for booleans
            for key, _ in node.value:
                if key.tag == _BOOLEAN_TAG:
                    key.tag = _TEXT_TAG
            return super().construct_mapping(node, deep)

    loader: Any = Loader  # untyped in the stubs of PyYAML
    loader.add_implicit_resolver(_FLOAT_TAG, _JSON_NUMBER, list("-0123456789"))
    try:
        return Loader(text).get_single_data()
    except (
        yaml.YAMLError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as error:
        reason = " ".join(str(error).split())
        problem = Problem(
            "",
            detail=f"Invalid YAML: {reason}.",
            suggestion="Check indentation and quotes.",
        )
        raise invalid([problem]) from error


def read_file(path: str | Path) -> Blueprint:
    """The data in a blueprint file, not yet validated, with its texts and types.

    Lines are joined, files beside it are read, and the types are written that keys say.

    Raises:
        ConfigurationError: The file does not exist or cannot be read.
        BlueprintValidationError: It does not contain a JSON or YAML object, or a text cannot be read.
    """
    source = read_source(path)
    blueprint, problems = with_texts(source, Path(path).parent)
    if problems:
        raise invalid(problems, f"The blueprint '{path}'")
    blueprint.pop("$schema", None)
    return with_types(blueprint)


def read_source(path: str | Path) -> Blueprint:
    """The data in a blueprint file as they are written, to change them and to write them back.

    Raises:
        ConfigurationError: The file does not exist or cannot be read.
        BlueprintValidationError: It does not contain a JSON or YAML object.
    """
    file = Path(path)
    content = _read_content(file)
    if file.suffix.lower() not in SUFFIXES:
        raise _no_blueprint_file_error(file)
    data = _parse(content, file)
    if not isinstance(data, dict):
        found = type(data).__name__
        problem = Problem("", f"A blueprint must be an object, not {found}.")
        raise invalid([problem], f"The blueprint '{file}'")
    return cast("Blueprint", data)


def read_data(path: str | Path) -> Any:
    """The data in a file: JSON if its name ends in `.json`, else YAML.

    Raises:
        ConfigurationError: The file does not exist or cannot be read.
        BlueprintValidationError: It is not valid JSON or YAML.
    """
    file = Path(path)
    return _parse(_read_content(file), file)


def _read_content(file: Path) -> bytes:
    try:
        return read_bytes(file)
    except (OSError, ValueError) as error:
        hint: str | None = None
        if isinstance(error, FileNotFoundError):
            hint = _similar_name(file)
        name = truncate(str(file), 200)
        reason = os_error_reason(error)
        raise ConfigurationError(
            f"Cannot read '{name}': {reason}.", suggestion=hint
        ) from error


def _parse(content: bytes, file: Path) -> Any:
    # editors on Windows write it
    text = content.removeprefix(codecs.BOM_UTF8)
    try:
        if file.suffix.lower() == ".json":
            return from_json(text)
        return from_yaml(text)
    except BlueprintValidationError as error:
        name = truncate(str(file), 200)
        raise invalid(error.problems, f"The file '{name}'") from error


def _no_blueprint_file_error(file: Path) -> ConfigurationError:
    hint = "Rename it, or give a component folder."
    for suffix in SUFFIXES:
        if file.with_name(f"blueprint{suffix}").is_file():
            hint = f"Give the component folder: '{file.parent}'."
    return ConfigurationError(
        f"'{file}' is not a blueprint file: the name of one ends in .json, .yaml or .yml.",
        suggestion=hint,
    )


def _similar_name(file: Path) -> str | None:
    """A suggestion: the blueprint file or folder with the most similar name."""
    siblings = sorted(file.parent.glob("*"))
    names = [path.name for path in siblings if _may_be_blueprint(path)]
    return did_you_mean(file.name, names) or None


def _may_be_blueprint(path: Path) -> bool:
    return path.suffix in SUFFIXES or path.is_dir()


def digest(blueprint: JsonMapping) -> str:
    """`sha256:` and 64 hexadecimal digits over the canonical JSON: sorted keys, no white space, 1.0 written as 1.

    `$schema`, which is for editors, does not count, nor does it whether types are written that keys say.
    """
    data = with_types(blueprint)
    data.pop("$schema", None)
    text = json.dumps(
        _canonical(data),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )
    sha256 = hashlib.sha256(text.encode())
    return f"sha256:{sha256.hexdigest()}"


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        canonical: JsonObject = {}
        for key, item in cast("JsonMapping", value).items():
            canonical[key] = _canonical(item)
        return canonical
    if isinstance(value, list | tuple):
        return list(map(_canonical, cast("list[Any]", value)))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
