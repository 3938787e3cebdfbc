"""The components of variants: built of changed blueprints, with recorded answers and without what must not happen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from podwright.blueprints import digest
from podwright.client import AsyncClient
from podwright.components import Component
from podwright.data.json_data import JsonMapping, JsonObject, to_json_bytes
from podwright.errors import ConfigurationError
from podwright.evaluation.overrides import changed_blueprint
from podwright.evaluation.suite import Suite, Variant
from podwright.folders.loader import load_changed
from podwright.folders.walks import component_digest, tools_of, walk
from podwright.models import Model
from podwright.run.component import ModelComponent
from podwright.tools.fake import FakeTool

_LEFT_OUT = {"evals", "tests", "__pycache__", ".podwright", ".git"}
"""Folders of a component that do not decide what it answers."""


def load_variant(
    suite: Suite,
    variant: Variant,
    wrap: Callable[[Model], Model] | None = None,
    **options: Any,
) -> Component:
    """Return the component of a variant.

    Args:
        suite: The suite, whose fakes it gets.
        variant: The variant, of blueprints.
        wrap: What its models are wrapped in.
        **options: As in `podwright.load`.

    Raises:
        ConfigurationError: It cannot be loaded.
    """
    source = variant.blueprint or suite.component

    def change(blueprint: JsonMapping) -> JsonObject:
        return changed_blueprint(blueprint, variant.changes)

    component = load_changed(source, change, folder=suite.component, **options)
    for part in walk(component):
        for name in suite.fakes.keys() & part.own_tools().keys():
            fake = FakeTool(part.own_tools()[name], suite.fakes[name])
            part.replace_tool(name, fake)
        if wrap is not None and isinstance(part, ModelComponent):
            part.wrap_models(wrap)
    return component


def effects_of(component: Component, suite: Suite) -> dict[str, bool]:
    """Return the tools and functions that an evaluation really calls, by name, and whether they may be repeated."""
    return {
        name: tool.is_idempotent
        for name, tool in tools_of(component).items()
        if name not in suite.fakes
    }


def configuration_of(component: Component) -> list[str]:
    """Return the digests of a component and its parts."""
    return [
        component_digest(component),
        *(digest(part.to_blueprint()) for part in walk(component)),
    ]


def code_digest(folder: Path) -> str:
    """Return a digest of all files of a component folder that may decide what it answers; not of its suite."""
    found = hashlib.sha256()
    for file in sorted(_files_in(folder)):
        found.update(f"{file.relative_to(folder)}\0".encode())
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def _files_in(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir():
            if path.name not in _LEFT_OUT:
                yield from _files_in(path)
        elif path.is_file():
            yield path


def digest_of(*data: Any) -> str:
    """Return a short digest of JSON data."""
    return hashlib.sha256(to_json_bytes(data)).hexdigest()[:32]


def client_of(variant: Variant) -> AsyncClient:
    """Return the client of the service of a variant.

    Raises:
        ConfigurationError: The key cannot be read, or the address is invalid.
    """
    key: str | None = None
    if variant.api_key_file is not None:
        try:
            key = variant.api_key_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigurationError(
                f"Cannot read the API key of the variant '{variant.name}' in '{variant.api_key_file}'."
            ) from error
    return AsyncClient(variant.url, api_key=key)
