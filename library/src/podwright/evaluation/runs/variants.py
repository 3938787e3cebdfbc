"""The components of variants: built of changed blueprints, with recorded answers and without what must not happen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podwright.blueprints import digest, read_file
from podwright.client import AsyncClient
from podwright.components import Component
from podwright.data.json_data import JsonMapping, JsonObject, to_json_bytes
from podwright.errors import ConfigurationError
from podwright.evaluation.overrides import changed_blueprint
from podwright.evaluation.suite import Suite, Variant
from podwright.folders.folder import EVALUATION_FOLDER
from podwright.folders.loader import load, load_changed, load_in_folder
from podwright.folders.walks import (
    component_digest,
    models_of,
    tools_of,
    walk,
)
from podwright.models import Model
from podwright.run.component import ModelComponent
from podwright.tools.fake import FakeTool

if TYPE_CHECKING:
    from podwright.mcp.server import MCPServer

_LEFT_OUT = {EVALUATION_FOLDER, "tests", "__pycache__"}
"""Folders of a component that do not decide what it answers, as those whose names begin with a dot."""


def load_variant(
    suite: Suite,
    variant: Variant,
    wrap: Callable[[Model], Model],
    *,
    agents: Mapping[str, Component] | None = None,
    mcp: Mapping[str, MCPServer] | None = None,
) -> Component:
    """Return the component of a variant, with recorded answers and the suite's fakes.

    Args:
        suite: The suite.
        variant: The variant, of blueprints.
        wrap: What its models are wrapped in.
        agents: As in `podwright.load`.
        mcp: As in `podwright.load`.

    Raises:
        ConfigurationError: It cannot be loaded.
    """
    source = variant.blueprint or suite.component

    def change(blueprint: JsonMapping) -> JsonObject:
        return changed_blueprint(blueprint, variant.changes)

    if source.is_dir():
        component = load_changed(source, change, agents=agents, mcp=mcp)
    else:
        # a blueprint by itself is one for the suite's folder
        component = load_in_folder(
            suite.component, read_file(source), agents, mcp, change=change
        )
    _prepare(component, suite, wrap)
    return component


def load_judge(path: Path, wrap: Callable[[Model], Model]) -> Component:
    """Return a judge, with recorded answers.

    Args:
        path: Its blueprint file.
        wrap: What its model is wrapped in.

    Raises:
        ConfigurationError: It cannot be loaded.
    """
    judge = load(path)
    _wrap_models(judge, wrap)
    return judge


def _prepare(
    component: Component, suite: Suite, wrap: Callable[[Model], Model]
) -> None:
    for part in walk(component):
        own = part.own_tools()
        for name in suite.fakes.keys() & own.keys():
            part.replace_tool(name, FakeTool(own[name], suite.fakes[name]))
    _wrap_models(component, wrap)


def _wrap_models(component: Component, wrap: Callable[[Model], Model]) -> None:
    for part in walk(component):
        if isinstance(part, ModelComponent):
            part.wrap_models(wrap)


def effects_of(component: Component, suite: Suite) -> dict[str, bool]:
    """Return the tools and functions that an evaluation really calls, by name, and whether they may be repeated."""
    return {
        name: tool.idempotent
        for name, tool in tools_of(component).items()
        if name not in suite.fakes
    }


def configuration_of(component: Component) -> list[str]:
    """Return the digests of a component and its parts, and the names of the models that answer here and now."""
    return [
        component_digest(component),
        *(digest(part.to_blueprint()) for part in walk(component)),
        # `use_model` may have chosen others than the blueprints name
        *(model.name for model in models_of(component)),
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
            if path.name not in _LEFT_OUT and not path.name.startswith("."):
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
