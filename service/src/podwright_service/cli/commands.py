"""The commands and their options. Each imports its implementation when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

from podwright import __version__
from podwright_service.cli.evaluating.commands import eval_commands

Component = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH",
        help="A blueprint file, a component folder, or module:attribute; by default PODWRIGHT_COMPONENT.",
        show_default=False,
    ),
]
Host = Annotated[
    str | None, typer.Option(help="Address to listen on.", show_default=False)
]
Port = Annotated[
    int | None,
    typer.Option(
        help="Port to listen on; 0 is any free port.", show_default=False
    ),
]
Title = Annotated[
    str | None,
    typer.Option(
        help="Title of the service and of its API page.", show_default=False
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="[NAME=]MODEL",
        help="A model in place of every model in the blueprints, or of one agent's; may be repeated.",
        show_default=False,
    ),
]
Images = Annotated[
    list[str] | None,
    typer.Option(
        "--image",
        metavar="FILE",
        help="An image after the text: a file or an https URL; may be repeated.",
    ),
]
Documents = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="A document or audio after the text: a file, or a document's https URL; may be repeated.",
    ),
]
MCPServers = Annotated[
    list[str] | None,
    typer.Option(
        "--mcp",
        metavar="NAME=URL",
        help="An MCP server: its URL, or 'NAME=COMMAND ARGUMENT…' for a program that is started; may be repeated.",
        show_default=False,
    ),
]
User = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="For whom the run is.", show_default=False
    ),
]
Session = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="The session or conversation that the run is a part of.",
        show_default=False,
    ),
]
Metadata = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="What else the functions of the run are to know; may be repeated.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ExitCode = Annotated[
    bool,
    typer.Option("--exit-code", help="Exit with 1 if a change is breaking."),
]
Source = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A blueprint file, a component folder, or module:attribute.",
    ),
]
DockerClient = Annotated[
    str | None,
    typer.Option(
        "--docker",
        metavar="PROGRAM",
        help="The Docker client; by default the first on PATH with buildx.",
    ),
]

ServiceUrl = Annotated[str, typer.Option(help="Address of the service.")]
ServiceKey = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Its API key; @FILE reads a file. By default that of PODWRIGHT_AGENT_KEYS.",
    ),
]
RunId = Annotated[str, typer.Argument(metavar="ID", help="The id of the run.")]
Comment = Annotated[str, typer.Option(help="Why; kept with the run.")]
DecisionOnContext = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What is decided about the run that waits, whose context is given with --inputs; by default approve.",
    ),
]
DecisionValues = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="NAME=VALUE",
        help="A value that the question lets you change; JSON if it is no text.",
    ),
]
AttemptNumber = Annotated[
    int | None,
    typer.Option(
        "--attempt",
        help="The attempt whose question you read, so that no later one is answered.",
    ),
]
LOCAL = "http://127.0.0.1:8000"

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
runs_commands = typer.Typer(
    no_args_is_help=True, help="Background runs of a service."
)
app.add_typer(runs_commands, name="runs")
conversation_commands = typer.Typer(
    no_args_is_help=True, help="Conversations that a service keeps."
)
app.add_typer(conversation_commands, name="conversations")
deploy_commands = typer.Typer(
    no_args_is_help=True, help="Create and compare values of the Helm chart."
)
app.add_typer(deploy_commands, name="deploy")
app.add_typer(eval_commands, name="eval")


def _joined(models: list[str] | None) -> str | None:
    """The values of an option as one setting."""
    if models is None:
        return None
    return ",".join(models)


@app.callback(invoke_without_command=True)
def podwright(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.")
    ] = False,
) -> None:
    """Agents, workflows, conductors and pipelines, from blueprint to pod."""
    if version:
        typer.echo(__version__)
        raise typer.Exit
    from podwright_service.otel_variables import prepare_otel_variables

    # before a command imports OpenTelemetry
    prepare_otel_variables()


@app.command()
def serve(
    path: Component = None,
    host: Host = None,
    port: Port = None,
    title: Title = None,
    models: Models = None,
) -> None:
    """Serve a component over HTTP. Options override the PODWRIGHT_ variables."""
    from podwright_service.cli.running.run import serve_component

    serve_component(
        component=path,
        host=host,
        port=port,
        title=title,
        model=_joined(models),
    )


@app.command()
def dev(
    path: Component = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on.")
    ] = "127.0.0.1",
    port: Port = None,
    title: Title = None,
    models: Models = None,
    mcp: MCPServers = None,
    env_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A file with variables, such as .env; those of the environment take precedence.",
        ),
    ] = None,
) -> None:
    """Serve a component while you change it.

    What is saved is served at once. If it cannot be, its problems are printed, and the last good version is still
    served. Ctrl-C ends.
    """
    from podwright_service.cli.developing.dev import develop

    develop(
        env_file,
        mcp or (),
        component=path,
        host=host,
        port=port,
        title=title,
        model=_joined(models),
    )


@app.command()
def run(
    path: Source,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT",
            help="The input; `-`, or nothing, is standard input.",
        ),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Named inputs, or a workflow's context; @FILE reads a file.",
        ),
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="NAME=VALUE",
            help="A named input; JSON if the component declares another type than a string.",
        ),
    ] = None,
    images: Images = None,
    documents: Documents = None,
    models: Models = None,
    mcp: MCPServers = None,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Where to write the trace."),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Where to write the context of a workflow that stops.",
        ),
    ] = None,
    resume_path: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Where a workflow resumes, such as 2,0; with its --inputs.",
        ),
    ] = None,
    decision: DecisionOnContext = None,
    values: DecisionValues = None,
    comment: Comment = "",
    user: User = None,
    session: Session = None,
    metadata: Metadata = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not print the steps.")
    ] = False,
) -> None:
    """Run a component. The output goes to standard output, the steps to standard error.

    Exit codes: 0 success, 1 failure, 2 wrong usage, 3 approval required, 130 interrupted.
    """
    from podwright_service.cli.inputs import read_attributes, read_media
    from podwright_service.cli.questions import DecisionOptions
    from podwright_service.cli.running.run import run_once

    files = {"trace_file": trace, "context_file": context}
    raise typer.Exit(
        run_once(
            path,
            text,
            inputs,
            pairs=pairs or (),
            media=read_media(images or (), documents or ()),
            model=_joined(models),
            mcp=mcp or (),
            **files,
            resume_path=resume_path,
            decision=DecisionOptions(decision, values or (), comment),
            attributes=read_attributes(user, session, metadata),
            quiet=quiet,
        )
    )


@app.command()
def estimate(
    path: Source,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT...",
            help="Inputs, each of a run of its own; without one, the input is not known.",
        ),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Named inputs; @FILE reads a file."),
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="NAME=VALUE",
            help="A named input; JSON if the component declares another type than a string.",
        ),
    ] = None,
    models: Models = None,
    mcp: MCPServers = None,
    runs: Annotated[
        int,
        typer.Option(min=1, max=10**9, help="Runs of each input."),
    ] = 1,
    traces: Annotated[
        list[str] | None,
        typer.Option(
            "--traces",
            metavar="FILE",
            help="A trace of an earlier run, as `run --trace` writes it; may be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what a run needs at least, usually and at most.

    Model calls, tokens, cost and time. Nothing is called.
    """
    from podwright_service.cli.running.estimate import print_estimate

    print_estimate(
        path,
        texts or (),
        inputs,
        pairs=pairs or (),
        model=_joined(models),
        mcp=mcp or (),
        runs=runs,
        trace_files=traces or (),
        as_json=as_json,
    )


