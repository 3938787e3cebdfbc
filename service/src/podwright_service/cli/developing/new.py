"""The command `new`."""

from __future__ import annotations

import importlib.resources
import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from podwright import blueprints
from podwright.data.json_data import JsonObject
from podwright.data.text import did_you_mean, os_error_reason, truncate
from podwright.errors import ConfigurationError
from podwright.evaluation.suite_schema import suite_schema
from podwright_service.cli.console import print_text

_TEMPLATES = importlib.resources.files("podwright_service.scaffold")
_EXAMPLES = _TEMPLATES / "examples"
_SCHEMAS = ".podwright"
"""The folder with the schemas for editors: a hidden one, which no image has."""
_TASKS: Mapping[str, str] = {
    "agent": "What is 2 + 3?",
    "workflow": "The moon is round, and it is far away.",
    "conductor": "Which shape has the moon?",
    "pipeline": "The moon",
}
"""Inputs to try a new component with."""


def create(folder: str, example: str | None, **options: str | None) -> None:
    """Create a component folder, or copy an example into it.

    Args:
        folder: The folder to create.
        example: The name of an example; None creates a component.
        **options: Those of `create_component`; None is not given.

    Raises:
        PodwrightError: As the two functions; or there are options for an example.
    """
    given = {key: value for key, value in options.items() if value is not None}
    if example is None:
        create_component(folder, **given)
    elif given:
        raise ConfigurationError(
            "An example is copied as it is.",
            suggestion="Leave --model, --kind and --format out; `podwright run --model` takes another model.",
        )
    else:
        create_example(folder, example)


def create_component(
    folder: str,
    model: str = "offline/echo",
    kind: str = "agent",
    file_format: str = "json",
) -> None:
    """Create a component folder with a blueprint, code, tests, a README, and schemas for editors.

    Args:
        folder: The folder to create; its name becomes that of the component.
        model: The model that the blueprints name.
        kind: The kind of component.
        file_format: The format of the blueprints: `json` or `yaml`.

    Raises:
        PodwrightError: The folder's name is not valid for a component, the kind or the format is unknown, the folder
            is not empty, or it cannot be written.
    """
    _check_choice("kind", kind, _TASKS)
    _check_choice("format", file_format, ("json", "yaml"))
    path = Path(folder)
    template = _Template(path.absolute().name, model, file_format)
    files = dict(template.files(_TEMPLATES / kind))
    _write_folder(path, files)
    task = shlex.quote(_TASKS[kind])
    print_text(f"Next: podwright run {shlex.quote(str(path))} {task}")


def create_example(folder: str, example: str) -> None:
    """Copy an example.

    Raises:
        ConfigurationError: There is no such example, the folder is not empty, or it cannot be written.
    """
    known = sorted(entry.name for entry in _EXAMPLES.iterdir())
    _check_choice("example", example, known)
    path = Path(folder)
    files: dict[str, str] = {}
    for name, file in _files_in(_EXAMPLES / example):
        files[name] = file.read_text(encoding="utf-8")
    _write_folder(path, files)
    print_text(f"Next: read {path / 'README.md'}")


def _check_choice(option: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise ConfigurationError(
            f"Unknown {option} '{truncate(value, 60)}'.",
            suggestion=did_you_mean(value.lower(), choices),
        )


def _write_folder(path: Path, files: Mapping[str, str]) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise ConfigurationError(
                f"The folder '{path}' is not empty.",
                suggestion="Name a new folder.",
            )
        for name, text in files.items():
            file = path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"Cannot create '{truncate(str(path), 200)}': {os_error_reason(error)}.",
            suggestion="Name another folder.",
        ) from error
    shown = [name for name in files if not name.startswith(".")]
    print_text(f"Created {path}: {', '.join(shown)}.")


def _files_in(
    folder: Traversable, above: str = ""
) -> Iterator[tuple[str, Traversable]]:
    """The files of a folder of the package, by their paths."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name == "__pycache__":
            continue
        if entry.is_dir():
            yield from _files_in(entry, f"{above}{entry.name}/")
        else:
            yield above + entry.name, entry


class _Template:
    """Makes the files of a component of those of a template.

    Args:
        name: The name of the component.
        model: Its model.
        file_format: The format of its blueprints.
    """

    def __init__(self, name: str, model: str, file_format: str) -> None:
        self._name = name
        self._model = model
        self._format = file_format
        # pytest needs different names for the test files of folders that are tested together
        words = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_").lower()
        self._test = f"test_{words or 'component'}.py"

    def files(self, template: Traversable) -> Iterator[tuple[str, str]]:
        """The paths and texts of the files.

        Raises:
            BlueprintValidationError: The name is not valid for a component.
        """
        schemas = blueprints.file_schema()
        suites = blueprints.to_json(suite_schema())
        yield f"{_SCHEMAS}/evals.schema.json", suites
        for path, file in _files_in(template):
            text = file.read_text(encoding="utf-8")
            name = PurePosixPath(path)
            if name.suffix == ".json":
                data = self._fill_in(text)
                kind = blueprints.kind_of(data)
                if name.stem == "blueprint":
                    blueprints.check(data)
                schema = f"{_SCHEMAS}/{kind}.schema.json"
                yield schema, blueprints.to_json(schemas[kind])
                above = "../" * len(name.parent.parts) or "./"
                blueprint = self._write(data, above + schema)
                yield str(name.with_suffix(f".{self._format}")), blueprint
            elif path == "README.md":
                yield path, self._readme(text)
            elif path == "component_test.py":
                yield self._test, text
            else:
                yield path, text

    def _fill_in(self, text: str) -> JsonObject:
        """The data of a blueprint with the name and the model."""
        values = {"NAME": self._name, "MODEL": self._model}
        for placeholder, value in values.items():
            text = text.replace(f'"{placeholder}"', json.dumps(value))
        return blueprints.from_json(text)

    def _write(self, blueprint: JsonObject, schema: str) -> str:
        """The text of a blueprint file that tells editors its schema."""
        if self._format == "yaml":
            comment = f"# yaml-language-server: $schema={schema}\n"
            return comment + blueprints.to_yaml(blueprint)
        return blueprints.to_json({"$schema": schema, **blueprint})

    def _readme(self, text: str) -> str:
        common = (_TEMPLATES / "common.md").read_text(encoding="utf-8")
        values = {
            "NAME": self._name,
            "MODEL": self._model,
            "TEST": self._test,
            "BLUEPRINT": f"blueprint.{self._format}",
        }
        return re.sub(
            r"\b(NAME|MODEL|TEST|BLUEPRINT)\b",
            lambda match: values[match[0]],
            text + common,
        )
