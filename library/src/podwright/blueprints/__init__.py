"""Blueprints as data: read, write, check, migrate, compare. Nothing here runs anything."""

from podwright.blueprints.diff import Change, diff
from podwright.blueprints.files import SUFFIXES, digest, from_json, from_yaml, read_bytes, read_file, to_json, to_yaml
from podwright.blueprints.graph import mermaid
from podwright.blueprints.schema import VERSION, json_schema
from podwright.blueprints.steps import walk_steps
from podwright.blueprints.validation import MAX_DEPTH, Blueprint, check, invalid, kind_of, migrate, problems, unreadable

__all__ = [
    "MAX_DEPTH",
    "SUFFIXES",
    "VERSION",
    "Blueprint",
    "Change",
    "check",
    "diff",
    "digest",
    "from_json",
    "from_yaml",
    "invalid",
    "json_schema",
    "kind_of",
    "mermaid",
    "migrate",
    "problems",
    "read_bytes",
    "read_file",
    "to_json",
    "to_yaml",
    "unreadable",
    "walk_steps",
]
