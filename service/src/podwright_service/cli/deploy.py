"""The commands `deploy render` and `deploy diff`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from podwright.blueprints.diff import describe_change
from podwright.errors import ConfigurationError
from podwright_service.authoring.export import component_folder
from podwright_service.cli.console import (
    print_json,
    print_text,
    read_text,
    write_text,
)
from podwright_service.fleet import chart_values
from podwright_service.fleet.releases import (
    MAX_RELEASE_BYTES,
    release_bytes,
    split,
)
from podwright_service.source import names_module


def render_values(
    sources: list[str], onto: str | None, output: str | None, size: int | None
) -> None:
    """Write the chart values of components.

    If one release would be too large for Helm, a warning on standard error says so.

    Args:
        sources: The component folders, or `module:attribute` for each.
        onto: A file of values to update, or `-` for standard input.
        output: The file to write; by default standard output.
        size: The largest number of components in a release. Each release has a file with its name: that of `output`
            with a number.

    Raises:
        PodwrightError: A folder cannot be deployed by the chart, or a file cannot be read or written.
    """
    if size and output is None:
        raise ConfigurationError(
            "Several releases need several files.",
            suggestion="Name them with --output.",
        )
    running: dict[str, Any] = {}
    if onto:
        running = _read_values(onto)
    values = _updated(running, sources)
    if output is None:
        _warn_of_size("the release", values)
        print_text(chart_values.write_values(values).rstrip("\n"))
        return
    file = Path(output)
    releases = {file.stem: values}
    if size:
        releases = split(values, file.stem, size)
    for release, part in releases.items():
        path = str(file.with_name(release + file.suffix))
        _warn_of_size(path, part)
        write_text(path, chart_values.write_values(part))
        print_text(f"{path}: {', '.join(part['components'])}")


def _updated(running: dict[str, Any], sources: list[str]) -> dict[str, Any]:
    with ExitStack() as stack:
        folders = [
            stack.enter_context(component_folder(source)) for source in sources
        ]
        return chart_values.update(running, folders)


def _warn_of_size(name: str, values: dict[str, Any]) -> None:
    size = release_bytes(values)
    if size > MAX_RELEASE_BYTES:
        limit = MAX_RELEASE_BYTES
        text = f"{name}: about {size} bytes in Helm's Secret, which may have {limit}. Split the fleet with --split."
        print_text(text, sys.stderr)


def print_diff(running: str, new: list[str], as_json: bool) -> bool:
    """Print what new folders, or a file of values, change in a release; return whether a change is breaking.

    Raises:
        PodwrightError: A folder cannot be deployed by the chart, or a file cannot be read.
    """
    before = _read_values(running)
    is_file = len(new) == 1 and not Path(new[0]).is_dir()
    if is_file and not names_module(new[0]):
        after = _read_values(new[0])
    else:
        after = _updated(before, new)
    changes = chart_values.diff(before, after)
    if as_json:
        shown = [
            {**vars(change), "breaking": change.breaking} for change in changes
        ]
        print_json(shown)
    else:
        for change in changes:
            for line in _describe(change):
                print_text(line)
    return any(change.breaking for change in changes)


def _describe(change: chart_values.ComponentChange) -> Iterator[str]:
    if change.what != "changed":
        kind = "compatible"
        if change.breaking:
            kind = "breaking"
        yield f"{kind}: {change.component} {change.what}"
        return
    name = change.component or "the fleet"
    for part in change.blueprint:
        yield f"{name}: {describe_change(part)}"
    for path in change.values:
        yield f"{name}: value: {path} changed"


def _read_values(path: str) -> dict[str, Any]:
    return chart_values.read_values(read_text(path))
