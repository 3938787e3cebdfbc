"""The command `eval add`: a case of a trace or of a background run."""

from __future__ import annotations

import sys
from pathlib import Path

from podwright.client import Client
from podwright.connection.schemas import ENDED
from podwright.data.text import printable
from podwright.errors import ConfigurationError
from podwright.evaluation.past_runs.cases import (
    PastCase,
    case_of_run,
    case_of_trace,
    record_answers,
)
from podwright.evaluation.past_runs.suite_files import AddedCase, add_case
from podwright.evaluation.runs.stored_rows import prepare_folder
from podwright.evaluation.suite import RECORDED
from podwright.models.recorded_answers import RecordedAnswers
from podwright_service.cli.background import service_client
from podwright_service.cli.console import print_text
from podwright_service.cli.traces import read_trace


def add_case_of(
    path: str,
    *,
    trace: str | None,
    run_id: str | None,
    url: str | None,
    api_key: str | None,
    name: str | None,
) -> None:
    """Add the case of a trace or a background run to a suite, and print what was written.

    Args:
        path: A component folder, or the file of a suite.
        trace: The file of a trace.
        run_id: The id of a background run.
        url: The address of its service.
        api_key: See `service_client`.
        name: The name of the case; by default it is made of the id of the run.

    Raises:
        PodwrightError: The trace or the run is no case, or it cannot be added.
    """
    if (trace is None) == (run_id is None) or (run_id is None) != (url is None):
        raise ConfigurationError(
            "A case comes from a trace or from a background run.",
            suggestion="Give --trace FILE, or --run ID and --url URL.",
        )
    if trace is not None:
        result = read_trace(trace)
        added = add_case(Path(path), case_of_trace(result.events), name or "")
        recorded = added.suite_file.parent / RECORDED
        prepare_folder(recorded)
        answers = RecordedAnswers(recorded / "answers")
        count = record_answers(answers, result.events)
        _print_added(added)
        print_text(f"{count} answers recorded: they are replayed.", sys.stderr)
    else:
        client = service_client(url or "", api_key)
        case = _case_of_stored_run(client, run_id or "")
        _print_added(add_case(Path(path), case, name or ""))


def _case_of_stored_run(client: Client, run_id: str) -> PastCase:
    run = client.runs.get(run_id, inputs=True)
    # the events of a run that goes on have no end
    if run.status not in ENDED:
        return case_of_run(run, ())
    return case_of_run(run, client.runs.events(run_id))


def _print_added(added: AddedCase) -> None:
    if added.is_begun:
        print_text(f"began {added.suite_file}", sys.stderr)
    print_text(f"{added.cases_file}: {printable(added.name)}")
    if added.missing_line:
        print_text(
            f"Add this to 'cases' of {added.suite_file}, which was left as it is: {added.missing_line}",
            sys.stderr,
        )
