"""The command `settings`: what counts, and where it comes from."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pydantic import SecretStr

from podwright.text import printable
from podwright_service.cli.console import say_json
from podwright_service.settings import Settings, adopt_secrets, read_settings, source_of, variables_of
from podwright_service.variables import LIBRARY, MODEL_CLIENTS, masked


def print_settings(given: dict[str, Any], as_json: bool) -> None:
    """Print a table, or JSON.

    Args:
        given: The options by the names of their settings; None is not given.
        as_json: Whether to print JSON.

    Raises:
        ConfigurationError: Some settings are wrong or misspelt.
    """
    given = {name: value for name, value in given.items() if value is not None}
    rows = list(_rows(read_settings(**given), given))
    if as_json:
        say_json(rows)
        return
    # for this command alone, so not at the top
    from rich.console import Console
    from rich.table import Table

    terminal = sys.stdout.isatty()
    table = Table("variable", "value", "source", "description", box=None if not terminal else Table().box)
    for row in rows:
        value = row["value"]
        shown = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        table.add_row(row["variable"], printable(shown), printable(row["source"]), row["description"])
    Console(width=None if terminal else 2000, highlight=False, markup=False, emoji=False).print(table)


def _rows(settings: Settings, given: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [
        {
            "variable": variables_of(name)[0],
            "value": masked(getattr(settings, name)),
            "source": source_of(name, given),
            "description": field.description,
        }
        for name, field in Settings.model_fields.items()
    ]
    adopted = adopt_secrets()
    for name, description in LIBRARY.items():
        value = os.environ.get(name) or None
        shown = masked(SecretStr(value) if value and name.endswith("_KEY") else value)
        source = f"file {adopted[name]}" if name in adopted else "environment" if value else "default"
        if name == "PODWRIGHT_MODEL_CLIENT":
            shown = value or MODEL_CLIENTS[0]
        rows.append({"variable": name, "value": shown, "source": source, "description": description})
    return rows