@app.command()
def inputs(
    path: Source,
    as_json: AsJson = False,
) -> None:
    """Print the inputs that a component declares.

    Name, type, default and description; with --json their schemas.
    """
    from podwright_service.cli.inputs import print_inputs

    print_inputs(path, as_json)


@app.command()
def chat(
    path: Annotated[
        str,
        typer.Argument(
            help="A blueprint file, a component folder, module:attribute, or the URL of a service."
        ),
    ],
    models: Models = None,
    mcp: MCPServers = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="API key of the service; @FILE reads a file. By default that of PODWRIGHT_AGENT_KEYS.",
        ),
    ] = None,
    user: User = None,
    session: Session = None,
    metadata: Metadata = None,
) -> None:
    """Talk to a component. Each line is a turn; /help lists the commands.

    Answers go to standard output, everything else to standard error. Ctrl-C cancels a turn, Ctrl-D ends.
    """
    from podwright_service.cli.inputs import read_attributes
    from podwright_service.cli.running.chat import start_chat

    attributes = read_attributes(user, session, metadata)
    start_chat(
        path, _joined(models), api_key, attributes=attributes, mcp=mcp or ()
    )


@app.command()
def replay(
    file: Annotated[
        str,
        typer.Argument(
            help="A trace, as `run --trace` writes it; `-` is standard input."
        ),
    ],
    delay: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="Pause between events."),
    ] = 0.0,
    real_time: Annotated[
        bool, typer.Option("--real-time", help="Pause as in the run.")
    ] = False,
) -> None:
    """Print a recorded run again, step by step."""
    from podwright_service.cli.running.run import replay_trace

    if real_time:
        replay_trace(file, None)
    else:
        replay_trace(file, delay)


