"""The command `eval`: run a suite, show what it has found, and write the report."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from podwright.components import Component
from podwright.errors import ConfigurationError, PodwrightError
from podwright.estimates.estimate import Amounts, estimate
from podwright.evaluation.evaluate import Evaluation
from podwright.evaluation.reports.junit import to_junit
from podwright.evaluation.reports.markdown import to_markdown
from podwright.evaluation.reports.report import Report
from podwright.evaluation.reports.row import Row
from podwright.evaluation.runs.targets import LocalTarget, Service
from podwright.evaluation.runs.variants import effects_of
from podwright.evaluation.suite import Suite, Variant
from podwright.models.output_files import check_writable
from podwright.models.providers import ENDPOINTS
from podwright_service.cli.console import print_error, print_text, write_text
from podwright_service.cli.evaluating.baseline import (
    blessed_report,
    last_report_file,
    print_baseline,
)
from podwright_service.cli.evaluating.tables import print_report
from podwright_service.images.docker import Docker
from podwright_service.images.running import running_image
from podwright_service.mcp_servers import servers_of_options
from podwright_service.remotes import remotes_of
from podwright_service.settings import adopt_secrets, read_settings

AGAINST = "against"
"""The name of the variant that `--against` adds."""
_WRONG_USAGE = 2
_INTERRUPTED = 130
_AGE = re.compile(r"(\d+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_ESTIMATED_CASES = 20
"""Cases of a variant of which the need is estimated; that of the others is their mean."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command; see there."""

    repeat: int | None = None
    only: Collection[str] = ()
    variants: Collection[str] = ()
    against: str | None = None
    budget: float = 1.0
    concurrency: int = 8
    fresh: bool = False
    max_age: str | None = None
    strict: bool = False
    yes: bool = False
    json_file: str | None = None
    junit_file: str | None = None
    markdown_file: str | None = None

    @property
    def files(self) -> list[str]:
        """The files that are written at the end."""
        named = (self.json_file, self.junit_file, self.markdown_file)
        return [file for file in named if file]


def run_suite(path: str, options: Options) -> int:
    """Run a suite, print the report, and return the exit code.

    Args:
        path: A component folder, or the file of a suite.
        options: The options.
    """
    try:
        for file in options.files:
            check_writable(file)
        suite = Suite.load(path)
        if options.against is None:
            earlier = blessed_report(suite)
        else:
            earlier = _earlier_report(options.against)
            if earlier is None:
                suite = with_variant(suite, options.against)
        max_age = _seconds(options.max_age)
        settings = read_settings()
        adopt_secrets()
        with _services(suite, options.variants) as services:
            evaluation = Evaluation(
                suite,
                targets=services,
                repeat=options.repeat,
                budget=options.budget,
                only=options.only,
                variants=options.variants,
                fresh=options.fresh,
                max_age=max_age,
                agents=remotes_of(settings),
                mcp=servers_of_options((), settings),
            )
            if not _may_begin(evaluation, options):
                return _WRONG_USAGE
            if earlier is not None:
                print_baseline(earlier, suite)
            report = _run(evaluation, options.concurrency)
        if report is None:
            print_text("Interrupted: the same command goes on.", sys.stderr)
            return _INTERRUPTED
        report.save(last_report_file(suite))
        if earlier is not None:
            report = report.with_baseline(earlier)
        print_report(report)
        _write(report, options)
    except PodwrightError as error:
        print_error(error)
        return _WRONG_USAGE
    code = report.exit_code(strict=options.strict)
    print_text(f"exit {code}", sys.stderr)
    return code


def _write(report: Report, options: Options) -> None:
    if options.json_file:
        report.save(options.json_file)
    if options.junit_file:
        write_text(options.junit_file, to_junit(report))
    if options.markdown_file:
        write_text(options.markdown_file, to_markdown(report))


def _seconds(age: str | None) -> float | None:
    if age is None:
        return None
    match = _AGE.fullmatch(age)
    if match is None:
        raise ConfigurationError(
            f"Invalid age '{age[:60]}'.",
            suggestion="Write --max-age 7d, 12h, 30m or 90s.",
        )
    return int(match[1]) * _SECONDS[match[2]]


# --- What is compared with


def _earlier_report(against: str | None) -> Report | None:
    """Return the report that the evaluation is compared with; None if it is something else."""
    if against is None or not against.endswith(".json"):
        return None
    path = Path(against)
    if not path.is_file():
        return None
    with contextlib.suppress(ConfigurationError):
        return Report.load(path)
    return None


def with_variant(suite: Suite, against: str) -> Suite:
    """Return a suite with a further variant, which is its baseline.

    Args:
        suite: The suite.
        against: A blueprint file, a component folder, a URL, or the tag of an image.
    """
    if against.startswith(("http://", "https://")):
        variant = Variant(AGAINST, url=against)
    elif Path(against).exists():
        variant = Variant(AGAINST, blueprint=Path(against))
    elif against.endswith((".json", ".yaml", ".yml")) or against.startswith(
        "."
    ):
        raise ConfigurationError(
            f"There is no '{against[:200]}' to compare with.",
            suggestion="Name a report, a blueprint, a component folder, a URL, or the tag of an image.",
        )
    else:
        variant = Variant(AGAINST, image=against)
    return replace(
        suite,
        variants={AGAINST: variant, **suite.variants},
        baseline=AGAINST,
    )


