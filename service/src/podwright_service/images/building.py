"""Build the image of a component folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwright import __version__, blueprints
from podwright.data.text import os_error_reason, truncate
from podwright.errors import ConfigurationError, Problem
from podwright.folders.folder import Folder
from podwright_service.images.context import (
    LOCK,
    files_with_credentials,
    requirements,
    stage,
    stage_mcp,
)
from podwright_service.images.credentials import note_on_credentials
from podwright_service.images.describe import ERROR_PREFIX
from podwright_service.images.docker import BuildError, Docker
from podwright_service.images.labels import (
    BASE_NAME,
    FLAVOUR,
    VERSION,
    label,
    to_labels,
)
from podwright_service.images.reference import check_reference
from podwright_service.remotes import remotes_of
from podwright_service.settings import read_settings

BASE = "podwright:slim"
"""The default base image."""

_FOLDER = Path(__file__).parent
_LOCAL = "podwright:"
"""The names of the base images that `make image` makes, which are in no registry."""
_PLATFORM = re.compile(r"[a-z0-9]+/[a-z0-9_]+(/[a-z0-9.]+)?")
_INDEX = "UV_DEFAULT_INDEX"

Report = Callable[[str], None]


def no_report(line: str) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class BuiltImage:
    """The result of a build."""

    facts: dict[str, Any]
    """The description of the component, as in the labels."""
    files: list[str]
    """The paths of the component's files."""
    lock_changed: bool
    """Whether requirements.lock was written."""
    image_digest: str = ""
    """The digest that the registry has of it, `sha256:…`; empty if it was not pushed."""


def build(
    folder: str | Path,
    image: str,
    *,
    base: str = BASE,
    locked: bool = False,
    docker: Docker | None = None,
    verbose: bool = False,
    report: Report = no_report,
    push: bool = False,
    platforms: Sequence[str] = (),
) -> BuiltImage:
    """Build the image of a component folder.

    Its dependencies, in `requirements.txt` or `pyproject.toml`, are locked with hashes in `requirements.lock`: locked
    releases are kept, missing ones are added. If a blueprint names MCP tools, the package `mcp` is installed as
    this release has locked it, unless the base image is of the flavour full. Blueprint, tools and agents are checked in
    the build.

    Args:
        folder: The component folder.
        image: The image's name.
        base: The base image; it is pulled if it is missing.
        locked: Whether a lock that is missing or not up to date is an error.
        docker: The client; by default the first on PATH with buildx.
        verbose: Whether to print the builder's output.
        report: Called with each line of progress.
        push: Whether to push the image instead of loading it into the engine.
        platforms: For which platforms, such as `linux/arm64`; by default the engine's. Several need `push`.

    Raises:
        BlueprintValidationError: The blueprint is invalid, or the tools do not match it.
        ConfigurationError: Client, engine or base image is missing, or the component is wrong in another way.
    """
    check_reference(image)
    check_reference(base)
    _check_platforms(platforms, base, push=push)
    component = Folder(Path(folder))
    blueprint = component.blueprint()
    problems = blueprints.problems(blueprint)
    if problems:
        raise blueprints.invalid(
            problems, f"The blueprint of '{component.path.name}'"
        )
    remotes = list(remotes_of(read_settings()))
    with tempfile.TemporaryDirectory(prefix="podwright-") as work:
        context = Path(work, "context")
        output = Path(work, "output")
        context.mkdir()
        files = stage(component, context, remotes)
        left_out = files_with_credentials(component, remotes)
        if left_out:
            report(note_on_credentials(left_out))
        client = docker or Docker()
        base_data = _find_base(client, base, report)
        has_wanted = _stage_installation(component, context, base_data)
        arguments = _arguments(base, base_data, remotes, has_wanted=has_wanted)
        report(f"Checking '{blueprint['name']}' in {base}.")
        log = no_report
        if verbose:
            log = report
        check = ["--target=facts", f"--output={output}", str(context)]
        # with several platforms, the output would be a folder for each
        first = [f"--platform={platform}" for platform in platforms[:1]]
        _run_build(client, component, [*arguments, *first, *check], log)
        facts = json.loads((output / "facts.json").read_text(encoding="utf-8"))
        lock = (output / LOCK).read_bytes()
        lock_changed = _update_lock(component, lock, locked)
        if lock_changed:  # so that the next build uses the cache of this one
            (context / "wanted" / LOCK).write_bytes(lock)
        labels: list[str] = []
        for name, value in to_labels(facts).items():
            labels.append(f"--label={name}={value}")
        metadata = Path(work, "metadata.json")
        final = _destination(image, platforms, metadata, push=push)
        _run_build(
            client,
            component,
            [*arguments, *labels, *final, str(context)],
            log,
        )
        image_digest = ""
        if push:
            written = json.loads(metadata.read_text(encoding="utf-8"))
            image_digest = written["containerimage.digest"]
    return BuiltImage(facts, files, lock_changed, image_digest)


