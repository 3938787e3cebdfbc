"""The files of a component folder in the values of the chart, which puts them into a ConfigMap."""

from __future__ import annotations

import re
from pathlib import Path

from podwright import blueprints
from podwright.data.text import os_error_reason
from podwright.errors import ConfigurationError
from podwright.folders.folder import Folder
from podwright_service.images.context import (
    component_files,
    credentials_below,
    existing_texts,
    requirements,
    shared_packages,
    texts_of,
)

MAX_CONFIG_MAP_BYTES = 900_000
"""Kubernetes accepts 1 MiB, including names and the blueprint."""
_FILE = re.compile(r"[-_a-zA-Z0-9]+([./][-_a-zA-Z0-9]+)*")
"""The path of a file, as the schema of the values has it."""
_ABOUT = re.compile(
    r"(README|CHANGELOG|LICEN[CS]E|NOTICE)((-[^.]*)?|([-.].*)?\.(md|rst|txt))"
)
"""The names of files for those who read the folder, such as `README.de.md` and `LICENSE-MIT`."""


class FilesError(ConfigurationError):
    """A ConfigMap cannot hold the files of a component, which needs an image.

    Args:
        folder: The folder of the component.
    """

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f"A ConfigMap cannot hold the files of the component '{folder.name}': {reason}.",
            suggestion="Build an image of the component, and set it in the values.",
        )
        self.folder = folder


def files_of(component: Folder) -> dict[str, str]:
    """The texts of a component's files by path, with those of shared packages and without the blueprint.

    What is only for readers is left out, unless a blueprint has a text in it: README, CHANGELOG, LICENSE and
    NOTICE, without a suffix or as `.md`, `.rst` or `.txt`.

    Raises:
        FilesError: A ConfigMap cannot hold them.
        ConfigurationError: A file cannot be read.
    """
    folder = component.path
    dependencies = requirements(folder)
    if dependencies:
        raise FilesError(folder, f"it has dependencies in {dependencies}")
    contents = _contents(folder)
    for name, package in shared_packages([component]).items():
        for path, content in _contents(package).items():
            contents[f"{name}/{path}"] = content
    size = sum(len(content) for content in contents.values())
    if size > MAX_CONFIG_MAP_BYTES:
        reason = f"they have more than {MAX_CONFIG_MAP_BYTES} bytes"
        raise FilesError(folder, reason)
    in_blueprint = texts_of(component.blueprint_file())
    texts: dict[str, str] = {}
    for name, content in contents.items():
        if not _FILE.fullmatch(name):
            # the values have the text itself
            if folder / name in in_blueprint:
                continue
            reason = f"the chart cannot have the name '{name}'"
            raise FilesError(folder, reason)
        try:
            texts[name] = content.decode()
        except UnicodeDecodeError:
            raise FilesError(folder, f"'{name}' is not UTF-8 text") from None
    return texts


def files_with_credentials(component: Folder) -> list[str]:
    """The files and hidden folders with credentials that the values are without.

    Raises:
        ConfigurationError: A file cannot be read.
    """
    folder = component.path
    packages = shared_packages([component])
    try:
        found = [str(file) for file in credentials_below(folder)]
        for name, package in packages.items():
            found += [f"{name}/{file}" for file in credentials_below(package)]
    except OSError as error:
        raise _read_error(folder, error) from error
    return found


def _contents(folder: Path) -> dict[str, bytes]:
    blueprint_files = {f"blueprint{suffix}" for suffix in blueprints.SUFFIXES}
    texts = set(existing_texts(folder))
    contents: dict[str, bytes] = {}
    try:
        for file in component_files(folder):
            path = folder / file
            if str(file) in blueprint_files:
                continue
            if _ABOUT.fullmatch(file.name) and path not in texts:
                continue
            contents[file.as_posix()] = path.read_bytes()
    except OSError as error:
        raise _read_error(folder, error) from error
    return contents


def _read_error(folder: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"Cannot read the folder '{folder.name}': {os_error_reason(error)}: {error.filename}.",
        suggestion="Make it readable for this user.",
    )