@contextlib.contextmanager
def _services(
    suite: Suite, chosen: Collection[str]
) -> Generator[Mapping[str, Service]]:
    """Run the containers of the variants that are images.

    Args:
        suite: The suite.
        chosen: The names of the variants that are run besides the baseline; all if there are none.
    """
    images = {
        name: variant.image
        for name, variant in suite.variants.items()
        if variant.image and (not chosen or name in (*chosen, suite.baseline))
    }
    if not images:
        yield {}
        return
    docker = Docker()
    with contextlib.ExitStack() as stack:
        services: dict[str, Service] = {}
        for name, image in images.items():
            print_text(f"starting {image}", sys.stderr)
            container = running_image(docker, image, _model_variables())
            services[name] = stack.enter_context(container)
        yield services


def _model_variables() -> dict[str, str]:
    """Return the variables of the environment by which a container reaches the models that this process does."""
    names = {"PODWRIGHT_MODEL_BASE_URL", "PODWRIGHT_MODEL_CLIENT"}
    for endpoint in ENDPOINTS.values():
        names |= {*endpoint.keys, *endpoint.urls}
    return {
        name: os.environ[name] for name in sorted(names & os.environ.keys())
    }


# --- Before the start


def _may_begin(evaluation: Evaluation, options: Options) -> bool:
    """Say what will be run, what it needs and what has effects; ask if the budget will hardly be enough."""
    plan = evaluation.plan
    runs = len(plan.jobs)
    if "PODWRIGHT_MODEL" in os.environ:
        print_text(
            "PODWRIGHT_MODEL is not used: the variants say which models answer.",
            sys.stderr,
        )
    print_text(
        f"{plan.suite.name}: {len({job.case.name for job in plan.jobs})} cases x {len(plan.targets)} variants"
        f" x {evaluation.repeat} = {runs} runs, of which {runs - len(plan.to_run)} are known;"
        f" budget ${options.budget:,.2f}",
        sys.stderr,
    )
    for line in _effects(evaluation):
        print_text(line, sys.stderr)
    least, usual = _need(evaluation)
    if usual is None:
        unpriced = [
            model.name for model in plan.models() if not model.has_price()
        ]
        if unpriced:
            print_text(
                f"The price is unknown of {', '.join(unpriced)}: the budget does not count its calls.",
                sys.stderr,
            )
        return True
    print_text(
        f"at least ${least or 0:,.4f}, usually about ${usual:,.4f}, as estimated",
        sys.stderr,
    )
    if usual <= options.budget or options.yes:
        return True
    if sys.stdin.isatty() and sys.stderr.isatty():
        sys.stderr.write(
            "That is more than the budget. Begin all the same? [y/N] "
        )
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    print_text(
        "That is more than the budget: raise it with --budget, or begin all the same with --yes.",
        sys.stderr,
    )
    return False


def _effects(evaluation: Evaluation) -> list[str]:
    """Say which tools and functions are really called."""
    suite = evaluation.plan.suite
    effects: dict[str, bool] = {}
    for target in evaluation.plan.targets.values():
        if isinstance(target, LocalTarget):
            effects |= effects_of(target.component, suite)
    if not effects:
        return []
    named = [
        f"{name} (idempotent)" if idempotent else name
        for name, idempotent in sorted(effects.items())
    ]
    return [f"Not faked, and really called: {', '.join(named)}."]


def _need(evaluation: Evaluation) -> tuple[float | None, float | None]:
    """Return what the runs that are not known cost at least and usually, in USD; None if nobody knows."""
    least: float | None = 0.0
    usual: float | None = 0.0
    for name, target in evaluation.plan.targets.items():
        jobs = [job for job in evaluation.plan.to_run if job.variant == name]
        if not isinstance(target, LocalTarget) or not jobs:
            continue
        looked_at = jobs[:_ESTIMATED_CASES]
        share = len(jobs) / len(looked_at)
        for job in looked_at:
            amounts = _amounts(target.component, job.case.inputs)
            if amounts is None:
                continue
            least = _more(least, amounts[0].cost, share)
            usual = _more(usual, amounts[1].cost, share)
    return least, usual


def _amounts(
    component: Component, inputs: Any
) -> tuple[Amounts, Amounts] | None:
    """Return what a run needs; None if its input is wrong, which the run will show."""
    try:
        found = estimate(component, inputs)
    except PodwrightError:
        return None
    return found.at_least, found.usually


def _more(
    total: float | None, cost: float | None, times: float
) -> float | None:
    if total is None or cost is None:
        return None
    return total + cost * times


# --- The run


def _run(evaluation: Evaluation, concurrency: int) -> Report | None:
    """Run what is not known; None if a signal has ended it."""
    with _progress(len(evaluation.plan.jobs)) as on_row:
        return asyncio.run(_run_until_signal(evaluation, concurrency, on_row))


async def _run_until_signal(
    evaluation: Evaluation, concurrency: int, on_row: Any
) -> Report | None:
    running = asyncio.create_task(
        evaluation.run(on_row, concurrency=concurrency)
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        return None


def _ignore(_row: Row) -> None:
    """Show nothing."""


@contextlib.contextmanager
def _progress(total: int) -> Generator[Any]:
    """Show on a terminal how far the evaluation is."""
    if not sys.stderr.isatty():
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
    )

    progress = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(
            "${task.fields[paid]:.4f} paid, {task.fields[errors]} errors"
        ),
        console=Console(stderr=True),
        transient=True,
    )
    with progress:
        task = progress.add_task("", total=total, paid=0.0, errors=0)
        paid = 0.0
        errors = 0

        def on_row(row: Row) -> None:
            nonlocal paid, errors
            paid += row.paid
            errors += not row.is_scored
            progress.update(task, advance=1, paid=paid, errors=errors)

        yield on_row
