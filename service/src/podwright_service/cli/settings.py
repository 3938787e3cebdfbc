"""The command `settings`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import SecretStr

from podwright.data.text import printable
from podwright.models import EVERY, Model
from podwright_service.background import (
    check_conversations,
    check_database,
    check_webhook,
)
from podwright_service.background.previous import load_previous
from podwright_service.cli.console import (
    print_error,
    print_json,
    print_table,
    print_text,
    table_of,
)
from podwright_service.http.access.auth import ApiKeys, Caller
from podwright_service.http.paths import ALL_RUNS
from podwright_service.inline.policy import inline_policy
from podwright_service.mcp_servers import servers_of, servers_of_service
from podwright_service.model_checks import (
    called_models,
    check_cost_limits,
    clients_of,
    model_errors,
)
from podwright_service.otel_variables import check_otel_variables
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
    options = {
        name: value for name, value in options.items() if value is not None
    }
    settings = read_settings(**options)
    rows = [*_service_rows(settings, options), *_library_rows()]
    if as_json:
        print_json(rows)
    else:
        _print_table(rows)
    if not check:
        return 0
    return _check(settings)


def _check(settings: Settings) -> int:
    """Print how models are called, what callers may do, and why `serve` would not start; return the exit code."""
    check_otel_variables()
    keys = ApiKeys(settings)
    for warning in _warnings(settings, keys.callers):
        print_text(warning, sys.stderr)
    check_webhook(settings)
    check_conversations(settings)
    check_database(settings)
    models: list[Model | str] = list(settings.allowed_models or ())
    if settings.component:
        component = load_component(
            settings.component, remotes_of(settings), servers_of(settings)
        )
        mcp = servers_of_service(component, settings)
        inline_policy(component, settings, mcp)
        load_previous(settings, component, mcp)
        called = called_models(component, settings)
        check_cost_limits(component, settings, called)
        models += called
    else:
        models += settings.models.values()
    if EVERY in settings.models:
        models = list(settings.models.values())
    for name, choice in clients_of(_names_of(models)).items():
        print(
            f"{name}: client '{choice.client}', because {choice.reason}",
            file=sys.stderr,
        )
    errors = list(model_errors(models))
    for error in errors:
        print_error(error)
    if errors:
        return 1
    return 0


def _warnings(settings: Settings, callers: Iterable[Caller]) -> Iterator[str]:
    """What an operator may not expect of the settings."""
    own = [
        caller.name or "a key without a name"
        for caller in callers
        if "run" in caller.scopes and ALL_RUNS not in caller.scopes
    ]
    own = sorted(set(own))
    if settings.runs_database is not None and own:
        yield (
            f"PODWRIGHT_API_KEYS: These see and change their own background runs only: {', '.join(own)}. "
            f"The scope '{ALL_RUNS}' is for those of all callers."
        )
    if settings.runs_database is None and own and not settings.state_keys:
        yield (
            "PODWRIGHT_STATE_KEYS is not set: what waits for a person goes on with the process that asked, and not "
            "after its restart."
        )
    if settings.trust_contexts:
        yield (
            "PODWRIGHT_TRUST_CONTEXTS: Callers may begin a run at any step, behind approval steps too, and say what "
            "agents have answered."
        )


def _names_of(models: Iterable[Model | str]) -> list[str]:
    """The names of models, each once."""
    names: dict[str, None] = {}
    for model in models:
        if isinstance(model, str):
            names[model] = None
        else:
            names[model.name] = None
    return list(names)


def _service_rows(
    settings: Settings, options: dict[str, Any]
) -> list[dict[str, Any]]:
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
        value: Any = os.environ.get(name) or None
        source = "default"
        if name in files:
            source = f"file {files[name]}"
        elif value:
            source = "environment"
        if value and name.endswith("_KEY"):
            value = SecretStr(value)
        row = {
            "variable": name,
            "value": masked(value),
            "source": source,
            "description": description,
        }
        rows.append(row)
    return rows


def _print_table(rows: list[dict[str, Any]]) -> None:
    table = table_of("variable", "value", "source", "description")
    for row in rows:
        table.add_row(
            row["variable"],
            printable(_text(row["value"])),
            printable(row["source"]),
            row["description"],
        )
    print_table(table)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
