"""The command `export`."""

from __future__ import annotations

import sys
from pathlib import Path

from podwright.blueprints import digest, to_json
from podwright.data.text import os_error_reason
from podwright.errors import ConfigurationError
from podwright_service.authoring.export import export
from podwright_service.cli.console import print_progress, print_text
from podwright_service.source import load_component


def export_component(source: str, output: str | None) -> None:
    """Write a component as a folder, or its blueprint as a file, and print what was written.

    Args:
        source: A component folder, a blueprint file, or `module:attribute`.
        output: The new folder, or a file that ends in `.json`; by default a folder in the working
            directory with the name of the component.

    Raises:
        PodwrightError: See `export`.
    """
    target = None
    if output is not None:
        target = Path(output)
        if target.suffix == ".json":
            _export_blueprint(source, target)
            return
    exported = export(source, target, report=print_progress)
    print_text(f"Created {exported.folder}: {exported.digest}")
    for file in exported.files:
        print_text(f"  {file}")
    for note in exported.notes:
        print_text(f"Note: {note}", sys.stderr)


def _export_blueprint(source: str, target: Path) -> None:
    """Write the blueprint alone, with the texts that it has in files."""
    blueprint = load_component(source).to_blueprint()
    try:
        target.write_text(to_json(blueprint), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"Cannot write '{target}': {os_error_reason(error)}.",
            suggestion="Name a file in a folder that this user can write to.",
        ) from error
    print_text(f"Created {target}: {digest(blueprint)}")
