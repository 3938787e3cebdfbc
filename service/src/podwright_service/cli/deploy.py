"""The commands `deploy render` and `deploy diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from podwright_service import deploy
from podwright_service.cli.blueprints import describe_change
from podwright_service.cli.console import print_json, print_text, read_text, write_text


def render_values(folders: list[str], onto: str | None, output: str | None) -> None:
    """Write the chart values of component folders.

    Args:
        folders: The component folders.
        onto: A file of values to update, or `-` for standard input.
        output: The file to write; by default standard output.

    Raises:
        PodwrightError: A folder cannot be deployed by the chart, or a file cannot be read or written.
    """
    values = deploy.update(_read_values(onto) if onto else {}, folders)
    text = deploy.write_values(values)
    if output is None:
        print_text(text.rstrip("\n"))
    else:
        write_text(output, text)
        print_text(f"{output}: {', '.join(values['components'])}")


def print_diff(running: str, new: list[str], as_json: bool) -> bool:
    """Print what new folders, or a file of values, change in a release; return whether a change is breaking.

    Raises:
        PodwrightError: A folder cannot be deployed by the chart, or a file cannot be read.
    """
    before = _read_values(running)
    is_file = len(new) == 1 and not Path(new[0]).is_dir()
    changes = deploy.diff(before, _read_values(new[0]) if is_file else deploy.update(before, new))
    if as_json:
        print_json([{**vars(change), "breaking": change.breaking} for change in changes])
    else:
        for change in changes:
            for line in _describe(change):
                print_text(line)
    return any(change.breaking for change in changes)


def _describe(change: deploy.ComponentChange) -> list[str]:
    if change.what != "changed":
        return [f"{'breaking' if change.breaking else 'compatible'}: {change.component} {change.what}"]
    lines = [describe_change(part) for part in change.blueprint] + [f"value: {path} changed" for path in change.values]
    return [f"{change.component or 'the fleet'}: {line}" for line in lines]


def _read_values(path: str) -> dict[str, Any]:
    return deploy.read_values(read_text(path))
