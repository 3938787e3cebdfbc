"""The command `new`: a component folder to begin with."""

from __future__ import annotations

import importlib.resources
import re
import shlex
from pathlib import Path

from podwright import Agent, blueprints
from podwright.errors import ConfigurationError
from podwright.text import os_error_reason, truncate
from podwright_service.cli.console import say
from podwright_service.scaffold import tools

_INSTRUCTIONS = "You help with sums. Add numbers with your tool, and answer in one short sentence."


def make(folder: str, model: str) -> None:
    """Make the folder and what is in it.

    Raises:
        PodwrightError: The folder's name is no name of a component, something is there already, or it cannot be made.
    """
    if not folder:
        raise ConfigurationError("The folder has no name.", suggestion="Name a folder that is not there.")
    path = Path(folder)
    name = path.resolve().name if folder == "." else path.name
    agent = Agent(name=name, instructions=_INSTRUCTIONS, model=model, description="Adds numbers up.",
                  tools=[tools.add_numbers], max_loops=5)  # fmt: skip
    # two folders side by side are tested together, and pytest wants their files to have different names
    test = f"test_{re.sub(r'[^0-9A-Za-z]+', '_', name).strip('_').lower() or 'component'}.py"
    words = {"NAME": name, "MODEL": model, "TEST": test}
    templates = importlib.resources.files("podwright_service.scaffold")
    files = {
        "blueprint.json": blueprints.to_json(agent.to_blueprint()),
        "tools.py": templates.joinpath("tools.py").read_text(encoding="utf-8"),
        test: templates.joinpath("component_test.py").read_text(encoding="utf-8"),
        "README.md": re.sub(
            r"\b(NAME|MODEL|TEST)\b",
            lambda found: words[found[0]],
            templates.joinpath("README.md").read_text(encoding="utf-8"),
        ),
    }
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise ConfigurationError(
                f"The folder '{path}' is not empty; nothing was written.", suggestion="Name a folder that is not there."
            )
        for file, text in files.items():
            with (path / file).open("x", encoding="utf-8") as opened:
                opened.write(text)
    except (OSError, ValueError) as error:
        told = f"Cannot make '{truncate(folder, 200)}': {os_error_reason(error)}."
        raise ConfigurationError(told, suggestion="Name another folder.") from error
    say(f"Made {path}: {', '.join(files)}.")
    say(f'Next: podwright run {shlex.quote(str(path))} "What is 2 + 3?"')
