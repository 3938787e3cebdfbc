"""The commands `deploy render` and `deploy diff`."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from podwright import blueprints
from podwright.blueprints.diff import describe_change
from podwright.errors import ConfigurationError
from podwright.folders.folder import Folder
from podwright_service.authoring.export import component_folder
from podwright_service.cli.console import (
    print_json,
    print_progress,
    print_text,
    read_text,
    write_text,
)
from podwright_service.cli.inputs import split_pair
from podwright_service.fleet import chart_values
from podwright_service.fleet.changes import (
    ComponentChange,
    LockedBlueprint,
    diff,
)
from podwright_service.fleet.evaluations import (
    RequiredEvaluations,
    read_reports,
)
from podwright_service.fleet.files import FilesError
from podwright_service.fleet.releases import (
    MAX_RELEASE_BYTES,
    release_bytes,
    split,
)
from podwright_service.images.credentials import note_on_credentials
from podwright_service.images.docker import Docker
from podwright_service.images.labels import blueprint_digest
from podwright_service.images.reference import (
    ImageReference,
    parse_reference,
)
from podwright_service.source import names_module

_UNCHECKED = "Not checked: code, models and their keys, which `podwright validate PATH` checks; whether images exist."
_KEEP = 3
"""The number in suggestions: a person may take longer than one or two upgrades."""


def render_values(
    sources: list[str],
    onto: str | None,
    output: str | None,
    *,
    size: int | None = None,
    images: Sequence[str] = (),
    keep: int | None = None,
    reports: Sequence[str] = (),
    strict: bool = False,
) -> None:
    """Write the chart values of components.

    Standard error says what was not checked, and if one release would be too large for Helm.

    Args:
        sources: The component folders, or `module:attribute` for each.
        onto: A file of values to update, or `-` for standard input.
        output: The file to write; by default standard output.
        size: The largest number of components in a release. Each release has a file with its name: that of `output`
            with a number.
        images: Components in images of their own, as `NAME=REFERENCE`.
        keep: How many earlier blueprints each component has at most.
        reports: Reports of evaluations, or folders with them, one of which must let each component pass; if there are
            none, components need no evaluation.
        strict: Whether a gate of them that is undecided counts as one that fails.

    Raises:
        PodwrightError: A folder cannot be deployed by the chart, a component has no evaluation that lets it pass, or a
            file cannot be read or written.
    """
    if size and output is None:
        raise ConfigurationError(
            "Several releases need several files.",
            suggestion="Name them with --output.",
        )
    if keep is not None and onto is None:
        raise ConfigurationError(
            "There are no earlier blueprints without the values of the release.",
            suggestion="Name them with --onto.",
        )
    if strict and not reports:
        raise ConfigurationError(
            "There are no gates without a report of an evaluation.",
            suggestion="Name it with --require-evaluation.",
        )
    required = None
    if reports:
        required = RequiredEvaluations(read_reports(reports), strict)
    running: dict[str, Any] = {}
    if onto:
        running = _read_values(onto)
    values = _updated(running, sources, _parse_images(images), keep, required)
    if output is None:
        _warn_of_size("the release", values)
        print_text(blueprints.to_yaml(values).rstrip("\n"))
        _print_unchecked(values)
        return
    file = Path(output)
    releases = {file.stem: values}
    if size:
        releases = split(values, file.stem, size)
    for release, part in releases.items():
        path = str(file.with_name(release + file.suffix))
        _warn_of_size(path, part)
        write_text(path, blueprints.to_yaml(part))
        print_text(f"{path}: {', '.join(part['components'])}")
    _print_unchecked(values)


def _parse_images(pairs: Sequence[str]) -> dict[str, ImageReference]:
    """The images of components by the components' names.

    Raises:
        PodwrightError: An image is not written as `NAME=REFERENCE`, its tag and its digest are missing, or a name has
            two.
    """
    images: dict[str, ImageReference] = {}
    for pair in pairs:
        name, reference = split_pair(pair, "--image")
        image = parse_reference(reference)
        if not image.tag and not image.digest:
            raise ConfigurationError(
                f"The image '{reference}' of '{name}' has no tag and no digest.",
                suggestion=f"Write --image {name}={reference}:TAG.",
            )
        if name in images:
            raise ConfigurationError(
                f"The component '{name}' has two images.",
                suggestion="Write --image once for each component.",
            )
        images[name] = image
    return images


def _print_unchecked(values: Mapping[str, Any]) -> None:
    print_text(_UNCHECKED, sys.stderr)
    in_images = chart_values.components_in_images(values)
    if in_images:
        names = ", ".join(sorted(in_images))
        text = f"Blueprint and code of these components are those in their images: {names}."
        print_text(text, sys.stderr)


@contextmanager
def _folders_of(sources: Sequence[str]) -> Generator[dict[Path, str]]:
    """The component folders of sources, with the source of each."""
    with ExitStack() as stack:
        yield {
            stack.enter_context(
                component_folder(source, print_progress)
            ): source
            for source in sources
        }


def _updated(
    running: dict[str, Any],
    sources: list[str],
    images: Mapping[str, ImageReference] | None = None,
    keep: int | None = None,
    required: RequiredEvaluations | None = None,
) -> dict[str, Any]:
    with _folders_of(sources) as folders:
        try:
            values = chart_values.update(running, folders, images, keep=keep)
            if required:
                new = {name: name for name in images or ()}
                for folder, source in folders.items():
                    new[folder.resolve().name] = source
                required.check(
                    values,
                    {
                        chart_values.component_name(name): new[name]
                        for name in new
                    },
                    _digest_in_image,
                )
            left_out = chart_values.left_out_credentials(values, folders)
            if left_out:
                print_progress(note_on_credentials(left_out))
            return values
        except FilesError as error:
            paths = {
                folder.resolve(): source for folder, source in folders.items()
            }
            source = paths[error.folder]
            name = chart_values.component_name(error.folder.name)
            image = f"REGISTRY/{name}:TAG"
            raise ConfigurationError(
                error.message,
                suggestion=(
                    f"Build an image of it with `podwright build {source} --tag {image} --push`, and add "
                    f"`--image {name}={image}` to `podwright deploy render`."
                ),
            ) from error


def _warn_of_size(name: str, values: dict[str, Any]) -> None:
    size = release_bytes(values)
    if size > MAX_RELEASE_BYTES:
        limit = MAX_RELEASE_BYTES
        text = f"{name}: about {size} bytes in Helm's Secret, which may have {limit}. Split the fleet with --split."
        print_text(text, sys.stderr)


def print_diff(running: str, new: list[str], as_json: bool) -> bool:
    """Print what new folders, or a file of values, change in a release.

    Returns:
        Whether a change is breaking, or may be, because a blueprint could not be compared.

    Raises:
        PodwrightError: A folder cannot be deployed by the chart, or a file cannot be read.
    """
    before = _read_values(running)
    is_file = len(new) == 1 and not (
        Path(new[0]).is_dir() or names_module(new[0])
    )
    folders: dict[str, LockedBlueprint] = {}
    if is_file:
        after = _read_values(new[0])
    else:
        after = _updated(before, new)
        folders = _blueprints_of(new)
    changes = diff(before, after, folders, _digest_in_image)
    if as_json:
        shown = [
            {**vars(change), "breaking": change.breaking} for change in changes
        ]
        print_json(shown)
    else:
        for change in changes:
            for line in _describe(change):
                print_text(line)
            if change.lost_blueprints:
                print_text(_waiting_runs(change, running, new, is_file=is_file))
            if change.lost_definitions:
                print_text(_runs_with_other_tools(change))
    return any(change.breaking or change.not_compared for change in changes)


def _blueprints_of(sources: Sequence[str]) -> dict[str, LockedBlueprint]:
    """The blueprints of sources, by the names of their components in values."""
    found: dict[str, LockedBlueprint] = {}
    with _folders_of(sources) as paths:
        for path in paths:
            folder = Folder(path.resolve())
            name = chart_values.component_name(folder.path.name)
            found[name] = LockedBlueprint(folder.blueprint(), folder.mcp_lock())
    return found


def _digest_in_image(reference: str) -> str | None:
    """The digest of the blueprint that the label of an image names; None if it cannot be read."""
    image = parse_reference(reference)
    if not image.tag and not image.digest:
        # the tag that the chart chooses
        return None
    try:
        configs = Docker().configs(reference)
    except ConfigurationError:
        return None
    return blueprint_digest(configs)


def _describe(change: ComponentChange) -> Iterator[str]:
    if change.what != "changed":
        kind = "compatible"
        if change.breaking:
            kind = "breaking"
        yield f"{kind}: {change.component} {change.what}"
        return
    name = change.component or "the fleet"
    for part in change.blueprint:
        yield f"{name}: {describe_change(part)}"
    if change.not_compared:
        yield f"{name}: not compared: {change.not_compared}"
    for path in change.values:
        yield f"{name}: value: {path} changed"


def _waiting_runs(
    change: ComponentChange, running: str, new: list[str], *, is_file: bool
) -> str:
    """A warning of runs that can only go on with a blueprint that new values do not have."""
    sources = " ".join(new)
    if is_file:
        sources = "FOLDER"
    release = running
    if release == "-":
        release = "RUNNING"
    digests = _shortened(change.lost_blueprints)
    return (
        f"{change.component}: warning: runs that wait may need the blueprint {digests}; to keep it: "
        f"`podwright deploy render {sources} --onto {release} --keep {_KEEP}`"
    )


def _runs_with_other_tools(change: ComponentChange) -> str:
    """A warning of runs that cannot go on, because definitions of MCP tools are others."""
    return (
        f"{change.component}: warning: runs that wait may need {_shortened(change.lost_definitions)}, which had other "
        "definitions of MCP tools: let them end before the upgrade"
    )


def _shortened(digests: Sequence[str]) -> str:
    return ", ".join(digest[:19] for digest in digests)


def _read_values(path: str) -> dict[str, Any]:
    values = chart_values.read_values(read_text(path))
    fleets = chart_values.fleets_below(values)
    if fleets:
        names = ", ".join(fleets)
        text = f"{path}: warning: its components are below: {names}. Give the values of one fleet, those below its key."
        print_text(text, sys.stderr)
    return values
