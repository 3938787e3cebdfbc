"""A component served by a process on this machine."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import httpx

from podwright_service.testing.served import Served, StartError

if TYPE_CHECKING:
    from podwright_service.testing.served import Model, Volume
    from podwright_service.testing.spans import SpanCollector

_PROGRAM = """
import os, signal, threading, time
from podwright_service.cli import main

def stop_after(parent):
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=stop_after, args=(os.getppid(),), daemon=True).start()
main()
"""
"""The command, which stops soon after the process of the test, also if that was killed."""


class ComponentProcess(Served):
    """Serves a component with `podwright serve`, from `start` to `stop` or within a `with` block.

    Args:
        component: A component folder, a blueprint file, or `module:attribute`.
        model: A model's name, or a `ModelStub`, that serves every model call.
        spans: The collector of its spans; by default it exports none.
        api_key: An API key that the component requires, and the client sends.
        env: Further environment variables. Those of this process with the prefix `PODWRIGHT_` or `OTEL_` are left out.
        volumes: Folders and files of this machine, and their paths in a container. A process has no mounts: where `env`
            has such a path, it stands for the one on this machine.
        startup: Seconds to wait until it is ready.
        python: The Python that serves it, with the packages that its code needs; by default this one.
    """

    def __init__(
        self,
        component: str | os.PathLike[str],
        *,
        model: Model | None = None,
        spans: SpanCollector | None = None,
        api_key: str | None = None,
        env: Mapping[str, str] | None = None,
        volumes: Sequence[Volume] = (),
        startup: float = 60.0,
        python: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(model, spans, api_key, env)
        for name, value in self._env.items():
            self._env[name] = _on_this_machine(value, volumes)
        self._component = os.fspath(component)
        self._startup = startup
        self._python = os.fspath(python or sys.executable)
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._log = b""

    def start(self) -> Self:
        """Serve, and wait until the component is ready.

        Raises:
            StartError: It did not become ready in time, or stopped before.
        """
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PODWRIGHT_", "OTEL_"))
        }
        program = [self._python, "-c", _PROGRAM]
        options = [
            "serve",
            self._component,
            "--host",
            "127.0.0.1",
            "--port",
            "0",
        ]
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - stop() closes it
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [*program, *options],
            env={**inherited, **self._variables("url")},
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.stop()
            raise
        return self

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._startup
        while not self._is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise StartError(
                    f"'{self._component}' did not become ready. Its log:\n{self.logs()[-4000:]}"
                )
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        match = re.search(
            r"(?:running on|Listening at:) (http://127\.0\.0\.1:\d+)",
            self.logs(),
        )
        if match is None:
            return False
        self.url = match[1]
        with contextlib.suppress(httpx.HTTPError):
            return self.client.get("/ready", timeout=2).status_code == 200
        return False

    def logs(self) -> str:
        """The output of the process so far."""
        if self._output is not None:
            self._log = os.pread(
                self._output.fileno(),
                os.fstat(self._output.fileno()).st_size,
                0,
            )
        return self._log.decode(errors="replace")

    def stop(self) -> int:
        """Stop the process gracefully and return its exit code."""
        self._disconnect()
        if self._process is None or self._output is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout=60)
        finally:
            self._process.kill()
            self._process.wait()
            self.logs()
            self._output.close()
            self._process = self._output = None

    def __enter__(self) -> Self:
        return self if self._process else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _on_this_machine(value: str, volumes: Sequence[Volume]) -> str:
    """The value of a variable with the paths of this machine in place of those in a container."""
    sources = {
        target.rstrip("/"): str(Path(source).absolute())
        for source, target, *_ in volumes
    }
    targets = "|".join(map(re.escape, sources))
    if not targets:
        return value
    # not a part of a longer name, such as /var/data and /database for /data
    path = re.compile(rf"(?<![\w.-])({targets})(?![\w.-])")
    return path.sub(lambda match: sources[match[0]], value)
