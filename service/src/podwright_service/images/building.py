"""`podwright build`: from a component folder to an image with that one component."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwright import __version__, blueprints
from podwright.components.folder import Folder
from podwright.errors import ConfigurationError, Problem
from podwright_service.images import labels
from podwright_service.images.context import LOCK, requirements, stage
from podwright_service.images.describe import MARK
from podwright_service.images.docker import BuildError, Docker, image_name
from podwright_service.remotes import remotes_of
from podwright_service.settings import read_settings

BASES = {f"podwright:{flavour}": flavour for flavour in ("direct", "full")}
"""The images that a component's is made from, and their flavours."""
BASE = "podwright:direct"

_HERE = Path(__file__).parent
_CHECKOUT = _HERE.parents[3]
_LONGEST_LABEL = 100_000
"""Bytes; the system takes no argument of more than 128 KiB."""
_INDEX = "UV_DEFAULT_INDEX"


@dataclass(frozen=True)
class Built:
    """What was built."""

    image: str
    facts: dict[str, Any]
    """As `labels.facts_in` reads them from the image."""
    files: list[str]
    """The paths of the component's files, in its folder."""
    lock_changed: bool
    """Whether requirements.lock was written."""


def build(
    folder: str | Path,
    image: str,
    *,
    base: str = BASE,
    locked: bool = False,
    docker: Docker | None = None,
    verbose: bool = False,
    told: Callable[[str], None] = lambda line: None,
) -> Built:
    """Build the image of a component folder.

    Its dependencies, of `requirements.txt` or `pyproject.toml`, are locked with hashes in its `requirements.lock`:
    what stands there is kept, what is missing is added. Blueprint, tools and agents are checked in the build.

    Args:
        folder: The component folder.
        image: The image's name.
        base: The image that it is made from; `podwright:direct` or `podwright:full` is built first where it is
            missing and podwright runs from its source.
        locked: Whether a lock that is missing, or not up to date, is an error.
        docker: The client; by default one is looked for.
        verbose: Whether to show what the builder says.
        told: Is called with what is going on.

    Raises:
        BlueprintValidationError: The blueprint has problems, or the tools do not fit it.
        ConfigurationError: There is no client, engine or base image; or something else is wrong with the component.
    """
    image, base = image_name(image), image_name(base)
    component = Folder(Path(folder))
    blueprint = component.blueprint()
    if found := blueprints.problems(blueprint):  # at once, without an engine
        raise blueprints.invalid(found, f"The blueprint of '{component.path.name}'")
    remotes = list(remotes_of(read_settings()))
    with tempfile.TemporaryDirectory(prefix="podwright-") as work:
        context, out = Path(work, "context"), Path(work, "out")
        context.mkdir()
        files = stage(component, context, remotes)
        (context / "requirements-uv.lock").write_bytes((_HERE / "requirements-uv.lock").read_bytes())
        client = docker or Docker()
        arguments = _arguments(_base(client, base, verbose, told), base, remotes, requirements(component.path))
        told(f"Checking '{blueprint['name']}' in {base}.")
        _step(client, component, [*arguments, "--target=facts", f"--output={out}", str(context)], verbose)
        facts = json.loads((out / "facts.json").read_text(encoding="utf-8"))
        changed = _keep_lock(component, (out / LOCK).read_bytes(), locked)
        if changed:  # so that the next step finds what this one made
            (context / "wanted" / LOCK).write_bytes((out / LOCK).read_bytes())
        named = [f"--label={key}={value}" for key, value in labels.of(facts).items()]
        if any(len(one.encode()) > _LONGEST_LABEL for one in named):
            raise ConfigurationError(
                f"What there is to say of '{component.path.name}' is too long for a label.",
                suggestion="Shorten the descriptions of the component and its tools.",
            )
        _step(client, component, [*arguments, *named, f"--tag={image}", "--load", str(context)], verbose)
    return Built(image, facts, files, changed)


