"""The command `settings`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pydantic import SecretStr

from podwright.text import printable
from podwright_service.cli.console import print_json
from podwright_service.settings import Settings, adopt_secrets, read_settings, source_of, variables_of
from podwright_service.variables import LIBRARY, masked


def print_settings(options: dict[str, Any], as_json: bool) -> None:
    """Print every setting with its value and its source.

    Args:
        options: Command line options by setting; None is not set.
        as_json: Whether to print JSON instead of a table.

    Raises:
        ConfigurationError: Settings are invalid or unknown.
    """
    options = {name: value for name, value in options.items() if value is not None}
    rows = [*_service_rows(read_settings(**options), options), *_library_rows()]
    if as_json:
        print_json(rows)
    else:
        _print_table(rows)


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
        source = f"file {files[name]}" if name in files else "environment" if value else "default"
        rows.append({"variable": name, "value": shown, "source": source, "description": description})
    return rows


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    terminal = sys.stdout.isatty()
    table = Table("variable", "value", "source", "description", box=Table().box if terminal else None)
    for row in rows:
        value = row["value"]
        text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        table.add_row(row["variable"], printable(text), printable(row["source"]), row["description"])
    Console(width=None if terminal else 2000, highlight=False, markup=False, emoji=False).print(table)
