"""The codes that the code of a folder gives to errors of its own, for try steps that name them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from podwright.data.json_data import JsonMapping, as_array
from podwright.data.text import most_similar
from podwright.errors import CODES, Problem
from podwright.folders.folder import Folder
from podwright.steps import TryStep
from podwright.steps.registry import step_class, walk_steps


@dataclass(slots=True)
class _Texts:
    """The texts in some Python code."""

    all: set[str] = field(default_factory=set[str])
    codes: set[str] = field(default_factory=set[str])
    """Those that are called `code`."""


def misspelt_codes(folder: Folder, blueprint: JsonMapping) -> list[Problem]:
    """Return the codes in try steps that no text in the code of the folder has, and that resemble one that it raises.

    They may still be right: another component may raise them, or an installed package.

    Args:
        folder: The folder.
        blueprint: Its blueprint, which is valid.

    Raises:
        ConfigurationError: The shared packages of the folder are not valid.
    """
    own = [
        (f"{pointer}/on/{number}", code)
        for pointer, step in walk_steps(blueprint.get("steps"))
        if step_class(step) is TryStep
        for number, code in enumerate(as_array(step.get("on")))
        if code not in CODES
    ]
    if not own:
        return []
    texts = _texts_in(folder)
    problems: list[Problem] = []
    for pointer, code in own:
        meant = most_similar(code, texts.codes)
        if code not in texts.all and meant is not None:
            problem = Problem(
                pointer,
                detail=f"No code of the folder raises an error with the code '{code}'.",
                suggestion=f"Did you mean '{meant}'?",
            )
            problems.append(problem)
    return problems


def _texts_in(folder: Folder) -> _Texts:
    texts = _Texts()
    for path in (folder.path, *folder.shared_packages().values()):
        for file in _python_files(path):
            try:
                tree = ast.parse(file.read_bytes(), file.name)
            # Python 3.11 raises ValueError for null bytes
            except (OSError, SyntaxError, ValueError):
                continue
            _collect(tree, texts)
    return texts


def _python_files(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*.py"):
        inside = file.relative_to(folder)
        # such as an environment of packages
        if not any(part.startswith(".") for part in inside.parts):
            yield file


def _collect(tree: ast.AST, texts: _Texts) -> None:
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                texts.all.add(text)
            case ast.keyword(arg="code", value=ast.Constant(value=str(code))):
                texts.codes.add(code)
            case ast.Call(
                func=ast.Name(id="Refusal") | ast.Attribute(attr="Refusal"),
                args=[ast.Constant(value=str(code)), *_],
            ):
                texts.codes.add(code)
            # of a class of errors
            case ast.Assign(
                targets=[ast.Name(id="code")],
                value=ast.Constant(value=str(code)),
            ):
                texts.codes.add(code)
            case _:
                pass
