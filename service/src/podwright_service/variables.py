"""The `PODWRIGHT_` variables and secret files: which exist, where a value comes from, and mistakes in their names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr

from podwright.data.redaction import shown_url, without_url_secrets
from podwright.data.text import most_similar
from podwright.environment import PREFIX
from podwright.errors import ConfigurationError
from podwright.settings import LibrarySettings

TESTS = "PODWRIGHT_TEST_"
"""The prefix of variables that only the tests of Podwright itself read."""
MASK = "**********"

LIBRARY = {
    str(field.alias): str(field.description)
    for field in LibrarySettings.model_fields.values()
}
"""Variables that the library reads itself."""

_SERVICE_LINK = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_LINK_URL = re.compile(r"(tcp|udp|sctp)://")
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
"""The start of a URL."""


def is_service_link(name: str, value: str) -> bool:
    """Whether Kubernetes set the variable for a Service whose name begins with "podwright"."""
    if name.endswith("_PORT") and _LINK_URL.match(value):
        return True
    return _SERVICE_LINK.fullmatch(name) is not None


def masked(value: Any) -> Any:
    """A setting's value as JSON data without secrets; of URLs, without user and password, query and fragment."""
    match value:
        case SecretStr():
            return MASK
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {key: masked(item) for key, item in items}
        case list() | tuple():
            return [masked(item) for item in cast("list[Any]", value)]
        case str() if _SCHEME.match(value):
            return shown_url(value)
        case str():
            return without_url_secrets(value)
        case _:
            return value


def unknown(known: Iterable[str], folder: Path) -> Iterator[str]:
    """A sentence for each unknown variable and each unknown or empty secret file.

    They stop the start, because a misspelled `PODWRIGHT_API_KEYS` would leave the service open.

    Args:
        known: The variables of the settings.
        folder: The folder of the secret files.
    """
    names = {*known, *LIBRARY}
    for name, value in sorted(os.environ.items()):
        upper = name.upper()
        if not upper.startswith(PREFIX) or upper.startswith(TESTS):
            continue
        if upper not in names and not is_service_link(name, value):
            yield f"Unknown variable {name}. {_suggestion(name, names)}"
    for file in secret_files(folder):
        if file.name.upper() not in names:
            yield f"Unknown setting in file {file}. {_suggestion(file.name, names)}"
        elif not file.read_bytes().strip():
            yield f"The file {file} is empty."


def _suggestion(name: str, names: Iterable[str]) -> str:
    # compared without the prefix, which would make all names look alike
    known = sorted(name.removeprefix(PREFIX) for name in names)
    similar = most_similar(name.upper().removeprefix(PREFIX), known)
    if similar is None:
        return "`podwright settings` lists all settings."
    return f"Did you mean '{PREFIX}{similar}'?"


def secret_files(folder: Path) -> list[Path]:
    """The files of settings in the folder of secrets, which need not exist."""
    if not folder.is_dir():
        return []
    named = [
        file
        for file in folder.iterdir()
        if file.name.upper().startswith(PREFIX)
    ]
    return sorted(file for file in named if file.is_file())


def origin(names: Sequence[str], option: str | None, folder: Path) -> str:
    """Where a setting's value comes from: `option …`, `environment`, `file …` or `default`.

    Args:
        names: The setting's variables, in order of precedence.
        option: The command line option that sets it, if one does.
        folder: The folder of the secret files.
    """
    if option:
        return f"option {option}"
    environment = {name.upper(): value for name, value in os.environ.items()}
    for name in names:
        value = environment.get(name)
        if value and not is_service_link(name, value):
            if name == names[0]:
                return "environment"
            return f"environment {name}"
        for file in secret_files(folder):
            if file.name.upper() == name:
                return f"file {file}"
    return "default"


def failure(mistakes: Sequence[str]) -> ConfigurationError:
    """One error for all mistakes in the settings; URLs in them are without what may be secret."""
    mistakes = [without_url_secrets(mistake) for mistake in mistakes]
    if len(mistakes) == 1:
        return ConfigurationError(
            f"Invalid setting: {mistakes[0]}", suggestion="Correct or unset it."
        )
    lines = "".join(f"\n  - {mistake}" for mistake in mistakes)
    return ConfigurationError(
        f"{len(mistakes)} invalid settings:{lines}",
        suggestion="Correct or unset them.",
    )
