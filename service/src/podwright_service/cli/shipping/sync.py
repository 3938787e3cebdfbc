"""The command `sync`."""

from __future__ import annotations

from pathlib import Path

from podwright.blueprints.diff import describe_change
from podwright.folders.folder import Folder
from podwright_service.authoring.sync import SyncedFile, synced_files, write
from podwright_service.cli.console import print_text


def sync_folder(folder: str, added: list[str], *, check: bool) -> int:
    """Bring the tools' entries of a folder up to date with its code, and print what changes.

    Args:
        folder: The component folder.
        added: Functions in `tools.py` that become tools of the agent.
        check: Whether only to print it.

    Returns:
        The exit code: 1 if something differs and is only to be checked, else 0.

    Raises:
        PodwrightError: The code has no function for a tool, or a file cannot be read or written.
    """
    root = Folder(Path(folder))
    files = synced_files(root, added)
    changed = [file for file in files if file.changes]
    for file in files:
        _print(file, file.path.relative_to(root.path))
    if not changed:
        print_text("Up to date.")
    if check:
        return int(bool(changed))
    for file in changed:
        write(file)
        place = Path(folder, file.path.relative_to(root.path))
        print_text(f"Updated {place}.")
    return 0


def _print(file: SyncedFile, place: Path) -> None:
    for change in file.changes:
        print_text(f"{place}: {describe_change(change)}")
    for pointer in file.kept:
        print_text(f"{place}: kept: {pointer}, which the code does not say")
