"""A client of the engine, and a container that runs."""

from __future__ import annotations

import json
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

PATIENCE = 120
"""Seconds that a loaded machine may need for what takes two."""


def tool(name: str) -> dict[str, Any]:
    """A blueprint's entry for a tool without arguments."""
    parameters = {"type": "object", "properties": {}, "additionalProperties": False}
    function = {"name": name, "parameters": parameters, "description": f"{name.title()}."}
    return {"name": name, "schema": {"type": "function", "function": function}}


class Engine:
    """Calls the Docker client with arguments."""

    def __init__(self, client: str) -> None:
        self.client = client

    def __call__(self, *arguments: str | Path) -> str:
        done = self.says(*arguments)
        assert done.returncode == 0, f"docker {arguments}\n{done.stdout}{done.stderr}"
        return done.stdout

    def says(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.client, *arguments], capture_output=True, text=True)

    def image(self, name: str) -> dict[str, Any]:
        return json.loads(self("image", "inspect", name))[0]

    def layers(self, name: str, base: str | None = None) -> list[Layer]:
        """The layers that an image has above another one."""
        below = len(self.image(base)["RootFS"]["Layers"]) if base else 0
        digests = self.image(name)["RootFS"]["Layers"][below:]
        with tempfile.TemporaryDirectory() as folder:
            self("save", "--output", f"{folder}/image.tar", name)
            with tarfile.open(f"{folder}/image.tar") as whole:
                manifest = whole.extractfile("manifest.json")
                assert manifest is not None
                blobs = json.load(manifest)[0]["Layers"][below:]
                return [Layer(whole, blob, digest) for blob, digest in zip(blobs, digests, strict=True)]


class Layer:
    """The entries of one layer, by path."""

    def __init__(self, whole: tarfile.TarFile, blob: str, digest: str) -> None:
        self.digest = digest
        self.entries: dict[str, tarfile.TarInfo] = {}
        self.contents: dict[str, bytes] = {}
        """Of files below a megabyte."""
        packed = whole.extractfile(blob)
        assert packed is not None
        with tarfile.open(fileobj=packed) as layer:
            for entry in layer:
                self.entries[entry.name] = entry
                if entry.isfile() and entry.size < 1_000_000:
                    content = layer.extractfile(entry)
                    assert content is not None
                    self.contents[entry.name] = content.read()

    def files(self) -> Iterator[tarfile.TarInfo]:
        return (entry for entry in self.entries.values() if entry.isfile())


class Container:
    """A container that runs."""

    def __init__(self, engine: Engine, id: str) -> None:
        self.engine, self.id = engine, id

    def state(self) -> dict[str, Any]:
        return json.loads(self.engine("container", "inspect", self.id))[0]["State"]

    def until(self, true: Callable[[], object], what: str) -> None:
        """Wait until something is so; a container that ends meanwhile tells why."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert self.state()["Running"], self.logs()
            assert time.monotonic() < deadline, f"not {what}: {self.logs()}"
            time.sleep(0.1)

    def healthy(self) -> Container:
        """Wait until the health check of the image says so."""
        self.until(lambda: self.state()["Health"]["Status"] == "healthy", "healthy")
        return self

    def logs(self) -> str:
        done = self.engine.says("logs", self.id)
        return done.stdout + done.stderr

    def run(self, *command: str) -> str:
        """Run a command in it."""
        return self.engine("exec", self.id, *command)

    def ask(self, body: object) -> Any:
        """Post to `/run` from inside, for it may have no network."""
        code = (
            "import sys, urllib.request as u; r = u.Request('http://127.0.0.1:8000/run', sys.argv[1].encode(),"
            " {'content-type': 'application/json'}); print(u.urlopen(r, timeout=60).read().decode())"
        )
        return json.loads(self.run("python", "-c", code, json.dumps(body)))

    def port(self) -> str:
        """The address that its port 8000 is published on."""
        return "http://" + self.engine("port", self.id, "8000/tcp").splitlines()[0]

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.port(), timeout=PATIENCE)

    def stop(self) -> int:
        """Stop it as `docker stop` does, and give its exit code."""
        self.engine("stop", "--time", "60", self.id)
        return self.state()["ExitCode"]
