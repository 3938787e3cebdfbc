"""The command `eval judge`: how far a judge and persons agree."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from podwright.client import Client
from podwright.data.text import did_you_mean, printable, truncate
from podwright.errors import ConfigurationError
from podwright.evaluation.agreement import Agreement, measure_agreement
from podwright.evaluation.past_runs.labels import (
    Label,
    labels_of_run,
    read_labels,
)
from podwright.evaluation.reports.report import INCOMPLETE
from podwright.evaluation.reports.statistics import Rate
from podwright.evaluation.runs.answers import PaidAnswers
from podwright.evaluation.runs.judges import JudgeError, Judges
from podwright.evaluation.runs.stored_rows import prepare_folder
from podwright.evaluation.runs.variants import load_judge
from podwright.evaluation.suite import RECORDED
from podwright.evaluation.suite_reading.checks import judges_in
from podwright.folders.folder import EVALUATION_FOLDER
from podwright_service.cli.background import service_client
from podwright_service.cli.console import (
    print_json,
    print_table,
    print_text,
    table_of,
)
from podwright_service.cli.evaluating.tables import cost_text
from podwright_service.settings import adopt_secrets


def compare_judge(
    name: str,
    path: str,
    *,
    labels_file: str | None,
    url: str | None,
    api_key: str | None,
    limit: int,
    budget: float,
    as_json: bool,
) -> int:
    """Compare the verdicts of a judge with those of persons, print how far they agree, and return the exit code.

    Args:
        name: The judge.
        path: A component folder, or the file of a suite.
        labels_file: What persons say, as JSON Lines.
        url: The address of a service with background runs, whose decisions are the labels.
        api_key: See `service_client`.
        limit: How many of its runs are read, the newest ones.
        budget: USD that may be paid.
        as_json: Whether to print JSON.

    Raises:
        PodwrightError: There is no such judge, there are no labels, or it gave no verdict at all.
    """
    if (labels_file is None) == (url is None):
        raise ConfigurationError(
            "A judge is compared with labels.",
            suggestion="Give --labels FILE, or --url URL of a service with background runs.",
        )
    suite_path = Path(path)
    folder = suite_path.parent
    if suite_path.is_dir():
        folder = suite_path / EVALUATION_FOLDER
    file = _judge_file(name, folder)
    if labels_file is not None:
        labels = read_labels(Path(labels_file))
    else:
        labels = _stored_labels(service_client(url or "", api_key), limit)
    adopt_secrets()
    prepare_folder(folder / RECORDED)
    answers = PaidAnswers(folder / RECORDED / "answers", budget)
    judges = Judges({name: load_judge(file, answers.around)})
    try:
        found = asyncio.run(measure_agreement(judges, answers, name, labels))
    except JudgeError as error:
        raise error.error from error
    if as_json:
        print_json(found.to_dict())
    else:
        _print_agreement(name, found)
    return INCOMPLETE if found.without_verdict else 0


def _judge_file(name: str, folder: Path) -> Path:
    files = judges_in(folder)
    if name not in files:
        raise ConfigurationError(
            f"There is no judge '{truncate(name, 60)}' in '{truncate(str(folder), 200)}'.",
            suggestion=did_you_mean(name, [*files])
            or f"Write judges/{name}.json there: an agent with a response_schema that has 'good'.",
        )
    return files[name]


def _stored_labels(client: Client, limit: int) -> list[Label]:
    """Return what persons have decided about the newest background runs of a service."""
    runs = client.runs.list(limit=limit, fields=["decisions"])
    labels = [
        label
        for listed in runs
        if listed.decisions
        for label in labels_of_run(client.runs.get(listed.id, inputs=True))
    ]
    if not labels:
        raise ConfigurationError(
            f"Nobody has approved or rejected anything in the newest {len(runs)} runs of the service.",
            suggestion="Look at more of them with --limit, or use a key that may see the runs of others.",
        )
    return labels


def _print_agreement(name: str, found: Agreement) -> None:
    good = round(found.base_rate * found.labels)
    others = found.labels - good
    table = table_of(printable(name), "", "95 %", "of")
    for row in (
        ("agreement", found.agreed, f"{found.labels} labels"),
        ("sensitivity", found.sensitivity, f"{good} good answers"),
        ("specificity", found.specificity, f"{others} others"),
        ("consistency", found.consistency, f"{found.labels} asked twice"),
    ):
        table.add_row(row[0], *_rate_cells(row[1]), row[2])
    print_table(table)
    for line in _lines(found):
        print_text(printable(line))


def _rate_cells(rate: Rate | None) -> tuple[str, str]:
    if rate is None:
        return "-", ""
    interval = f"{100 * rate.low:.0f}-{100 * rate.high:.0f}"
    return f"{rate.value:.0%}", interval


def _lines(found: Agreement) -> Iterator[str]:
    kappa = "unknown: all labels and all verdicts are the same"
    if found.kappa is not None:
        kappa = f"{found.kappa.value:.2f} [{found.kappa.low:.2f}, {found.kappa.high:.2f}]"
    yield f"κ            {kappa}; {found.base_rate:.0%} of the labels are good"
    yield f"cost         $ {cost_text(found.cost)} a verdict; paid ${found.paid:.4f}"
    for line in found.disagreements:
        yield f"disagree     {line}"
    for line in found.without_verdict[:1]:
        yield f"no verdict   {len(found.without_verdict)} labels: {line}"
