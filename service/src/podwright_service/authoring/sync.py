"""Bringing the tools' entries and the JSON Schemas of a component folder up to date with the code."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podwright import blueprints
from podwright.blueprints.diff import Change, blueprint_changes
from podwright.blueprints.schema import keys_of
from podwright.blueprints.validation import Blueprint, json_problems
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    copy_json,
    json_pointer,
)
from podwright.data.text import did_you_mean, os_error_reason
from podwright.errors import ConfigurationError, Problem
from podwright.folders.folder import Folder
from podwright.folders.typed_schemas import typed_schemas
from podwright.tools.entries import tool_lists
from podwright.tools.function_tool import to_tool
from podwright.tools.tool import Tool

HOW_TO_NAME_AN_AGENT = (
    "Name the agent in 'agents/' that is to have the tool: --to AGENT."
)
_BLOCKS = ("|", ">")
"""The styles of scalars in YAML that begin with a sign on a line of its own."""
_HEADER = re.compile(r"\A(?:#.*\n)+")
"""The comments at the top of a file, such as the one that tells editors its schema."""


@dataclass
class SyncedFile:
    """One blueprint file of a folder, and what the code changes in it."""

    path: Path
    blueprint: Blueprint
    """The blueprint with the entries of the code."""
    changes: list[Change] = field(default_factory=list[Change])
    kept: list[str] = field(default_factory=list[str])
    """Pointers of options that only the blueprint has."""


def synced_files(
    folder: Folder, added: list[str], to: Path | None = None
) -> list[SyncedFile]:
    """The blueprint files of a folder, and of the agents in it, with the tools' entries and schemas that its code has.

    What the code says of a tool counts: its parameters, its description, and the options of `@tool`. Options that only
    the blueprint has are kept. A JSON Schema is that of the type in `schemas.py` that its title names.

    Args:
        folder: The component folder.
        added: Names of functions in `tools.py` that become tools of a component.
        to: The blueprint file that gets them, one of the folder or of `agents/`; by default the folder's own.

    Raises:
        PodwrightError: A file cannot be read, or the code has no function for a tool, or no type for a schema.
    """
    own = folder.blueprint_file()
    files = [
        _synced(folder, path, added if path == (to or own) else [])
        for path in (own, *folder.agent_files())
    ]
    for agent in folder.agent_folders():
        files += synced_files(agent, [])
    return files


def agent_file(folder: Folder, name: str) -> Path:
    """The blueprint file of an agent in `agents/`.

    Raises:
        ConfigurationError: There is none of this name.
    """
    files = {path.stem: path for path in folder.agent_files()}
    if name not in files:
        raise ConfigurationError(
            f"No agent '{name}' is a blueprint file in 'agents/'.",
            suggestion=did_you_mean(name, files)
            or "For one that is a folder there, run `podwright sync` with that folder.",
        )
    return files[name]


def write(file: SyncedFile) -> None:
    """Write a blueprint file back.

    Raises:
        ConfigurationError: It cannot be written, or has comments that would be lost.
    """
    text = blueprints.to_json(file.blueprint)
    try:
        if file.path.suffix.lower() != ".json":
            old = file.path.read_text(encoding="utf-8")
            header = "".join(_HEADER.findall(old))
            if _has_comments(old.removeprefix(header)):
                raise ConfigurationError(
                    f"'{file.path.name}' has comments, which would be lost.",
                    suggestion="Make these changes by hand, or keep the comments under 'metadata'.",
                )
            text = header + blueprints.to_yaml(file.blueprint)
        file.path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"Cannot write '{file.path}': {os_error_reason(error)}.",
            suggestion="Make it writable.",
        ) from error


def _has_comments(text: str) -> bool:
    """Whether a YAML text has comments: between its tokens, or after the sign of a block of text."""
    import yaml  # slow to import

    end = 0
    for token in yaml.scan(text):
        between = text[end : token.start_mark.index]
        end = token.end_mark.index
        if "#" in between:
            return True
        if isinstance(token, yaml.ScalarToken) and token.style in _BLOCKS:
            sign, _, _ = text[token.start_mark.index : end].partition("\n")
            if "#" in sign:
                return True
    return False


def _synced(folder: Folder, path: Path, added: list[str]) -> SyncedFile:
    old = blueprints.read_source(path)
    not_json = list(json_problems(old))
    if not_json:
        raise blueprints.invalid(not_json, f"The blueprint '{path.name}'")
    file = SyncedFile(path, copy_json(old))
    problems: list[Problem] = []
    for pointer, entries in tool_lists(file.blueprint):
        for number, entry in enumerate(entries):
            at = f"{pointer}/{number}"
            name = as_object(entry).get("name")
            tool = _tool_of(folder, str(name))
            if tool is None:
                problems.append(_missing_function(folder, str(name), at))
                continue
            entries[number] = _updated(as_object(entry), tool)
            file.kept += _only_in_blueprint(as_object(entry), tool, at)
    typed, more = typed_schemas(folder, file.blueprint)
    problems += more
    if problems:
        raise blueprints.invalid(problems, f"The blueprint '{path.name}'")
    for schema in typed:
        schema.stored.clear()
        schema.stored.update(schema.own)
    if added:
        _add_tools(folder, file.blueprint, added)
    file.changes = blueprint_changes(old, file.blueprint)
    return file


def _tool_of(folder: Folder, name: str) -> Tool | None:
    function = folder.functions("tools.py", [name]).get(name)
    if function is None:
        return None
    return to_tool(function)


def _updated(entry: JsonMapping, tool: Tool) -> JsonObject:
    own = tool.entry()
    schema = {**as_object(entry.get("schema")), **own["schema"]}
    function = as_object(as_object(entry.get("schema")).get("function"))
    schema["function"] = {**function, **own["schema"]["function"]}
    return {**entry, **own, "schema": schema}


def _only_in_blueprint(entry: JsonMapping, tool: Tool, at: str) -> list[str]:
    """The pointers of what the code does not say about a tool: options, and keys such as `strict`."""
    own = tool.entry()
    kept = [at + json_pointer(key) for key in entry if key not in own]
    function = as_object(as_object(entry.get("schema")).get("function"))
    kept += [
        at + json_pointer("schema", "function", key)
        for key in function
        if key not in own["schema"]["function"]
    ]
    return kept


def _missing_function(folder: Folder, name: str, at: str) -> Problem:
    similar = folder.functions("tools.py", [name])
    hint = did_you_mean(name, similar)
    if not hint:
        hint = "Define it, or remove the entry. A tool of an MCP server needs --mcp NAME."
    return Problem(at, f"tools.py has no function for the tool '{name}'.", hint)


def _add_tools(folder: Folder, blueprint: Blueprint, names: list[str]) -> None:
    if "tools" not in keys_of(blueprints.kind_of(blueprint)):
        raise ConfigurationError(
            "Only the blueprint of an agent or a conductor has tools of its own.",
            suggestion=HOW_TO_NAME_AN_AGENT,
        )
    entries: list[Any] = blueprint.setdefault("tools", [])
    known = {as_object(entry).get("name") for entry in entries}
    for name in names:
        if name in known:
            continue
        tool = _tool_of(folder, name)
        if tool is None:
            problem = _missing_function(folder, name, "/tools")
            raise ConfigurationError(
                problem.detail, suggestion=problem.suggestion
            )
        entries.append(tool.entry())
        known.add(name)
