"""The commands of `podwright eval` and their options."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

_RUN = "run"
# as in the commands `runs …`, whose module imports this one
_ServiceUrl = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Address of the service."),
]
_ServiceKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        help="Its API key; @FILE reads a file. By default that of PODWRIGHT_AGENT_KEYS.",
    ),
]


_Suite = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="A component folder, or a suite's file."
    ),
]
_Repeat = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=100,
        help="How often each case is run; by default as the suite says.",
        show_default=False,
    ),
]
_Cases = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="CASE", help="Run this case; may be repeated."
    ),
]
_Variants = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        metavar="NAME",
        help="Run this variant, and the baseline; may be repeated.",
    ),
]
_Against = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT",
        help="Compare with a report, a blueprint, a folder, an image or a URL.",
        show_default=False,
    ),
]
_Budget = Annotated[
    float,
    typer.Option(min=0, metavar="USD", help="What may be paid at most."),
]
_Concurrency = Annotated[
    int, typer.Option(min=1, max=1000, help="Runs at once.")
]
_Fresh = Annotated[
    bool, typer.Option("--fresh", help="Use nothing that is recorded.")
]
_MaxAge = Annotated[
    str | None,
    typer.Option(
        metavar="AGE",
        help="Use no older recorded answers: 90s, 30m, 12h, 7d.",
        show_default=False,
    ),
]
_Strict = Annotated[
    bool,
    typer.Option("--strict", help="Fail if a gate is undecided, too."),
]
_Yes = Annotated[
    bool,
    typer.Option(
        "--yes", help="Begin although the budget will hardly be enough."
    ),
]
_JsonFile = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the report as JSON.",
        show_default=False,
    ),
]
_JunitFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Write the results as JUnit XML.",
        show_default=False,
    ),
]
_MarkdownFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Write the report as Markdown.",
        show_default=False,
    ),
]


class _EvalGroup(TyperGroup):
    """`podwright eval PATH` is `podwright eval run PATH`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, "--help"}:
            args = [_RUN, *args]
        return super().parse_args(ctx, args)


eval_commands = typer.Typer(
    cls=_EvalGroup,
    help="Try a component with other models and prompts.",
)


@eval_commands.command(_RUN)
def run(
    path: _Suite = ".",
    repeat: _Repeat = None,
    only: _Cases = None,
    variants: _Variants = None,
    against: _Against = None,
    budget: _Budget = 1.0,
    concurrency: _Concurrency = 8,
    fresh: _Fresh = False,
    max_age: _MaxAge = None,
    strict: _Strict = False,
    yes: _Yes = False,
    as_json: _JsonFile = None,
    junit: _JunitFile = None,
    markdown: _MarkdownFile = None,
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


@eval_commands.command("add")
def add(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A component folder, or a suite's file."
        ),
    ],
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A trace, as `run --trace` writes it; `-` is standard input.",
            show_default=False,
        ),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="ID",
            help="A background run of the service that --url names.",
            show_default=False,
        ),
    ] = None,
    url: _ServiceUrl = None,
    api_key: _ServiceKey = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The name of the case; by default from the id of the run.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Add a case to a suite, from a trace or from a background run.

    It has the inputs of the run, the decisions of persons, and a check that the
    same calls are made. A suite is begun if there is none.
    """
    from podwright_service.cli.evaluating.add import add_case_of

    add_case_of(
        path, trace=trace, run_id=run_id, url=url, api_key=api_key, name=name
    )


@eval_commands.command("judge")
def judge(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A judge: its file in evals/judges, no suffix."
        ),
    ],
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="The component folder, or the suite's file."
        ),
    ] = ".",
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="What persons say of answers, as JSON Lines.",
            show_default=False,
        ),
    ] = None,
    url: _ServiceUrl = None,
    api_key: _ServiceKey = None,
    limit: Annotated[
        int,
        typer.Option(
            min=1, max=10_000, help="How many of the service's runs are read."
        ),
    ] = 200,
    budget: Annotated[
        float,
        typer.Option(min=0, metavar="USD", help="What may be paid at most."),
    ] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON.")
    ] = False,
) -> None:
    """Compare the verdicts of a judge with those of persons.

    With --url, these are the approvals and rejections of background runs. Exit
    codes: 0 compared, 1 an error, 4 some labels without a verdict.
    """
    from podwright_service.cli.evaluating.judge import compare_judge

    code = compare_judge(
        name,
        path,
        labels_file=labels,
        url=url,
        api_key=api_key,
        limit=limit,
        budget=budget,
        as_json=as_json,
    )
    if code:
        raise typer.Exit(code)
