"""Running containers, and the layers of images."""

from __future__ import annotations

import json
import tarfile
import tempfile
from typing import Any

from tests.helpers import until
from tests.image_support import Docker


def tool_entry(name: str) -> dict[str, Any]:
    """A blueprint's entry for a tool without arguments."""
    parameters = {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    function = {
        "name": name,
        "parameters": parameters,
        "description": f"{name.title()}.",
    }
    return {"name": name, "schema": {"type": "function", "function": function}}


class Layer:
    """The entries of one layer by path, and the contents of files below a megabyte."""

    def __init__(self, image: tarfile.TarFile, blob: str, digest: str) -> None:
        self.digest = digest
        self.entries: dict[str, tarfile.TarInfo] = {}
        self.contents: dict[str, bytes] = {}
        packed = image.extractfile(blob)
        assert packed is not None
        with tarfile.open(fileobj=packed) as layer:
            for entry in layer:
                self.entries[entry.name] = entry
                if entry.isfile() and entry.size < 1_000_000:
                    content = layer.extractfile(entry)
                    assert content is not None
                    self.contents[entry.name] = content.read()


def layers(docker: Docker, name: str, base: str) -> list[Layer]:
    """The layers of an image above its base image."""
    below = len(docker.inspect(base)["RootFS"]["Layers"])
    digests = docker.inspect(name)["RootFS"]["Layers"][below:]
    with tempfile.TemporaryDirectory() as folder:
        docker("save", "--output", f"{folder}/image.tar", name)
        with tarfile.open(f"{folder}/image.tar") as image:
            manifest = image.extractfile("manifest.json")
            assert manifest is not None
            blobs = json.load(manifest)[0]["Layers"][below:]
            return [
                Layer(image, blob, digest)
                for blob, digest in zip(blobs, digests, strict=True)
            ]


POST = """\
import sys
import urllib.error
import urllib.request

request = urllib.request.Request(
    "http://127.0.0.1:8000/run",
    sys.argv[1].encode(),
    {"content-type": "application/json"},
)
try:
    response = urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as error:
    response = error
print(response.read().decode())
"""
"""Prints the response to a request, also if it is a problem."""


class Container:
    """A running container."""

    def __init__(self, docker: Docker, id: str) -> None:
        self.docker = docker
        self.id = id

    def state(self) -> dict[str, Any]:
        return self.docker.inspect(self.id)["State"]

    def healthy(self) -> Container:
        """Wait for the health check of the image."""

        def ended_or_healthy() -> bool:
            state = self.state()
            return (
                not state["Running"] or state["Health"]["Status"] == "healthy"
            )

        until(ended_or_healthy, 120, self.logs)
        assert self.state()["Running"], self.logs()
        return self

    def logs(self) -> str:
        done = self.docker.run("logs", self.id)
        return done.stdout + done.stderr

    def run(self, *command: str) -> str:
        """Run a command in it."""
        return self.docker("exec", self.id, *command)

    def post_run(self, body: object) -> Any:
        """Post to `/run` from inside, because it may have no network."""
        return json.loads(self.run("python", "-c", POST, json.dumps(body)))

    def stop(self) -> int:
        """Stop it as `docker stop` does, and return its exit code."""
        self.docker("stop", "--time", "60", self.id)
        return self.state()["ExitCode"]
