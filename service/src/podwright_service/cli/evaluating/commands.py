"""The commands of `podwright eval` and their options."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

_RUN = "run"


class _EvalGroup(TyperGroup):
    """`podwright eval PATH` is `podwright eval run PATH`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, "--help"}:
            args = [_RUN, *args]
        return super().parse_args(ctx, args)


eval_commands = typer.Typer(
    cls=_EvalGroup,
    help="Run the cases of a component with other models and prompts, and compare.",
)


@eval_commands.command(_RUN)
def run(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A component folder, or a suite's file."
        ),
    ] = ".",
    repeat: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            help="How often each case is run; by default as the suite says.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="CASE", help="Run this case; may be repeated."
        ),
    ] = None,
    variants: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            metavar="NAME",
            help="Run this variant, and the baseline; may be repeated.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="Compare with a report, a blueprint, a folder, an image or a URL.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        float,
        typer.Option(min=0, metavar="USD", help="What may be paid at most."),
    ] = 1.0,
    concurrency: Annotated[
        int, typer.Option(min=1, max=1000, help="Runs at once.")
    ] = 8,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Use nothing that is recorded.")
    ] = False,
    max_age: Annotated[
        str | None,
        typer.Option(
            metavar="AGE",
            help="Use no older recorded answers: 90s, 30m, 12h, 7d.",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Fail if a gate is undecided, too."),
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="Begin although the budget will hardly be enough."
        ),
    ] = False,
    as_json: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Write the report as JSON.",
            show_default=False,
        ),
    ] = None,
    junit: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the results as JUnit XML.",
            show_default=False,
        ),
    ] = None,
    markdown: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the report as Markdown.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the cases of a suite with its variants, and compare them.

    Exit codes: 0 all gates hold or are undecided, 1 a gate fails, 2 wrong usage
    or a problem of the suite, 4 incomplete, 130 interrupted.
    """
    from podwright_service.cli.evaluating.evaluate import Options, run_suite

    options = Options(
        repeat=repeat,
        only=only or (),
        variants=variants or (),
        against=against,
        budget=budget,
        concurrency=concurrency,
        fresh=fresh,
        max_age=max_age,
        strict=strict,
        yes=yes,
        json_file=as_json,
        junit_file=junit,
        markdown_file=markdown,
    )
    code = run_suite(path, options)
    if code:
        raise typer.Exit(code)


@eval_commands.command("bless")
def bless(
    report: Annotated[
        str | None,
        typer.Argument(
            metavar="REPORT",
            help="A saved report, or a component folder with its last one.",
            show_default=False,
        ),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The variant; by default the report's baseline.",
            show_default=False,
        ),
    ] = None,
    component: Annotated[
        str,
        typer.Option(
            metavar="PATH", help="The component folder that gets the baseline."
        ),
    ] = ".",
) -> None:
    """Write the results of a variant to evals/baseline.json.

    Later evaluations of a suite without variants are compared with it.
    """
    from podwright_service.cli.evaluating.baseline import bless as bless_report

    bless_report(report, variant, component)
