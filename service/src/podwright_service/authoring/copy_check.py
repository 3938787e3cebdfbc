"""Whether a copy of a component is complete: it is loaded where nothing else of the project can be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import podwright
import podwright_service
from podwright.errors import (
    BlueprintValidationError,
    ConfigurationError,
    Problem,
)

_READS_FILES = "If its code reads files or computes names of modules, put them into a package with it, which is copied."
"""What is likely if code cannot be imported from the copy."""
_LOAD = """\
import json, sys
from pathlib import Path
import podwright
from podwright.errors import PodwrightError
from podwright.folders.walks import component_digest
from podwright.models.registry import registered_provider
result, folder, names = sys.argv[1:]
names = json.loads(names)
agents = {name: podwright.Remote(name, "http://remote.invalid") for name in names["remotes"]}
try:
    component = podwright.load(folder, agents=agents)
    answer = {"digest": component_digest(component)}
except PodwrightError as error:
    answer = {"error": error.to_dict(), "has_cause": error.__cause__ is not None}
answer["missing"] = [name for name in names["providers"] if registered_provider(name) is None]
Path(result).write_text(json.dumps(answer), encoding="utf-8")
"""
"""Loads a folder, and writes to a file what it is: its code may print, at its end too."""


def check_copy(
    folder: Path,
    digest: str,
    *,
    remotes: Collection[str],
    providers: Collection[str],
) -> None:
    """Load a folder in a process of its own.

    Args:
        folder: The component folder.
        digest: That of the blueprint that it must have.
        remotes: The names of agents that run elsewhere.
        providers: The names of the providers of models that its code must register.

    Raises:
        ConfigurationError: It cannot be loaded, is another component, or does not register a provider.
    """
    names = {"remotes": list(remotes), "providers": list(providers)}
    with tempfile.TemporaryDirectory(prefix="podwright-") as elsewhere:
        result = Path(elsewhere, "result.json").resolve()
        program = [sys.executable, "-B", "-P", "-c", _LOAD]
        done = subprocess.run(  # noqa: S603 - our own program
            [*program, result, folder.resolve(), json.dumps(names)],
            cwd=elsewhere,
            env=_environment(),
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        answer: dict[str, Any] = {}
        if result.exists():
            answer = json.loads(result.read_bytes())
    if "error" in answer:
        raise _load_error(answer["error"], has_cause=answer["has_cause"])
    if answer.get("digest") != digest:
        raise ConfigurationError(
            f"The component is another one when it is loaded from a folder: {done.stderr.strip()[-500:]}",
            suggestion="Make its blueprint and its code independent of the environment.",
        )
    if answer["missing"]:
        raise ConfigurationError(
            f"The import of its module does not register the provider '{answer['missing'][0]}'.",
            suggestion="Call register_provider in the module that defines the provider.",
        )


def _environment() -> dict[str, str]:
    """The environment, with no more of `PYTHONPATH` than the folders of Podwright itself."""
    packages = (podwright, podwright_service)
    ours = {Path(package.__path__[0]).resolve().parent for package in packages}
    variables = dict(os.environ)
    entries = variables.pop("PYTHONPATH", "").split(os.pathsep)
    folders = [Path(entry).resolve() for entry in entries if entry]
    kept = [str(folder) for folder in folders if folder in ours]
    if kept:
        variables["PYTHONPATH"] = os.pathsep.join(kept)
    return variables


def _load_error(
    error: Mapping[str, Any], *, has_cause: bool
) -> ConfigurationError:
    """The error of the process that loaded the folder.

    Args:
        error: Its data.
        has_cause: Whether another exception caused it, such as one that the code raised.
    """
    message = (
        f"The component cannot be loaded from a folder: {error['message']}"
    )
    suggestion = error["suggestion"]
    if "problems" in error:
        problems = [Problem(**problem) for problem in error["problems"]]
        return BlueprintValidationError(
            message, problems=problems, suggestion=suggestion
        )
    if has_cause:
        suggestion = _READS_FILES
    return ConfigurationError(message, suggestion=suggestion)
