"""The Docker client of this machine: the few things that are asked of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podwright.errors import ConfigurationError
from podwright.text import truncate
from podwright_service.cli.console import say

_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}", re.ASCII)
_HINT = "Install Docker with buildx and start it; on a bare Debian machine, Podwright's `make engine` does."


class BuildError(ConfigurationError):
    """An image could not be built.

    Args:
        lines: What the step that failed said.
    """

    def __init__(self, message: str, lines: Sequence[str], suggestion: str | None = None) -> None:
        super().__init__(message, suggestion=suggestion)
        self.lines = lines


def image_name(text: str) -> str:
    """A name of an image, such as `calculator` or `registry.example/team/calculator:1.0`.

    Raises:
        ConfigurationError: No image could be called that.
    """
    if not _REFERENCE.fullmatch(text):
        raise ConfigurationError(
            f"'{truncate(text, 100)}' is no name of an image.", suggestion="Write it as NAME or NAME:TAG."
        )
    return text


class Docker:
    """A client that knows buildx.

    Args:
        program: Its path or name; by default the first of that kind on the PATH.

    Raises:
        ConfigurationError: There is none.
    """

    def __init__(self, program: str | None = None) -> None:
        beside = [str(Path(folder) / "docker") for folder in os.get_exec_path()]
        for one in [program] if program else beside:
            if _succeeds(one, "buildx", "version"):
                self.program = one
                return
        where = f"'{program}' is no Docker client" if program else "There is no Docker client on the PATH"
        raise ConfigurationError(f"{where} with buildx.", suggestion=_HINT)

    def image(self, name: str) -> dict[str, Any] | None:
        """What the engine knows of an image, as `docker image inspect` has it; None if it is not here.

        Raises:
            ConfigurationError: The engine does not answer.
        """
        done = self._run("image", "inspect", name)
        if done.returncode == 0:
            return json.loads(done.stdout)[0]
        if "no such image" in done.stderr.lower():
            return None
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise ConfigurationError(f"The Docker engine does not answer: {truncate(said, 300)}", suggestion=_HINT)

    def pull(self, name: str) -> bool:
        """Fetch an image from its registry, and tell whether it is here."""
        return self._run("pull", "--quiet", name).returncode == 0

    def build(self, what: str, arguments: Sequence[str], verbose: bool = False) -> None:
        """Build with BuildKit.

        Args:
            what: What is built, for the error.
            arguments: Those of `docker buildx build`.
            verbose: Whether to show what the builder says as it goes.

        Raises:
            BuildError: It failed.
        """
        command = [self.program, "buildx", "build", "--progress=plain", *arguments]
        said: list[str] = []
        with subprocess.Popen(  # noqa: S603 - a list, so no shell reads it
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as building:
            for line in building.stderr or ():
                said.append(line.rstrip("\n"))
                if verbose:
                    say(said[-1], sys.stderr)
        if building.returncode:
            lines = failed_step(said)
            told = truncate(" ".join(" ".join(lines).split()), 1_500)
            raise BuildError(f"{what} cannot be built: {told}", lines, "With --verbose, all of the build is shown.")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.program, *arguments], check=False, capture_output=True, text=True, errors="replace")  # noqa: S603


def failed_step(said: Sequence[str]) -> list[str]:
    """What the step said that a build failed in, without the builder's own words; if it said nothing, the error."""
    failed = [found[1] for line in said if (found := re.match(r"#(\d+) ERROR: ", line))]
    spoken = re.compile(rf"#{failed[-1] if failed else 'none'} \d+\.\d+ (.*)")
    step = [found[1] for line in said if (found := spoken.fullmatch(line)) and found[1].strip()]
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    return step or errors[-1:] or list(said[-3:])


def _succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603
    except OSError:
        return False