@app.command()
def validate(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Blueprint files, component folders, or module:attribute.",
        ),
    ],
    models: Models = None,
    as_json: AsJson = False,
) -> None:
    """Check blueprints and print every problem. A folder's code is imported, to check its tools.

    The models that they name need a provider and its API key; `--model offline/echo` replaces them.

    Exit codes: 0 all are valid, 1 some are not.
    """
    from podwright_service.cli.shipping import blueprints

    raise typer.Exit(blueprints.validate(paths, as_json, _joined(models)))


@app.command()
def sync(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="A component folder.")
    ],
    added: Annotated[
        list[str] | None,
        typer.Option(
            "--add",
            metavar="TOOL",
            help="A function of tools.py, or with --mcp a tool of that server, that becomes a tool of the agent; may "
            "be repeated. 'all' stands for all tools of a server.",
        ),
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="AGENT",
            help="The agent in agents/ that gets the tools of --add; by default the component itself.",
        ),
    ] = "",
    servers: Annotated[
        list[str] | None,
        typer.Option(
            "--mcp",
            metavar="NAME[=URL]",
            help="An MCP server whose definitions of tools are locked; by default its URL is in PODWRIGHT_MCP_SERVERS. "
            "May be repeated.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing.")
    ] = False,
) -> None:
    """Bring tools and schemas up to date with code and servers.

    Parameters, descriptions and the options of @tool are those of the code; options that only the blueprint has stay. A
    JSON Schema whose title names a type in schemas.py is that of the type. Only the servers named by --mcp are called.

    Exit codes: 0 success; with --check 1 if something differs.
    """
    from podwright_service.cli.shipping.sync import sync_folder

    raise typer.Exit(
        sync_folder(folder, added or [], servers or [], to=to, check=check)
    )


@app.command()
def export(
    path: Source,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="The new folder; by default one with the name of the component. FILE.json: its blueprint alone.",
        ),
    ] = None,
) -> None:
    """Write a component as one folder with all of it.

    Of a component in Python: its blueprint, the files of the project that it needs, and requirements.txt.
    """
    from podwright_service.cli.shipping.export import export_component

    export_component(path, output)


