"""`podwright deploy`: from component folders to the values of the Helm chart, and what new ones change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

deploying = typer.Typer(no_args_is_help=True, help="Make, and compare, the values of the Helm chart.")

Folders = Annotated[list[str], typer.Argument(metavar="FOLDER...", help="Component folders.")]
Running = Annotated[
    str,
    typer.Argument(metavar="RUNNING", help="The release's values: `helm get values RELEASE`; `-` is standard input."),
]
Changed = Annotated[
    list[str], typer.Argument(metavar="NEW...", help="Folders of new or changed components; or a whole values file.")
]


@deploying.command()
def render(
    folders: Folders,
    onto: Annotated[
        str | None, typer.Option(metavar="FILE", help="Values to put the components into; `-` is standard input.")
    ] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write them.")] = None,
) -> None:
    """Write the values that make a fleet of component folders.

    Exit codes: 0 they are written, 1 a folder cannot be a component of a fleet.
    """
    from podwright_service import deploy
    from podwright_service.cli.console import say, write_text

    values = deploy.renew(_values(onto) if onto else {}, folders)
    text = deploy.write_values(values)
    if output is None:
        say(text.rstrip("\n"))
    else:
        write_text(output, text)
        say(f"{output}: {', '.join(values['components'])}")


@deploying.command()
def diff(
    running: Running,
    new: Changed,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if a change is breaking.")] = False,
) -> None:
    """Say what new blueprints or values change in a running release, and what of it may let callers down.

    Exit codes: 0; with --exit-code 1 if a change is breaking.
    """
    from podwright_service import deploy
    from podwright_service.cli.console import say, say_json

    before = _values(running)
    whole = len(new) == 1 and not Path(new[0]).is_dir()
    changes = deploy.diff(before, _values(new[0]) if whole else deploy.renew(before, new))
    if as_json:
        say_json([{**vars(change), "breaking": change.breaking} for change in changes])
    for change in () if as_json else changes:
        say(str(change))
    raise typer.Exit(1 if exit_code and any(change.breaking for change in changes) else 0)


def _values(path: str) -> dict[str, Any]:
    from podwright_service import deploy
    from podwright_service.cli.console import read_text

    return deploy.read_values(read_text(path))
