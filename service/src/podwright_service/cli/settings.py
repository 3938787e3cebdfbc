"""The command `settings`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pydantic import SecretStr

from podwright.components.walks import models_of
from podwright.models import Model, resolve
from podwright.text import printable
from podwright_service.cli.console import print_error, print_json
from podwright_service.http.auth import ApiKeys
from podwright_service.inline.policy import inline_policy
from podwright_service.model_checks import check_cost_limits, clients_of, model_errors
from podwright_service.remotes import remotes_of
from podwright_service.settings import (
    Settings,
    adopt_secrets,
    read_settings,
    source_of,
    variables_of,
)
from podwright_service.source import load_component
from podwright_service.variables import LIBRARY, masked


def print_settings(as_json: bool, check: bool, **options: Any) -> int:
    """Print every setting with its value and its source.

    Args:
        as_json: Whether to print JSON instead of a table.
        check: Whether to print also why `serve` would not start with them, or its runs would fail.
        **options: Command line options by setting; None is not set.

    Returns:
        The exit code: 1 if the check failed.

    Raises:
        ConfigurationError: Settings are invalid or unknown.
    """
    options = {name: value for name, value in options.items() if value is not None}
    settings = read_settings(**options)
    rows = [*_service_rows(settings, options), *_library_rows()]
    if as_json:
        print_json(rows)
    else:
        _print_table(rows)
    return _check(settings) if check else 0


def _check(settings: Settings) -> int:
    """Print how models are called, and why `serve` would not start, or runs would fail; return the exit code."""
    ApiKeys(settings)
    models: list[Model | str] = list(settings.allowed_models or ())
    if settings.component:
        component = load_component(settings.component, remotes_of(settings))
        inline_policy(component, settings)
        called = [resolve(settings.model)] if settings.model else models_of(component)
        check_cost_limits(component, settings, called)
        models += called
    if settings.model:
        models = [settings.model]
    names = dict.fromkeys(
        model if isinstance(model, str) else model.name for model in models
    )
    for name, choice in clients_of(names).items():
        print(
            f"{name}: client '{choice.client}', because {choice.reason}",
            file=sys.stderr,
        )
    for error in (errors := list(model_errors(models))):
        print_error(error)
    return 1 if errors else 0


def _service_rows(settings: Settings, options: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "variable": variables_of(name)[0],
            "value": masked(getattr(settings, name)),
            "source": source_of(name, options),
            "description": field.description,
        }
        for name, field in Settings.model_fields.items()
    ]


def _library_rows() -> list[dict[str, Any]]:
    files = adopt_secrets()
    rows: list[dict[str, Any]] = []
    for name, description in LIBRARY.items():
        value = os.environ.get(name) or None
        shown = masked(SecretStr(value) if value and name.endswith("_KEY") else value)
        source = (
            f"file {files[name]}"
            if name in files
            else "environment"
            if value
            else "default"
        )
        rows.append(
            {
                "variable": name,
                "value": shown,
                "source": source,
                "description": description,
            }
        )
    return rows


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    terminal = sys.stdout.isatty()
    table = Table(
        "variable",
        "value",
        "source",
        "description",
        box=Table().box if terminal else None,
    )
    for row in rows:
        value = row["value"]
        text = (
            ""
            if value is None
            else value
            if isinstance(value, str)
            else json.dumps(value, ensure_ascii=False)
        )
        table.add_row(
            row["variable"],
            printable(text),
            printable(row["source"]),
            row["description"],
        )
    Console(
        width=None if terminal else 2000, highlight=False, markup=False, emoji=False
    ).print(table)
