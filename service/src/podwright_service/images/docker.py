"""The Docker client of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from podwright.data.json_data import as_object
from podwright.data.text import truncate
from podwright.errors import ConfigurationError

_INSTALL = "Install Docker with buildx and start it; on Debian, `make engine` in the source folder of Podwright does."
_REFUSED = (
    r"unexpected status\b.*: 40[13] |unauthorized: |(?<!permission )denied: |insufficient_scope|failed to authorize"
    r"|no basic auth credentials|\b(pull|push|requested) access( to the resource)?( is)? denied"
)
"""What a registry answers, or the builder says of it; commands of a build are denied and forbidden other things."""
_HINTS = {
    r"Multi-platform build|multiple platforms feature": (
        "Make a builder for several platforms: `docker buildx create --use`."
    ),
    r"exec format error": (
        "Have this machine run programs of other platforms: "
        "`docker run --privileged --rm tonistiigi/binfmt --install all`."
    ),
    r"no match for platform": (
        "Name a base image that has the platform with --base, or leave the platform out."
    ),
    r"no builder": "List the builders with `docker buildx ls`, and choose one with `docker buildx use NAME`.",
    _REFUSED: "Log in with `docker login REGISTRY`, and check the image's name.",
    r"server gave HTTP response to HTTPS client": "Use a registry with TLS, or tell the builder that it has none.",
}
"""What helps, by patterns of the builder's output."""
_VERBOSE = "Use --verbose for the whole output."


class BuildError(ConfigurationError):
    """An image cannot be built.

    Args:
        lines: The output of the step that failed.
    """

    def __init__(
        self, message: str, lines: Sequence[str], suggestion: str | None = None
    ) -> None:
        super().__init__(message, suggestion=suggestion)
        self.lines = lines


class Docker:
    """A Docker client with buildx.

    Args:
        program: Its path or name; by default the first on PATH with buildx.

    Raises:
        ConfigurationError: There is none.
    """

    def __init__(self, program: str | None = None) -> None:
        if program:
            candidates = [program]
            message = f"'{program}' is not a Docker client with buildx."
        else:
            candidates = [
                str(Path(folder, "docker")) for folder in os.get_exec_path()
            ]
            message = "There is no Docker client on PATH with buildx."
        for candidate in candidates:
            if _succeeds(candidate, "buildx", "version"):
                self.program = candidate
                return
        raise ConfigurationError(message, suggestion=_INSTALL)

    def image(self, name: str) -> dict[str, Any] | None:
        """An image as `docker image inspect` returns it; None if the engine does not have it.

        Raises:
            ConfigurationError: The engine does not respond.
        """
        done = self._run("image", "inspect", name)
        if done.returncode == 0:
            return json.loads(done.stdout)[0]
        if "no such image" in done.stderr.lower():
            return None
        reason = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise ConfigurationError(
            f"The Docker engine does not respond: {truncate(reason, 300)}",
            suggestion=_INSTALL,
        )

    def configs(self, name: str) -> list[dict[str, Any]]:
        """The configuration of an image for each of its platforms, from its registry, else from the engine.

        Nothing is pulled. The list is empty if neither has the image.
        """
        done = self._run(
            "buildx", "imagetools", "inspect", name, "--format={{json .Image}}"
        )
        data: Any = None
        if done.returncode == 0:
            data = json.loads(done.stdout)
        found = as_object(data)
        if "config" in found:
            # of one platform, it is not below the name of that
            return [as_object(found["config"])]
        if found:
            return [
                as_object(as_object(each).get("config"))
                for each in found.values()
            ]
        with contextlib.suppress(ConfigurationError):
            return [as_object(as_object(self.image(name)).get("Config"))]
        return []

    def pull(self, name: str) -> bool:
        """Pull an image, and return whether that succeeded."""
        return self._run("pull", "--quiet", name).returncode == 0

    def build(
        self,
        subject: str,
        arguments: Sequence[str],
        log: Callable[[str], object] = lambda line: None,
    ) -> None:
        """Build with BuildKit.

        Args:
            subject: What is built, for the error message.
            arguments: The arguments of `docker buildx build`.
            log: Called with each line of the builder's output.

        Raises:
            BuildError: It failed.
        """
        command = [
            self.program,
            "buildx",
            "build",
            "--progress=plain",
            *arguments,
        ]
        output: list[str] = []
        with subprocess.Popen(  # noqa: S603 - a list of arguments, without a shell
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as process:
            for line in process.stderr or ():
                output.append(line.rstrip("\n"))
                log(output[-1])
        if process.returncode:
            lines = _failed_step(output)
            words = " ".join(lines).split()
            reason = truncate(" ".join(words), 1_500)
            raise BuildError(
                f"Cannot build {subject}: {reason}",
                lines,
                suggestion=_hint(reason),
            )

    def start(
        self, name: str, variables: Mapping[str, str], *options: str
    ) -> str:
        """Start a container in the background, and return its id.

        Args:
            name: The tag of its image, which is pulled if the engine does not have it.
            variables: Its environment variables; they are not in the arguments, which others can read.
            *options: Further options of `docker run`.

        Raises:
            ConfigurationError: It cannot be started.
        """
        named = [f"--env={variable}" for variable in variables]
        done = _complete(
            self.program,
            "run",
            "--detach",
            *options,
            *named,
            name,
            variables=variables,
        )
        if done.returncode:
            reason = " ".join(done.stderr.split())
            raise ConfigurationError(
                f"Cannot run the image '{truncate(name, 200)}': {truncate(reason, 300)}",
                suggestion=_INSTALL,
            )
        return done.stdout.strip()

    def address(self, container: str, port: int) -> str:
        """Return where a port of a container is published, as `HOST:PORT`."""
        done = self._run("port", container, f"{port}/tcp")
        return done.stdout.split("\n")[0].strip()

    def logs(self, container: str) -> str:
        """Return the output of a container so far."""
        done = self._run("logs", container)
        return done.stdout + done.stderr

    def remove(self, container: str) -> None:
        """Stop a container, and remove it with its volumes."""
        self._run("rm", "--force", "--volumes", container)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _complete(self.program, *arguments)


def _hint(reason: str) -> str:
    for pattern, hint in _HINTS.items():
        if re.search(pattern, reason, re.IGNORECASE):
            return f"{hint} {_VERBOSE}"
    return _VERBOSE


def _failed_step(output: Sequence[str]) -> list[str]:
    """The output of the step that failed; if it has none, the builder's error."""
    failed = "none"
    errors: list[str] = []
    for line in output:
        match = re.match(r"#(\d+) ERROR: ", line)
        if match:
            failed = match[1]
        if line.startswith("ERROR: "):
            errors.append(line.removeprefix("ERROR: "))
    pattern = re.compile(rf"#{failed} \d+\.\d+ (.*)")
    step: list[str] = []
    for line in output:
        match = pattern.fullmatch(line)
        if match and match[1].strip():
            step.append(match[1])
    return step or errors[-1:] or list(output[-3:])


def _complete(
    *command: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - a list of arguments, without a shell
        command,
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **(variables or {})},
    )


def _succeeds(*command: str) -> bool:
    try:
        done = _complete(*command)
    except OSError:
        return False
    return done.returncode == 0
