"""The command `new`."""

from __future__ import annotations

import importlib.resources
import re
import shlex
from pathlib import Path

from podwright import Agent, blueprints
from podwright.errors import ConfigurationError
from podwright.text import os_error_reason, truncate
from podwright_service.cli.console import print_text
from podwright_service.scaffold import tools

_INSTRUCTIONS = "You help with sums. Add numbers with your tool, and answer in one short sentence."


def create_component(folder: str, model: str) -> None:
    """Create a component folder with a blueprint, a tool, tests and a README.

    Raises:
        PodwrightError: The folder's name is not valid for a component, the folder is not empty, or it cannot be
            written.
    """
    path = Path(folder)
    name = path.name
    if folder == ".":
        name = path.resolve().name
    files = _files(name, model)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise ConfigurationError(
                f"The folder '{path}' is not empty.",
                suggestion="Name a new folder.",
            )
        for file, text in files.items():
            (path / file).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"Cannot create '{truncate(folder, 200)}': {os_error_reason(error)}.",
            suggestion="Name another folder.",
        ) from error
    print_text(f"Created {path}: {', '.join(files)}.")
    print_text(f'Next: podwright run {shlex.quote(str(path))} "What is 2 + 3?"')


def _files(name: str, model: str) -> dict[str, str]:
    """The texts of the files by name.

    Raises:
        PodwrightError: The name is not valid for a component.
    """
    agent = Agent(
        name=name,
        instructions=_INSTRUCTIONS,
        model=model,
        description="Adds numbers up.",
        tools=[tools.add_numbers],
        max_loops=5,
    )
    # pytest needs different names for the test files of folders that are tested together
    words = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_").lower()
    test = f"test_{words or 'component'}.py"
    templates = importlib.resources.files("podwright_service.scaffold")
    readme = templates.joinpath("README.md").read_text(encoding="utf-8")
    values = {"NAME": name, "MODEL": model, "TEST": test}
    readme = re.sub(
        r"\b(NAME|MODEL|TEST)\b", lambda match: values[match[0]], readme
    )
    return {
        "blueprint.json": blueprints.to_json(agent.to_blueprint()),
        "tools.py": templates.joinpath("tools.py").read_text(encoding="utf-8"),
        test: templates.joinpath("component_test.py").read_text(
            encoding="utf-8"
        ),
        "README.md": readme,
    }
