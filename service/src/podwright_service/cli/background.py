"""The commands `runs …`: the background runs of a service."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import quote

from podwright.blueprints.diff import Change, describe_change
from podwright.client import (
    BackgroundRun,
    Client,
    RunStatus,
)
from podwright.data.json_data import as_object
from podwright.errors import ConfigurationError
from podwright.functions.run_context import RunAttributes
from podwright.run.printer import Printer
from podwright_service.background import check_installed
from podwright_service.cli.console import (
    AT_TERMINAL,
    print_json,
    print_text,
    read_key,
)
from podwright_service.cli.questions import parse_values, question_of
from podwright_service.remotes import name_and_key
from podwright_service.settings import adopt_secrets, read_settings


def service_client(url: str, api_key: str | None) -> Client:
    """The client of a service.

    Args:
        url: Address of the service; without a scheme it is http.
        api_key: Its API key, or `@FILE`; by default that of `PODWRIGHT_AGENT_KEYS`.

    Raises:
        ConfigurationError: The address or the key is invalid.
    """
    address = url if "://" in url else f"http://{url}"
    if api_key is None:
        _, key = name_and_key(address, read_settings())
    else:
        key = read_key(api_key)
    return Client(address, api_key=key, retries=AT_TERMINAL)


def start_run(
    client: Client, run_input: str | dict[str, Any], attributes: RunAttributes
) -> None:
    """Start a run, and print its id."""
    print_text(client.runs.start(run_input, **attributes.to_dict()).id)


def list_runs(
    client: Client,
    statuses: list[str],
    limit: int,
    *,
    caller: str | None,
    as_json: bool,
) -> None:
    """Print the newest runs, one a line."""
    runs = client.runs.list(
        *cast("list[RunStatus]", statuses), caller=caller, limit=limit
    )
    if as_json:
        print_json(
            [run.model_dump(mode="json", exclude_unset=True) for run in runs]
        )
        return
    for run in runs:
        cost = run.usage.get("cost")
        spent = f"{cost:.6f} USD" if isinstance(cost, float) else ""
        facts = (
            run.id,
            f"{run.created_at:%Y-%m-%dT%H:%M:%S}Z",
            f"{run.status:<20}",
            f"{run.component:<24}",
            f"{spent:<14}",
            run.caller or "",
        )
        print_text("  ".join(facts).rstrip())


def show_run(client: Client, run_id: str) -> None:
    """Print a run as JSON, as the service sends it."""
    print_json(client.request("GET", f"/runs/{quote(run_id, safe='')}"))


def move_run(client: Client, run_id: str, *, only_check: bool) -> None:
    """Move a run to the blueprint of the service, and print what differs, and its status.

    Args:
        client: The client of the service.
        run_id: The run.
        only_check: Whether to print only what differs.
    """
    run = client.runs.move(run_id, check=only_check)
    for change in run.changes:
        print_text(describe_change(Change(**change.model_dump())))
    if not only_check:
        print_status(run)


def print_status(run: BackgroundRun) -> None:
    """Print the status of a run that was changed, and to standard error what hinders it."""
    print_text(run.status)
    if run.notice:
        print_text(run.notice, sys.stderr)


def decide(
    client: Client,
    run_id: str,
    *,
    decision: str,
    pairs: Sequence[str],
    comment: str,
    attempt: int | None,
) -> BackgroundRun:
    """Decide about what a run waits for; returns the run.

    Args:
        client: The client of the service.
        run_id: The run.
        decision: One of the question's options.
        pairs: Changed values as `NAME=VALUE`.
        comment: Why.
        attempt: The attempt whose question was read.
    """
    values: dict[str, Any] = {}
    if pairs:
        approval = client.runs.get(run_id).approval
        data = approval.model_dump() if approval else None
        values = parse_values(question_of(data), pairs)
    return client.runs.approve(
        run_id, comment, attempt, decision=decision, values=values
    )


def follow_run(client: Client, run_id: str) -> int:
    """Print the steps of a run to standard error as they happen, and its output; returns the exit code."""
    printer = Printer(file=sys.stderr)
    for event in client.runs.events(run_id):
        printer(event)
    run = client.runs.get(run_id)
    if run.status != "succeeded":
        detail = as_object(run.problem).get("detail", run.status)
        print_text(f"The run ended: {detail}", sys.stderr)
        return 1
    result = as_object(run.result)
    output = result["output"] if set(result) == {"output"} else result
    if isinstance(output, str):
        print_text(output)
    else:
        print_json(output)
    return 0


def migrate_database() -> None:
    """Create or update the tables in the database of `PODWRIGHT_RUNS_DATABASE`.

    Raises:
        ConfigurationError: It is not set, or the database cannot be used.
    """
    check_installed()
    # slow to import
    from podwright_service.background.storage.database import (
        database_url,
        migrate,
    )

    settings = read_settings()
    adopt_secrets()
    if settings.runs_database is None:
        raise ConfigurationError(
            "There is no database to migrate.",
            suggestion="Set PODWRIGHT_RUNS_DATABASE.",
        )
    migrate(database_url(settings.runs_database.get_secret_value()))
    print_text("The tables are up to date.")
