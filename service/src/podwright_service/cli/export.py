"""The command `export`."""

from __future__ import annotations

import sys
from pathlib import Path

from podwright_service.authoring.export import export
from podwright_service.cli.console import print_text


def export_component(source: str, output: str | None) -> None:
    """Write a component as a folder, and print what it has.

    Args:
        source: A component folder, a blueprint file, or `module:attribute`.
        output: The new folder; by default one with the name of the component, in the working directory.

    Raises:
        PodwrightError: See `export`.
    """
    target = None
    if output is not None:
        target = Path(output)
    exported = export(source, target)
    print_text(f"Created {exported.folder}: {exported.digest}")
    for file in exported.files:
        print_text(f"  {file}")
    for note in exported.notes:
        print_text(f"Note: {note}", sys.stderr)