@app.command()
def prices(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...", help="Names of models, as in a blueprint."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Print what models cost by each price list.

    Rates are in USD per million tokens. The first list counts.

    Exit codes: 0 all have a price, 1 some have none.
    """
    from podwright_service.cli.prices import print_prices

    raise typer.Exit(print_prices(models, as_json))


@app.command()
def diff(
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD",
            help="A blueprint file, a component folder, or module:attribute.",
        ),
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The changed one.")],
    as_json: AsJson = False,
    exit_code: ExitCode = False,
) -> None:
    """Print the changes between two blueprints.

    A change is breaking if it affects callers or deployments.
    """
    from podwright_service.cli.shipping.blueprints import print_diff

    breaking = print_diff(old, new, as_json)
    if breaking and exit_code:
        raise typer.Exit(1)


@app.command()
def schema(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="agent, workflow, conductor or pipeline, by default all; or evals."
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of blueprints, or of suites."""
    from podwright_service.cli.shipping.blueprints import print_schema

    print_schema(kind)


@app.command()
def graph(path: Source) -> None:
    """Print a blueprint as a Mermaid flowchart."""
    from podwright_service.cli.shipping.blueprints import print_graph

    print_graph(path)


@app.command()
def check(
    url: Annotated[
        str | None,
        typer.Argument(
            help="The service; by default the one on this machine, on PODWRIGHT_PORT.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.001, help="Seconds to wait."),
    ] = 2.0,
) -> None:
    """Check whether a service is ready, for a HEALTHCHECK.

    The exit code is 0 if it is, and 1 if not.
    """
    from podwright_service.cli.check import check

    raise typer.Exit(check(url, timeout))


@app.command()
def new(
    folder: Annotated[str, typer.Argument(help="The folder to create.")],
    model: Annotated[
        str | None,
        typer.Option(
            help="The model that the component names; by default offline/echo."
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="agent, workflow, conductor or pipeline; by default agent."
        ),
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="The format of the blueprints: json or yaml; by default json.",
        ),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Copy an example instead, such as desk."
        ),
    ] = None,
) -> None:
    """Create a component folder with code, tests and a README.

    Schemas for editors are in its folder .podwright.
    """
    from podwright_service.cli.developing.new import create

    create(folder, example, model=model, kind=kind, file_format=file_format)


@app.command()
def build(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A component folder, or module:attribute."
        ),
    ],
    tag: Annotated[
        str,
        typer.Option(
            "--tag",
            "-t",
            metavar="NAME",
            help="The image's name, such as calculator:1.0.",
        ),
    ],
    base: Annotated[
        str, typer.Option(metavar="IMAGE", help="The base image.")
    ] = "podwright:slim",
    locked: Annotated[
        bool,
        typer.Option(
            "--locked", help="Fail if requirements.lock is not up to date."
        ),
    ] = False,
    push: Annotated[
        bool,
        typer.Option(
            "--push",
            help="Push the image to the registry in its name, and print its digest.",
        ),
    ] = False,
    platform: Annotated[
        str,
        typer.Option(
            metavar="PLATFORMS",
            help="Such as linux/amd64,linux/arm64; several need --push, and a base image in a registry.",
        ),
    ] = "",
    onto: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Chart values, in which the pushed image becomes that of the component.",
        ),
    ] = None,
    docker: DockerClient = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show the output of the builder.")
    ] = False,
) -> None:
    """Build an image with one component. Its dependencies are locked; blueprint and tools are checked in the build.

    PODWRIGHT_AGENTS names agents that run elsewhere, and UV_DEFAULT_INDEX a package index.
    """
    from podwright_service.cli.shipping.images import Target, build_image

    build_image(
        folder,
        Target(tag, push, platform, onto),
        base,
        locked=locked,
        docker=docker,
        verbose=verbose,
    )


@app.command()
def inspect(
    image: Annotated[
        str, typer.Argument(help="An image that `podwright build` built.")
    ],
    as_json: AsJson = False,
    docker: DockerClient = None,
) -> None:
    """Show the component in an image, without running it."""
    from podwright_service.cli.shipping.images import inspect_image

    inspect_image(image, as_json, docker)


@app.command()
def settings(
    path: Component = None,
    host: Host = None,
    port: Port = None,
    title: Title = None,
    models: Models = None,
    as_json: AsJson = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Also load the component, and check keys and models.",
        ),
    ] = False,
) -> None:
    """Print the settings of `serve`, and the source of each.

    They are those of `serve` with the same options. Exit codes: 0, 1 invalid settings.
    """
    from podwright_service.cli.settings import print_settings

    raise typer.Exit(
        print_settings(
            as_json,
            check,
            component=path,
            host=host,
            port=port,
            title=title,
            model=_joined(models),
        )
    )


