"""A component served by a process beside the test: the quick half of a test that also runs in an image."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import httpx

from podwright_service.testing.served import ModelSource, Served, StartError, environment

if TYPE_CHECKING:
    from podwright_service.testing.spans import SpanCollector


class ComponentProcess(Served):
    """Serves a component with `podwright serve`, from `start` to `stop` or within a `with` block.

    Args:
        component: A component folder, a blueprint file, or `module:attribute`.
        model: A model's name, or a `ModelStub`, that answers every model call.
        spans: Where its spans go; nowhere by default.
        api_key: A key that it wants, and is sent.
        env: More variables. Those of this process that begin with `PODWRIGHT_` or `OTEL_` are left out.
        startup: Seconds that it may take to be ready.
    """

    def __init__(
        self,
        component: str | os.PathLike[str],
        *,
        model: str | ModelSource | None = None,
        spans: SpanCollector | None = None,
        api_key: str | None = None,
        env: Mapping[str, str] | None = None,
        startup: float = 60.0,
    ) -> None:
        super().__init__(api_key, model)
        self._component, self._spans, self._env, self._startup = os.fspath(component), spans, dict(env or {}), startup
        self._process: subprocess.Popen[bytes] | None = None
        self._log = b""

    def start(self) -> Self:
        """Serve, and wait until it is ready.

        Raises:
            StartError: It is not, or ends before.
        """
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PODWRIGHT_", "OTEL_"))}
        given = environment("url", self._model, self._spans, self.api_key) | self._env
        program = [sys.executable, "-c", "from podwright_service.cli import main; main()"]
        options = ["serve", self._component, "--host", "127.0.0.1", "--port", "0"]
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [*program, *options], env={**kept, **given}, stdout=self._file, stderr=subprocess.STDOUT
        )
        try:
            self._await(self._process)
            self._check_models()
        except BaseException:
            self.stop()
            raise
        return self

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._startup
        while not self._ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise StartError(f"'{self._component}' did not become ready. Its log:\n{self.logs()[-4000:]}")
            time.sleep(0.02)

    def _ready(self) -> bool:
        found = re.search(r"running on (http://127\.0\.0\.1:\d+)", self.logs())
        if found is None:
            return False
        self.url = found[1]
        with contextlib.suppress(httpx.HTTPError):
            return self.client.get("/ready", timeout=2).status_code == 200
        return False

    def logs(self) -> str:
        """What it has printed."""
        if self._process is not None:
            size = os.fstat(self._file.fileno()).st_size
            self._log = os.pread(self._file.fileno(), size, 0)
        return self._log.decode(errors="replace")

    def stop(self) -> int:
        """Have it drain and end, and give its exit code."""
        self._disconnect()
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout=60)
        finally:
            self._process.kill()
            self._process.wait()
        self.logs()
        self._process = None
        self._file.close()
        return code

    def __enter__(self) -> Self:
        return self if self._process else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