def _destination(
    image: str, platforms: Sequence[str], metadata: Path, *, push: bool
) -> list[str]:
    """The arguments that say where the image goes, and what is written about it."""
    place = "--load"
    if push:
        place = "--push"
    arguments = [f"--tag={image}", place, f"--metadata-file={metadata}"]
    if platforms:
        arguments.append(f"--platform={','.join(platforms)}")
    return arguments


def _check_platforms(
    platforms: Sequence[str], base: str, *, push: bool
) -> None:
    for platform in platforms:
        if not _PLATFORM.fullmatch(platform):
            raise ConfigurationError(
                f"Invalid platform '{truncate(platform, 60)}'.",
                suggestion="Write it as linux/amd64 or linux/arm64.",
            )
    if len(platforms) <= 1:
        return
    if not push:
        raise ConfigurationError(
            "An image for several platforms is kept in a registry, not in the engine of this machine.",
            suggestion="Add --push, with a --tag that names the registry.",
        )
    if base.startswith(_LOCAL):
        raise ConfigurationError(
            f"The base image '{base}' is on this machine only, and for several platforms it comes from a registry.",
            suggestion=(
                "Push it, `make image IMAGE=REGISTRY/podwright:slim ARGS='--platform "
                f"{','.join(platforms)} --push'`, and name it with --base."
            ),
        )


def _find_base(client: Docker, base: str, report: Report) -> dict[str, Any]:
    data = client.image(base)
    if data is None and not base.startswith(_LOCAL):
        report(f"Pulling {base}.")
        if client.pull(base):
            data = client.image(base)
    if data is None:
        raise ConfigurationError(
            f"There is no image '{base}'.",
            suggestion="Run `make image` in the source folder of Podwright, or name another image with --base.",
        )
    version = label(data, VERSION)
    if version and version != __version__:
        report(
            f"Note: {base} has Podwright {version}, and this is {__version__}."
        )
    return data


def _stage_installation(
    component: Folder, context: Path, base: dict[str, Any]
) -> bool:
    """Add the locks of the installer and of `mcp` to a context, and return whether the component needs packages."""
    installer_lock = "requirements-uv.lock"
    shutil.copyfile(_FOLDER / installer_lock, context / installer_lock)
    # the flavour full has the package for MCP
    has_mcp = label(base, FLAVOUR) != "full" and stage_mcp(context)
    return has_mcp or requirements(component.path) is not None


def _arguments(
    base: str,
    data: dict[str, Any],
    remotes: Sequence[str],
    *,
    has_wanted: bool,
) -> list[str]:
    """The arguments that both builds share."""
    python = label(data, BASE_NAME)
    if python is None:
        raise ConfigurationError(
            f"'{base}' is not an image of Podwright: it has no label {BASE_NAME}.",
            suggestion="Use --base podwright:slim or podwright:full, or an image built from one of them.",
        )
    dependencies = "without"
    if has_wanted:
        dependencies = "with"
    # their addresses do not matter for loading the component
    agents = dict.fromkeys(remotes, "http://remote.invalid")
    arguments = [
        f"--file={_FOLDER / 'Dockerfile'}",
        f"--build-arg=BASE={base}",
        f"--build-arg=PYTHON={python}",
        f"--build-arg=DEPENDENCIES={dependencies}",
        f"--build-arg=PODWRIGHT_AGENTS={json.dumps(agents)}",
    ]
    if os.environ.get(_INDEX):
        arguments.append(f"--secret=id=index,env={_INDEX}")
    return arguments


def _run_build(
    client: Docker, component: Folder, arguments: list[str], log: Report
) -> None:
    try:
        client.build(f"the image of '{component.path.name}'", arguments, log)
    except BuildError as error:
        lines = [line for line in error.lines if line.startswith(ERROR_PREFIX)]
        if not lines:
            raise
        name = component.path.name
        found = json.loads(lines[0].removeprefix(ERROR_PREFIX))
        if found["problems"]:
            problems = [Problem(*problem) for problem in found["problems"]]
            raise blueprints.invalid(
                problems, f"The component '{name}'"
            ) from None
        # in the build, the folder is /component
        message = found["message"].replace("'component'", f"'{name}'")
        raise ConfigurationError(
            message, suggestion=found["suggestion"]
        ) from None


def _update_lock(component: Folder, content: bytes, locked: bool) -> bool:
    """Write requirements.lock if it differs, and return whether it did."""
    file = component.path / LOCK
    if requirements(component.path) is None:
        return False
    state = "missing"
    if file.is_file():
        if file.read_bytes() == content:
            return False
        state = "not up to date"
    if locked:
        raise ConfigurationError(
            f"'{component.path.name}/{LOCK}' is {state}.",
            suggestion="Build without --locked, and commit the file.",
        )
    try:
        file.write_bytes(content)
    except OSError as error:
        raise ConfigurationError(
            f"Cannot write '{file}': {os_error_reason(error)}.",
            suggestion="Make it writable.",
        ) from error
    return True