@deploy_commands.command("render")
def render_values(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="Component folders, or module:attribute."
        ),
    ],
    onto: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Values to update with the components; `-` is standard input.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where to write them."
        ),
    ] = None,
    split: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Write several releases, with N components at most: FILE-1, FILE-2, ….",
        ),
    ] = None,
    image: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=REFERENCE",
            help="A component in an image of its own, which `podwright build` made; may be repeated.",
        ),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Keep the blueprints in --onto for runs that wait: the last N of each changed component.",
        ),
    ] = None,
    require_evaluation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="A report of `podwright eval --json`, or a folder of them: a component whose digest no report lets "
            "pass is refused. May be repeated.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Refuse undecided gates of reports, too."
        ),
    ] = False,
) -> None:
    """Write the values for a fleet of component folders.

    Exit codes: 0 success, 1 the chart cannot deploy a folder, or it has no evaluation that --require-evaluation takes.
    """
    from podwright_service.cli.shipping import deploy

    deploy.render_values(
        folders,
        onto,
        output,
        size=split,
        images=image or [],
        keep=keep,
        reports=require_evaluation or [],
        strict=strict,
    )


@deploy_commands.command("diff")
def diff_values(
    running: Annotated[
        str,
        typer.Argument(
            metavar="RUNNING",
            help="The release's values: `helm get values RELEASE`; `-` is standard input.",
        ),
    ],
    new: Annotated[
        list[str],
        typer.Argument(
            metavar="NEW...",
            help="New or changed components: folders, or module:attribute; or one file of values.",
        ),
    ],
    as_json: AsJson = False,
    exit_code: ExitCode = False,
) -> None:
    """Print what new blueprints or values change in a release.

    Exit codes: 0; with --exit-code 1 if a change is breaking, or a blueprint could not be compared.
    """
    from podwright_service.cli.shipping import deploy

    breaking = deploy.print_diff(running, new, as_json)
    if breaking and exit_code:
        raise typer.Exit(1)


@app.command()
def connect(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Address of the service.")
    ] = LOCAL,
    client: Annotated[
        str | None,
        typer.Option(
            metavar="CLIENT",
            help="claude, vscode, cursor or codex; by default the configuration of each is printed.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="The name of the entry; by default the component's.",
            show_default=False,
        ),
    ] = None,
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="Add it to the client's file in this folder."
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace another entry of this name."),
    ] = False,
    api_key: ServiceKey = None,
) -> None:
    """Print or write the configuration of an MCP client.

    With it, an editor or agent calls a served component as a tool.
    """
    from podwright_service.cli.shipping.connect import connect as connect_client

    connect_client(
        url, client, api_key=api_key, name=name, write=write, force=force
    )


@runs_commands.command("start")
def start_run(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT",
            help="The input; `-`, or nothing, is standard input.",
        ),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Named inputs; @FILE reads a file."),
    ] = None,
    user: User = None,
    session: Session = None,
    metadata: Metadata = None,
    url: ServiceUrl = LOCAL,
    api_key: ServiceKey = None,
) -> None:
    """Start a background run, and print its id."""
    from podwright_service.cli import background
    from podwright_service.cli.inputs import read_attributes, read_input

    background.start_run(
        background.service_client(url, api_key),
        read_input(text, inputs),
        read_attributes(user, session, metadata),
    )


@runs_commands.command("list")
def list_runs(
    status: Annotated[
        list[str] | None,
        typer.Option(help="Only runs with this status; may be repeated."),
    ] = None,
    caller: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Only runs that a key with this name started."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many.")] = 20,
    as_json: AsJson = False,
    url: ServiceUrl = LOCAL,
    api_key: ServiceKey = None,
) -> None:
    """List background runs, newest first: id, time of creation, status, component, cost and who started it."""
    from podwright_service.cli import background

    background.list_runs(
        background.service_client(url, api_key),
        status or [],
        limit,
        caller=caller,
        as_json=as_json,
    )


@runs_commands.command("show")
def show_run(
    run_id: RunId, url: ServiceUrl = LOCAL, api_key: ServiceKey = None
) -> None:
    """Print a background run as JSON."""
    from podwright_service.cli import background

    background.show_run(background.service_client(url, api_key), run_id)


