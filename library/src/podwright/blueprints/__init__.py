"""Blueprints as data: read, write, validate, migrate. Nothing here runs a component."""

from podwright.blueprints.files import (
    SUFFIXES,
    digest,
    from_json,
    from_yaml,
    read_bytes,
    read_data,
    read_file,
    to_json,
    to_yaml,
)
from podwright.blueprints.schema import VERSION, json_schema
from podwright.blueprints.steps import walk_steps
from podwright.blueprints.validation import MAX_DEPTH, Blueprint, check, invalid, kind_of, migrate, parse, problems

__all__ = [
    "MAX_DEPTH",
    "SUFFIXES",
    "VERSION",
    "Blueprint",
    "check",
    "digest",
    "from_json",
    "from_yaml",
    "invalid",
    "json_schema",
    "kind_of",
    "migrate",
    "parse",
    "problems",
    "read_bytes",
    "read_data",
    "read_file",
    "to_json",
    "to_yaml",
    "walk_steps",
]
