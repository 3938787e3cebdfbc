"""The command `sync`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from podwright.blueprints.diff import describe_change
from podwright.blueprints.mcp_tools import mcp_servers
from podwright.errors import ConfigurationError
from podwright.folders.folder import Folder
from podwright.mcp.lock import LOCK_FILE
from podwright_service.authoring.sync import (
    SyncedFile,
    agent_file,
    synced_files,
    write,
)
from podwright_service.cli.console import print_text
from podwright_service.settings import read_settings

if TYPE_CHECKING:
    from podwright.mcp.server import ToolListing
    from podwright_service.authoring.mcp_sync import SyncedLock


def sync_folder(
    folder: str,
    added: list[str],
    servers: Sequence[str],
    *,
    to: str = "",
    check: bool,
) -> int:
    """Bring the tools and the schemas of a folder up to date with its code and MCP servers, and print what changes.

    Args:
        folder: The component folder.
        added: Functions in `tools.py` that become tools of the agent; if a server is asked, tools of that server.
        to: The agent in `agents/` that gets them; empty for the component itself.
        servers: The MCP servers to ask, each as `NAME`, `NAME=URL` or `NAME=COMMAND ARGUMENT…`; no other is called.
        check: Whether only to print what changes.

    Returns:
        The exit code: 1 if something differs and is only to be checked, else 0.

    Raises:
        PodwrightError: The code has no function for a tool or no type for a schema, a server is not reachable, does not
            have a tool or is in no blueprint, or a file cannot be read or written.
    """
    root = Folder(Path(folder))
    receiver = agent_file(root, to) if to else root.blueprint_file()
    files = synced_files(root, [] if servers else added, receiver)
    [receiving] = [file for file in files if file.path == receiver]
    locks = _locks(root, files, receiving, added, servers)
    changed = [file for file in files if file.changes]
    changed_locks = [lock for lock in locks if lock.changes]
    for file in files:
        _print(file, file.path.relative_to(root.path))
    for lock in locks:
        _print_lock(lock, lock.path.relative_to(root.path))
    is_missing = any(lock.missing for lock in locks)
    if not changed and not changed_locks and not is_missing:
        print_text("Up to date.")
    if check:
        return int(bool(changed or changed_locks) or is_missing)
    for file in changed:
        write(file)
    for lock in changed_locks:
        lock.lock.write_file(lock.path)
    for path in [file.path for file in changed] + [
        lock.path for lock in changed_locks
    ]:
        place = Path(folder, path.relative_to(root.path))
        print_text(f"Updated {place}.")
    return 0


def _locks(
    root: Folder,
    files: Sequence[SyncedFile],
    receiving: SyncedFile,
    added: Sequence[str],
    servers: Sequence[str],
) -> Sequence[SyncedLock]:
    """The locks of the folder; nothing of MCP is needed for one without.

    Raises:
        PodwrightError: See `sync_folder`.
    """
    has_lock = any(_has_lock(folder) for folder in _folders(root))
    has_servers = any(mcp_servers(file.blueprint) for file in files)
    if not (has_lock or has_servers or servers):
        return ()
    from podwright_service.authoring.mcp_sync import (
        add_tools,
        check_named,
        list_tools,
        named_servers,
        synced_locks,
    )

    listings: dict[str, ToolListing] = {}
    if servers:
        if added and len(servers) > 1:
            raise ConfigurationError(
                "--add names tools of one MCP server, and there are several.",
                suggestion="Run the command for each server.",
            )
        asked = named_servers(servers, read_settings())
        if not added:
            check_named(asked, files)
        listings = list_tools(asked)
        if added:
            [(name, listing)] = listings.items()
            add_tools(receiving, name, added, listing)
    return synced_locks(root, files, listings)


def _folders(folder: Folder) -> Iterator[Folder]:
    """The component folder, and the folders of its agents in it."""
    yield folder
    for agent in folder.agent_folders():
        yield from _folders(agent)


def _has_lock(folder: Folder) -> bool:
    return (folder.path / LOCK_FILE).exists()


def _print(file: SyncedFile, place: Path) -> None:
    for change in file.changes:
        print_text(f"{place}: {describe_change(change)}")
    for pointer in file.kept:
        print_text(f"{place}: kept: {pointer}, which the code does not say")


def _print_lock(lock: SyncedLock, place: Path) -> None:
    for change in lock.changes:
        print_text(f"{place}: {describe_change(change)}")
    for name in lock.missing:
        print_text(
            f"{place}: missing: the tool '{name.tool}' of the MCP server '{name.server}'; give the option "
            f"--mcp {name.server}"
        )