@runs_commands.command("follow")
def follow_run(
    run_id: RunId, url: ServiceUrl = LOCAL, api_key: ServiceKey = None
) -> None:
    """Print the steps of a background run to standard error as they happen, and at its end its output.

    Exit codes: 0 it succeeded, 1 it did not.
    """
    from podwright_service.cli import background

    raise typer.Exit(
        background.follow_run(background.service_client(url, api_key), run_id)
    )


@runs_commands.command("cancel")
def cancel_run(
    run_id: RunId, url: ServiceUrl = LOCAL, api_key: ServiceKey = None
) -> None:
    """Cancel a background run."""
    from podwright_service.cli import background

    client = background.service_client(url, api_key)
    background.print_status(client.runs.cancel(run_id))


@runs_commands.command("resume")
def resume_run(
    run_id: RunId, url: ServiceUrl = LOCAL, api_key: ServiceKey = None
) -> None:
    """Have a background run that failed or was interrupted go on where it stood."""
    from podwright_service.cli import background

    client = background.service_client(url, api_key)
    background.print_status(client.runs.resume(run_id))


@runs_commands.command("move")
def move_run(
    run_id: RunId,
    check: Annotated[
        bool, typer.Option("--check", help="Only print what differs.")
    ] = False,
    url: ServiceUrl = LOCAL,
    api_key: ServiceKey = None,
) -> None:
    """Have a background run go on with the blueprint of the service, and print what differs.

    It is refused if what the run has done already is different in that.
    """
    from podwright_service.cli import background

    background.move_run(
        background.service_client(url, api_key), run_id, only_check=check
    )


@runs_commands.command("approve")
def approve_run(
    run_id: RunId,
    decision: Annotated[
        str, typer.Option(help="One of the question's options.")
    ] = "approve",
    values: DecisionValues = None,
    comment: Comment = "",
    attempt: AttemptNumber = None,
    url: ServiceUrl = LOCAL,
    api_key: ServiceKey = None,
) -> None:
    """Approve what a background run waits for, or decide otherwise."""
    from podwright_service.cli import background

    client = background.service_client(url, api_key)
    run = background.decide(
        client,
        run_id,
        decision=decision,
        pairs=values or [],
        comment=comment,
        attempt=attempt,
    )
    background.print_status(run)


@runs_commands.command("reject")
def reject_run(
    run_id: RunId,
    comment: Comment = "",
    attempt: AttemptNumber = None,
    url: ServiceUrl = LOCAL,
    api_key: ServiceKey = None,
) -> None:
    """Reject what a background run waits for, which ends it unless it has steps for that."""
    from podwright_service.cli import background

    client = background.service_client(url, api_key)
    background.print_status(client.runs.reject(run_id, comment, attempt))


@runs_commands.command("migrate")
def migrate_database() -> None:
    """Create or update the tables in the database of PODWRIGHT_RUNS_DATABASE; SQLite does so by itself."""
    from podwright_service.cli import background

    background.migrate_database()


@conversation_commands.command("list")
def list_conversations(
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many.")] = 20,
    as_json: AsJson = False,
    url: ServiceUrl = LOCAL,
    api_key: ServiceKey = None,
) -> None:
    """List your conversations, newest turn first: time of that turn, number of turns, bytes, and session."""
    from podwright_service.cli import background, conversations

    client = background.service_client(url, api_key)
    conversations.list_conversations(client, limit, as_json=as_json)


@conversation_commands.command("show")
def show_conversation(
    session: Annotated[str, typer.Argument(help="The session.")],
    url: ServiceUrl = LOCAL,
    api_key: ServiceKey = None,
) -> None:
    """Print a conversation as JSON."""
    from podwright_service.cli import background, conversations

    client = background.service_client(url, api_key)
    conversations.show_conversation(client, session)


@conversation_commands.command("delete")
def delete_conversations(
    session: Annotated[
        str | None, typer.Argument(help="Your session; or give --user.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            help="Delete all conversations of a user, of all callers; needs the scope `erase`."
        ),
    ] = None,
    url: ServiceUrl = LOCAL,
    api_key: ServiceKey = None,
) -> None:
    """Delete a conversation, or all of a user, with all that the service has stored of their runs."""
    from podwright_service.cli import background, conversations

    client = background.service_client(url, api_key)
    conversations.delete_conversations(client, session, user)
