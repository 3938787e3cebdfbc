"""Blueprints as data: read, write, validate. Nothing here runs a component."""

from podwright.blueprints.files import (
    SUFFIXES,
    digest,
    from_json,
    from_yaml,
    read_file,
    read_source,
    to_json,
    to_yaml,
)
from podwright.blueprints.schema import file_schema, json_schema
from podwright.blueprints.validation import (
    check,
    invalid,
    kind_of,
    problems,
    warnings,
)
from podwright.steps.blueprint_types import VERSION
from podwright.steps.registry import walk_steps

__all__ = [
    "SUFFIXES",
    "VERSION",
    "check",
    "digest",
    "file_schema",
    "from_json",
    "from_yaml",
    "invalid",
    "json_schema",
    "kind_of",
    "problems",
    "read_file",
    "read_source",
    "to_json",
    "to_yaml",
    "walk_steps",
    "warnings",
]
