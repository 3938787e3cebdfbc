"""The `PODWRIGHT_` variables: which there are, what stands in them, where it came from, and what is wrong with it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr
from pydantic_core import ErrorDetails

from podwright.errors import ConfigurationError
from podwright.text import did_you_mean, truncate

PREFIX = "PODWRIGHT_"

LIBRARY = {
    "PODWRIGHT_MODEL_CLIENT": "How models are called: `auto`, `openai` (OpenAI-compatible client) or `litellm`.",
    "PODWRIGHT_MODEL_BASE_URL": "Endpoint of all models that are called as Chat Completions.",
    "PODWRIGHT_MODEL_API_KEY": "Key for that endpoint.",
    "PODWRIGHT_TRUST_ENV": "Whether models and remotes are called through HTTP_PROXY and HTTPS_PROXY, except NO_PROXY.",
    "PODWRIGHT_PRICES": "A file of prices that stand over all others.",
}
"""What the library reads from the environment by itself."""

_LINK = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_LINK_PORT = re.compile(r"(tcp|udp|sctp)://")

_MASK = "**********"
_HIDDEN = re.compile(r"//[^/@\s]*@")
"""The user and password of a URL."""


def is_link(name: str, value: str) -> bool:
    """Whether Kubernetes set this variable to tell of a Service whose name begins with "podwright"."""
    return bool(_LINK.fullmatch(name) or (name.endswith("_PORT") and _LINK_PORT.match(value)))


def masked(value: Any) -> Any:
    """A setting's value as JSON data that may be shown."""
    match value:
        case SecretStr():
            return _MASK
        case dict():
            return {key: masked(one) for key, one in cast("dict[str, Any]", value).items()}
        case list() | tuple():
            return [masked(one) for one in cast("list[Any]", value)]
        case str():
            return _HIDDEN.sub(f"//{_MASK}@", value)
        case _:
            return value


def unknown(known: Iterable[str], secrets: Path) -> Iterator[str]:
    """What is wrong with the names of variables and secret files, a sentence each.

    A misspelt setting is as none: a service could stand open because of one letter.

    Args:
        known: The variables that there are.
        secrets: The folder of the secret files.
    """
    names = {*known, *LIBRARY}
    for name, value in sorted(os.environ.items()):
        if name.upper().startswith(PREFIX) and name.upper() not in names and not is_link(name, value):
            yield f"There is no setting {name}. {_nearest(name, names)}"
    for name in secret_files(secrets):
        if name.upper() not in names:
            yield f"There is no setting for the file {secrets / name}. {_nearest(name, names)}"
        elif not (secrets / name).read_bytes().strip():
            yield f"The file {secrets / name} is empty."


def _nearest(name: str, names: Iterable[str]) -> str:
    # without the prefix, which would make everything look alike
    said = did_you_mean(name.upper().removeprefix(PREFIX), sorted(one.removeprefix(PREFIX) for one in names))
    return said.replace("'", f"'{PREFIX}", 1) if said.startswith("Did") else "`podwright settings` lists all."


def secret_files(folder: Path) -> list[str]:
    """Names of the files of settings in a folder of secrets, which need not exist."""
    if not folder.is_dir():
        return []
    return sorted(one.name for one in folder.iterdir() if one.name.lower().startswith(PREFIX.lower()) and one.is_file())


def origin(names: Iterable[str], option: str | None, secrets: Path) -> str:
    """Where a setting's value came from: `option …`, `environment`, `file …` or `default`.

    Args:
        names: Its variables, the one that counts first.
        option: The option that was given for it on the command line, if any.
        secrets: The folder of the secret files.
    """
    if option:
        return f"option {option}"
    ignored = ""
    variables = {name.upper(): value for name, value in os.environ.items() if value}
    for name in names:
        if (value := variables.get(name)) is not None:
            if not (name.endswith("_PORT") and _LINK_PORT.match(value)):
                return f"environment {name}" if name != next(iter(names)) else "environment"
            ignored = f" ({name}={value} is Kubernetes' link to a Service named podwright, and ignored)"
        for file in secret_files(secrets):
            if file.upper() == name:
                return f"file {secrets / file}"
    return f"default{ignored}"


_EXPECTED = {
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_parsing": "a number",
    "bool_parsing": "true or false",
    "finite_number": "a finite number",
    "string_type": "a text",
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "{le} or less",
    "literal_error": "{expected}",
    "value_error": "{error}",
}


def wrong(error: ErrorDetails, name: str, secret: bool) -> str:
    """What is wrong with a value, in a sentence.

    Args:
        error: What pydantic found.
        name: The variable, option or file that the value stands in.
        secret: Whether the value must not be shown.
    """
    inner = "".join(f"[{part!r}]" for part in error["loc"][1:] if part != "[key]")
    given = "what it is" if secret else truncate(repr(masked(error["input"])), 100)
    context: Mapping[str, Any] = error.get("ctx", {})
    wanted = _EXPECTED.get(error["type"])
    if wanted is None:
        return f"{name}{inner} is {given}: {error['msg']}."
    return f"{name}{inner} must be {wanted.format_map(context)}, not {given}."


def failure(sentences: list[str]) -> ConfigurationError:
    """The one error that tells of all wrong settings."""
    if len(sentences) == 1:
        return ConfigurationError(f"A setting is wrong: {sentences[0]}", suggestion="Correct or unset it.")
    told = "".join(f"\n  - {one}" for one in sentences)
    return ConfigurationError(f"{len(sentences)} settings are wrong:{told}", suggestion="Correct or unset them.")
