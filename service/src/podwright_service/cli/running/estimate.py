"""The command `estimate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from podwright.data.json_data import JsonMapping
from podwright.errors import InputsError
from podwright.estimates.estimate import Amounts, Estimate, estimate
from podwright.models import use_model
from podwright_service.cli.console import (
    print_json,
    print_table,
    print_text,
    table_of,
)
from podwright_service.cli.inputs import read_input, with_all_inputs
from podwright_service.cli.traces import read_trace
from podwright_service.mcp_servers import servers_of_options
from podwright_service.model_checks import check_agents
from podwright_service.remotes import remotes_of
from podwright_service.settings import adopt_secrets, read_settings
from podwright_service.source import load_component

_UNKNOWN = "unknown"


def print_estimate(
    path: str,
    texts: Sequence[str] = (),
    inputs: str | None = None,
    *,
    pairs: Sequence[str] = (),
    model: str | None = None,
    mcp: Sequence[str] = (),
    runs: int = 1,
    trace_files: Sequence[str] = (),
    as_json: bool = False,
) -> None:
    """Print what runs of a component need at least, usually and at most.

    Args:
        path: A blueprint file, a component folder, or `module:attribute`.
        texts: Inputs, each of a run of its own; `-` is standard input. Without any, and without named inputs, the input
            is not known.
        inputs: Named inputs as a JSON object, or `@FILE`.
        pairs: Further named inputs as `NAME=VALUE`.
        model: Models in place of those in the blueprint, as in the setting `model`.
        mcp: Further MCP servers; see `servers_of_options`.
        runs: How many runs there are of each input.
        trace_files: Traces of earlier runs.
        as_json: Whether to print JSON.

    Raises:
        PodwrightError: It cannot be loaded, an input is wrong, or a file is not a trace of the component.
    """
    settings = read_settings(model=model)
    adopt_secrets()
    servers = servers_of_options(mcp, settings)
    component = load_component(path, remotes_of(settings), servers)
    check_agents(component, settings)
    traces = [read_trace(file) for file in trace_files]
    given: list[Any] = [None]
    if texts or inputs is not None or pairs:
        given = [
            read_input(text, inputs, component.inputs, pairs)
            for text in texts or [None]
        ]
    with use_model(settings.models):
        try:
            found = [
                estimate(
                    component,
                    each,
                    limits=settings.run_limits,
                    runs=runs,
                    traces=traces,
                )
                for each in given
            ]
        except InputsError as error:
            raise with_all_inputs(error, component) from None
    total = sum(found[1:], found[0])
    if as_json:
        print_json(total.to_dict())
    else:
        _print_table(total)


def _print_table(found: Estimate) -> None:
    title = found.component
    if found.runs > 1:
        title = f"{found.component}, {found.runs:,} runs"
    columns: dict[str, Amounts] = {
        "at least": found.at_least,
        "usually": found.usually,
        "at most": found.at_most,
    }
    if found.nine_of_ten is not None:
        columns["9 of 10"] = found.nine_of_ten
    table = table_of(title, *columns)
    amounts = [each.to_dict() for each in columns.values()]
    for name, label in _ROWS.items():
        table.add_row(label, *(_shown(name, each) for each in amounts))
    for column in table.columns[1:]:
        column.justify = "right"
    print_table(table)
    for line in _notes(found):
        print_text(line)


_ROWS = {
    "model_calls": "model calls",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "cost": "cost",
    "seconds": "time",
}


def _shown(name: str, amounts: JsonMapping) -> str:
    """An amount for a person."""
    amount = amounts[name]
    if amount is None:
        return _UNKNOWN
    if name == "cost":
        return f"${amount:,.2f}" if amount >= 1 else f"${amount:.6f}"
    if name == "seconds":
        return f"{amount:,.0f} s"
    return f"{amount:,.0f}"


def _notes(found: Estimate) -> Iterator[str]:
    if found.recorded_runs:
        yield f"usually: the median of {found.recorded_runs} recorded runs"
    else:
        yield "usually: assumed; --traces FILE takes what recorded runs needed"
    if found.limits:
        limits = ", ".join(
            f"{name} {amount:,.6g}" for name, amount in found.limits.items()
        )
        yield f"limits: {limits}"
    for portion in found.portions:
        share = "" if portion.share is None else f" {portion.share:.0%}"
        yield f"at most, before limits: {portion.component}{share}, mostly {portion.cause}"
    for advice in found.advice:
        yield f"advice: {advice}"
    for unknown in found.unknown:
        yield f"not counted: {unknown}"
    for assumed in found.assumed:
        yield f"assumed: {assumed}"
