"""The command line: `podwright`."""

from __future__ import annotations

from typing import Annotated

import typer

from podwright import __version__
from podwright.errors import ConfigurationError, PodwrightError
from podwright_service.settings import Settings, read_settings

Path = Annotated[
    str | None,
    typer.Argument(
        metavar="[PATH]",
        help="A blueprint file, a component folder, or module:attribute; by default PODWRIGHT_COMPONENT.",
        show_default=False,
    ),
]


def _setting(name: str) -> typer.models.OptionInfo:
    return typer.Option(help=str(Settings.model_fields[name].description), show_default=False)


def serve(
    path: Path = None,
    host: Annotated[str | None, _setting("host")] = None,
    port: Annotated[int | None, _setting("port")] = None,
    title: Annotated[str | None, _setting("title")] = None,
) -> None:
    """Serve a component over HTTP. Whatever is not given here comes from the PODWRIGHT_ variables."""
    # a web framework takes a while to import, and help and errors need none
    from podwright_service.remotes import remotes_of
    from podwright_service.source import load_component

    try:
        settings = read_settings(component=path, host=host, port=port, title=title)
        if settings.component is None:
            raise ConfigurationError(
                "There is nothing to serve.", suggestion="Give a PATH, or set PODWRIGHT_COMPONENT."
            )
        component = load_component(settings.component, remotes_of(settings))
        from podwright_service import server

        server.serve(component, settings)
    except PodwrightError as error:
        error.rich_print()
        raise typer.Exit(1) from None


def podwright(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Agents, workflows, conductors and pipelines, from blueprint to pod."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    commands = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
    commands.callback(invoke_without_command=True)(podwright)  # with a callback, a lone command keeps its name
    commands.command()(serve)
    commands()
