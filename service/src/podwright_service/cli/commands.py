"""The commands and their options; the work is elsewhere, and is imported when a command is called."""

from __future__ import annotations

from typing import Annotated

import typer

from podwright import __version__
from podwright.errors import PodwrightError
from podwright_service.cli.deploying import deploying

Served = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH",
        help="A blueprint file, a component folder, or module:attribute; by default PODWRIGHT_COMPONENT.",
        show_default=False,
    ),
]
Host = Annotated[str | None, typer.Option(help="Address to listen on.", show_default=False)]
Port = Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.", show_default=False)]
Title = Annotated[str | None, typer.Option(help="Title of the service and of its API page.", show_default=False)]
Model = Annotated[
    str | None,
    typer.Option(help="A model that answers in place of all that the blueprints name.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Blueprint = Annotated[str, typer.Argument(metavar="PATH", help="A blueprint file or a component folder.")]

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
app.add_typer(deploying, name="deploy")


@app.callback(invoke_without_command=True)
def podwright(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Agents, workflows, conductors and pipelines, from blueprint to pod."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def serve(path: Served = None, host: Host = None, port: Port = None, title: Title = None, model: Model = None) -> None:
    """Serve a component over HTTP. Whatever is not given here comes from the PODWRIGHT_ variables."""
    from podwright_service.cli.running import serve_component

    serve_component(component=path, host=host, port=port, title=title, model=model)


@app.command()
def run(
    path: Annotated[str, typer.Argument(help="A blueprint file, a component folder, or module:attribute.")],
    text: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="What to work on; `-`, or nothing, is standard input.")
    ] = None,
    inputs: Annotated[
        str | None, typer.Option(metavar="JSON", help="Named inputs, or a workflow's context; @FILE reads a file.")
    ] = None,
    model: Model = None,
    trace: Annotated[str | None, typer.Option(metavar="FILE", help="Where to write the trace.")] = None,
    context: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where to write the context of a workflow that stops.")
    ] = None,
    resume_path: Annotated[
        str | None, typer.Option(metavar="PATH", help="Where a workflow goes on, such as 2,0; with its --inputs.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not tell of the steps.")] = False,
) -> None:
    """Run a component here. The answer goes to standard output, the steps to standard error.

    Exit codes: 0 it answered, 1 it failed, 2 wrong usage, 3 it waits for approval, 130 it was interrupted.
    """
    from podwright_service.cli.running import Order, run_component

    raise typer.Exit(run_component(Order(path, text, inputs, model, trace, context, resume_path, quiet)))


@app.command()
def replay(
    file: Annotated[str, typer.Argument(help="A trace, as `run --trace` writes it; `-` is standard input.")],
    delay: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="Pause between events.")] = 0.0,
    real_time: Annotated[bool, typer.Option("--real-time", help="Pause as the run did.")] = False,
) -> None:
    """Print a recorded run again, step by step."""
    from podwright_service.cli.running import replay_trace

    replay_trace(file, None if real_time else delay)


@app.command()
def validate(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Blueprint files or component folders.")],
    as_json: AsJson = False,
) -> None:
    """Check blueprints: every problem, with its place. A folder's code is imported, so that its tools are checked.

    Exit codes: 0 all are valid, 1 some are not.
    """
    from podwright_service.cli.inspecting import validate_all

    raise typer.Exit(validate_all(paths, as_json))


@app.command()
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A blueprint file or a component folder.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same, changed.")],
    as_json: AsJson = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if a change is breaking.")] = False,
) -> None:
    """Say what changed between two blueprints, and which of it breaks.

    A breaking change is one that callers or deployers would notice.
    """
    from podwright_service.cli.inspecting import print_diff

    breaks = print_diff(old, new, as_json)
    raise typer.Exit(1 if breaks and exit_code else 0)


@app.command()
def schema(
    kind: Annotated[str | None, typer.Argument(help="agent, workflow, conductor or pipeline; by default all.")] = None,
) -> None:
    """Print the JSON Schema of blueprints."""
    from podwright_service.cli.inspecting import print_schema

    print_schema(kind)


@app.command()
def graph(path: Blueprint) -> None:
    """Draw a blueprint as a Mermaid flowchart."""
    from podwright_service.cli.inspecting import print_graph

    print_graph(path)


@app.command()
def check(
    url: Annotated[
        str | None,
        typer.Argument(help="The service; by default this machine's, on PODWRIGHT_PORT.", show_default=False),
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.001, help="How long it may take.")] = 2.0,
) -> None:
    """Ask a service whether it is ready: exit code 0 if so, 1 if not. Made for a container's HEALTHCHECK."""
    from podwright_service.cli import probe

    raise typer.Exit(probe.check(url, timeout))


@app.command()
def new(
    folder: Annotated[str, typer.Argument(help="The folder to make.")],
    model: Annotated[str, typer.Option(help="The model that the agent names.")] = "offline/echo",
) -> None:
    """Make a component folder with a tool, a test and a README."""
    from podwright_service.cli.scaffold import make

    make(folder, model)


DockerClient = Annotated[
    str | None,
    typer.Option("--docker", metavar="PROGRAM", help="The Docker client; by default, the first with buildx on PATH."),
]


@app.command()
def build(
    folder: Annotated[str, typer.Argument(help="A component folder.")],
    tag: Annotated[str, typer.Option("--tag", "-t", metavar="NAME", help="The image's name, such as calculator:1.0.")],
    base: Annotated[str, typer.Option(metavar="IMAGE", help="The image it is made from.")] = "podwright:direct",
    locked: Annotated[bool, typer.Option("--locked", help="Fail if requirements.lock is not up to date.")] = False,
    docker: DockerClient = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what the builder says.")] = False,
) -> None:
    """Build an image with one component. Its dependencies are locked; blueprint and tools are checked in the build.

    In the environment, PODWRIGHT_AGENTS names agents that run elsewhere, and UV_DEFAULT_INDEX an index of packages.
    """
    from podwright_service.cli.images import build_image

    build_image(folder, tag, base, locked, docker, verbose)


@app.command()
def inspect(
    image: Annotated[str, typer.Argument(help="An image that `podwright build` made.")],
    as_json: AsJson = False,
    docker: DockerClient = None,
) -> None:
    """Show what component an image holds, by its labels. It is not run."""
    from podwright_service.cli.images import inspect_image

    inspect_image(image, as_json, docker)


@app.command()
def settings(
    path: Served = None,
    host: Host = None,
    port: Port = None,
    title: Title = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Print the settings of `serve`, and where each comes from.

    They are those that it would have with the same options.
    """
    from podwright_service.cli.settings_table import print_settings

    print_settings({"component": path, "host": host, "port": port, "title": title, "model": model}, as_json)


def call() -> int:
    """Run the command that the arguments name, and give its exit code."""
    try:
        app()
    except PodwrightError as error:
        from podwright_service.cli.console import complain

        complain(error)
        return 1
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0