def _arguments(known: dict[str, Any], base: str, remotes: Sequence[str], wanted: str | None) -> list[str]:
    python = labels.label(known, labels.BASE_NAME)
    if python is None:
        raise ConfigurationError(
            f"'{base}' does not say what it was made from: it is no image of podwright.",
            suggestion=f"Use --base {' or '.join(BASES)}, or an image made from one of them.",
        )
    values = {
        "BASE": base,
        "PYTHON": python,
        "DEPENDENCIES": "with" if wanted else "without",
        # to load a component, it is enough that they have an address
        "PODWRIGHT_AGENTS": json.dumps(dict.fromkeys(remotes, "http://elsewhere.invalid")),
    }
    secrets = [f"--secret=id=index,env={_INDEX}"] if os.environ.get(_INDEX) else []
    return [
        f"--file={_HERE / 'Dockerfile'}",
        *(f"--build-arg={key}={value}" for key, value in values.items()),
        *secrets,
    ]


def _base(client: Docker, base: str, verbose: bool, told: Callable[[str], None]) -> dict[str, Any]:
    known = client.image(base)
    if known is None and base not in BASES:
        told(f"Fetching {base}.")
        known = client.image(base) if client.pull(base) else None
        if known is None:
            raise ConfigurationError(
                f"There is no image '{base}', here or in its registry.", suggestion=f"Use --base {' or '.join(BASES)}."
            )
    if known is None:
        known = _made_base(client, base, verbose, told)
    release = labels.label(known, labels.VERSION)
    if release and release != __version__:
        told(f"Note: {base} is of podwright {release}, and this is {__version__}.")
    return known


def _made_base(client: Docker, base: str, verbose: bool, told: Callable[[str], None]) -> dict[str, Any]:
    command = f"docker build -t {base} --build-arg FLAVOUR={BASES[base]} ."
    if not all((_CHECKOUT / one).exists() for one in ("Dockerfile", "requirements-uv.lock", "deploy/image")):
        raise ConfigurationError(
            f"There is no image '{base}' here.",
            suggestion=f"In podwright's source folder, run `{command}`; or name one of your registry with --base.",
        )
    told(f"Building {base} first, from {_CHECKOUT}.")
    values = {"FLAVOUR": BASES[base], "VERSION": __version__}
    given = [f"--build-arg={key}={value}" for key, value in values.items()]
    client.build(f"'{base}'", [*given, f"--tag={base}", "--load", str(_CHECKOUT)], verbose)
    known = client.image(base)
    if known is None:
        raise ConfigurationError(
            f"'{base}' was built, but the engine does not have it.",
            suggestion="Use the builder of the engine itself: docker buildx use default.",
        )
    return known


def _step(client: Docker, component: Folder, arguments: list[str], verbose: bool) -> None:
    try:
        client.build(f"The image of '{component.path.name}'", arguments, verbose)
    except BuildError as error:
        line = next((line for line in error.lines if line.startswith(MARK)), None)
        if line is None:
            raise
        wrong = json.loads(line.removeprefix(MARK))
        if wrong["problems"]:
            problems = [Problem(*one) for one in wrong["problems"]]
            raise blueprints.invalid(problems, f"The component '{component.path.name}'") from None
        message = wrong["message"].replace(" of 'component' ", f" of '{component.path.name}' ")  # /component, there
        raise ConfigurationError(message, suggestion=wrong["suggestion"]) from None


def _keep_lock(component: Folder, made: bytes, locked: bool) -> bool:
    if requirements(component.path) is None:
        return False
    file = component.path / LOCK
    if file.is_file() and file.read_bytes() == made:
        return False
    if locked:
        what = "is not up to date" if file.is_file() else "is missing"
        raise ConfigurationError(
            f"'{component.path.name}/{LOCK}' {what}.", suggestion="Build without --locked once, and commit the file."
        )
    try:
        file.write_bytes(made)
    except OSError as error:
        raise ConfigurationError(f"Cannot write '{file}': {error.strerror}.", suggestion="Make it writable.") from error
    return True
