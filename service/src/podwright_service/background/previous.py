"""Earlier blueprints of the served component, with which runs that began with them are performed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import podwright
from podwright import blueprints
from podwright.blueprints.texts import text_files
from podwright.blueprints.validation import Blueprint
from podwright.components import Component
from podwright.data.text import os_error_reason
from podwright.errors import (
    BlueprintValidationError,
    ConfigurationError,
    ModelAuthenticationError,
    PodwrightError,
)
from podwright.folders.loader import load_in_folder
from podwright.folders.walks import (
    component_digest,
    conditions_of,
    models_of,
    tools_of,
    walk,
)
from podwright.models import Model, use_model
from podwright_service.model_checks import check_cost_limits, model_errors
from podwright_service.remotes import remotes_of
from podwright_service.settings import Settings
from podwright_service.source import is_folder

if TYPE_CHECKING:
    from podwright.mcp.server import MCPServer

_MAX_PROBLEMS = 3
"""Most problems that are told of a blueprint; `podwright validate` tells all of them."""

_log = logging.getLogger("podwright.background")


@dataclass(frozen=True, slots=True)
class Misfit:
    """An earlier blueprint that the service cannot perform."""

    blueprint: Blueprint
    reason: str
    """Why, in sentences."""
    is_of_code: bool
    """Whether the code does not fit it; else its models or the settings do not."""


@dataclass(frozen=True, slots=True)
class Previous:
    """The earlier blueprints that a service was given, by digest."""

    components: Mapping[str, Component] = field(
        default_factory=dict[str, Component]
    )
    """Those that it can perform, as components."""
    models: Sequence[Model] = ()
    """The models that these call."""
    misfits: Mapping[str, Misfit] = field(default_factory=dict[str, Misfit])
    """The others."""


def load_previous(
    settings: Settings, component: Component, mcp: Mapping[str, MCPServer]
) -> Previous:
    """Load the earlier blueprints in the folder of the setting `previous`; a warning is logged for each misfit.

    They have the code and the agents that the served component has now.

    Args:
        settings: The folder, and the source of the served component.
        component: The served component.
        mcp: The MCP servers of the service.

    Raises:
        ConfigurationError: The folder or a file cannot be read, or a file is of another component.
        BlueprintValidationError: A file is not a valid blueprint.
    """
    if settings.previous is None:
        return Previous()
    if settings.runs_database is None:
        _log.warning(
            "PODWRIGHT_PREVIOUS has no effect without PODWRIGHT_RUNS_DATABASE: only background runs need earlier "
            "blueprints."
        )
        return Previous()
    served = blueprints.digest(component.to_blueprint())
    components: dict[str, Component] = {}
    models: list[Model] = []
    misfits: dict[str, Misfit] = {}
    for file in _files(settings):
        blueprint = _read(file, component)
        digest = blueprints.digest(blueprint)
        # after a rollback, the folder has the present one too
        if digest == served:
            continue
        try:
            earlier = _load(blueprint, settings, component, mcp)
            models.extend(_checked_models(earlier, settings))
        except PodwrightError as error:
            misfits[digest] = _misfit(blueprint, error)
            _log.warning(
                "PODWRIGHT_PREVIOUS: The earlier blueprint %s in '%s' cannot be performed: %s",
                digest,
                file,
                misfits[digest].reason,
            )
        else:
            components[component_digest(earlier)] = earlier
    return Previous(components, models, misfits)


def _files(settings: Settings) -> list[Path]:
    folder = Path(cast("str", settings.previous))
    place = settings.place_of("previous")
    try:
        entries = sorted(folder.iterdir())
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{place}: Cannot read the folder '{folder}': {os_error_reason(error)}.",
            suggestion="Name a folder of blueprint files, or unset it.",
        ) from error
    return [
        file
        for file in entries
        # Kubernetes mounts files as links to those of a hidden folder
        if file.suffix in blueprints.SUFFIXES and not file.name.startswith(".")
    ]


def _read(file: Path, component: Component) -> Blueprint:
    try:
        blueprint = blueprints.read_file(file)
    except BlueprintValidationError as error:
        if not text_files(blueprints.read_source(file)):
            raise
        raise BlueprintValidationError(
            f"The earlier blueprint '{file}' has texts in files that are not beside it.",
            problems=error.problems,
            suggestion="Write it with all its texts: `podwright export COMPONENT --output previous/NAME.json`.",
        ) from error
    problems = blueprints.problems(blueprint)
    if problems:
        raise blueprints.invalid(problems, f"The earlier blueprint '{file}'")
    if blueprint["name"] != component.name:
        raise ConfigurationError(
            f"The earlier blueprint '{file}' is of '{blueprint['name']}', and this service is of '{component.name}'.",
            suggestion="Remove it from the folder of PODWRIGHT_PREVIOUS.",
        )
    return blueprint


def _load(
    blueprint: Blueprint,
    settings: Settings,
    component: Component,
    mcp: Mapping[str, MCPServer],
) -> Component:
    """The component of an earlier blueprint.

    Raises:
        PodwrightError: The code does not fit it.
    """
    remotes = remotes_of(settings)
    source = settings.component
    if source is not None and is_folder(source):
        return load_in_folder(source, blueprint, remotes, mcp)
    parts = dict(_parts(component))
    tools = tools_of(component)
    return podwright.load(
        blueprint,
        tools=tuple(tools.values()),
        agents={**remotes, **parts},
        conditions=conditions_of(component),
        functions=tools,
        mcp=mcp,
    )


def _misfit(blueprint: Blueprint, error: PodwrightError) -> Misfit:
    """What is known of a blueprint because of an error."""
    if not isinstance(error, BlueprintValidationError):
        return Misfit(blueprint, error.message, is_of_code=False)
    # a valid blueprint: what its tools, functions or agents lack
    details = [f"{each.pointer}: {each.detail}" for each in error.problems]
    reason = " ".join([error.message, *details[:_MAX_PROBLEMS]])
    return Misfit(blueprint, reason, is_of_code=True)


def _parts(component: Component) -> Iterator[tuple[str, Component]]:
    """The components inside a component, by name."""
    for part in walk(component):
        if part is not component:
            yield part.name, part


def _checked_models(component: Component, settings: Settings) -> list[Model]:
    """The models that a component calls.

    Raises:
        PodwrightError: One of them cannot be called.
    """
    with use_model(settings.models):
        models = models_of(component)
    for error in model_errors(models):
        if not isinstance(error, ModelAuthenticationError):
            raise error
    check_cost_limits(component, settings, models)
    return models
