"""`podwright build` for a registry: several platforms, the digest, and the values of the chart."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers import plain_http
from tests.image.conftest import Shell
from tests.image.test_build import agent, error_of
from tests.image_support import Docker
from tests.registry import running_registry

from podwright_service.fleet import chart_values

DIGEST = f"sha256:{'5' * 64}"
IMAGE = "registry.example:5000/team/calculator:1.0"
BASE = "registry.example/podwright:slim"
UNREACHABLE = "127.0.0.1:1/x:1"
PLATFORMS = "linux/amd64,linux/arm64"
VERBOSE = "Use --verbose"


class Client:
    """A Docker client that notes how it was called.

    Args:
        folder: Where it may write.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        script = Path(__file__).with_name("docker_client.py").read_text()
        self.program = folder / "docker"
        self.program.write_text(f"#!{sys.executable}\n{script}")
        self.program.chmod(0o755)
        self.set(DIGEST)

    def set(self, digest: str, *errors: str) -> None:
        """Choose the digest of images, and the output of a builder that fails."""
        scenario = {"digest": digest, "errors": errors}
        (self._folder / "scenario.json").write_text(json.dumps(scenario))

    @property
    def builds(self) -> list[list[str]]:
        """The arguments of each build."""
        file = self._folder / "builds.jsonl"
        if not file.exists():
            return []
        return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path / "client")


@pytest.fixture
def build(shell: Shell, client: Client, tmp_path: Path) -> Any:
    """Builds the component `calculator` with options."""
    agent(tmp_path / "calculator")

    def run(*options: str, image: str = IMAGE) -> Any:
        return shell(
            "build", "calculator", "--tag", image, "--docker", str(client.program), *options
        )  # fmt: skip

    return run


@pytest.mark.parametrize("separator", [",", ", "])
def test_an_image_of_several_platforms(
    build: Any, client: Client, separator: str
) -> None:
    """The component is checked for one platform first; the image is pushed for all, and its digest is printed."""
    platforms = PLATFORMS.replace(",", separator)
    done = build("--push", "--platform", platforms, "--base", BASE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Pushed {IMAGE}@{DIGEST}: agent")
    facts, final = client.builds
    assert "--platform=linux/amd64" in facts
    assert {f"--platform={PLATFORMS}", "--push", f"--tag={IMAGE}"} <= {*final}
    assert "--load" not in final


@pytest.mark.parametrize(
    ("options", "place"),
    [((), "--load"), (("--platform=linux/arm64",), "--load"), (("--push",), "--push")],
)  # fmt: skip
def test_an_image_of_one_platform(
    build: Any, client: Client, options: tuple[str, ...], place: str
) -> None:
    """It stays in the engine unless it is pushed."""
    done = build(*options)
    assert done.returncode == 0, done.stderr
    assert (DIGEST in done.stdout) == ("--push" in options)
    _, final = client.builds
    assert [each for each in final if each in ("--load", "--push")] == [place]


@pytest.mark.parametrize(
    "options",
    [
        ("--platform", PLATFORMS, "--base", BASE),
        ("--platform", PLATFORMS, "--push"),
        ("--platform", "arm64"),
        ("--platform", "linux/amd64,", "--push", "--base", BASE),
        ("--onto", "values.yaml"),
        ("--onto", "values.yaml", "--push"),
    ],
)
def test_what_no_builder_can_do(
    build: Any, client: Client, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """An engine holds no image of several platforms, and values need a digest and the component: nothing is built."""
    values = {"components": {"writer": {"image": {"tag": "1"}}}}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    message = error_of(build(*options))
    assert "Suggestion: " in message
    assert client.builds == []


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (
            "ERROR: Multi-platform build is not supported for the docker driver.",
            "docker buildx create --use",
        ),
        (
            "#9 [checked 1/1] RUN\n#9 0.1 exec /bin/sh: exec format error\n#9 ERROR: process did not complete",
            "binfmt",
        ),
        ("ERROR: failed to solve: no match for platform in manifest", "--base"),
        (
            "#9 ERROR: failed to push: 401 Unauthorized\nERROR: push access denied",
            "docker login",
        ),
        (
            "ERROR: unexpected status from POST request to https://registry.example/v2/x/blobs/: 403 Forbidden",
            "docker login",
        ),
        ("ERROR: denied: permission_denied: write_package", "docker login"),
        (
            "ERROR: server message: insufficient_scope: authorization failed",
            "docker login",
        ),
        (
            "#9 0.1 mkdir: cannot create directory '/x': Permission denied\n#9 ERROR: process did not complete",
            VERBOSE,
        ),
        (
            "#9 0.1 HTTP status client error (403 Forbidden) for url (https://x)\n#9 ERROR: process did not complete",
            VERBOSE,
        ),
        (
            "ERROR: permission denied while trying to connect to the Docker daemon socket",
            VERBOSE,
        ),
        ('ERROR: no builder "other" found', "docker buildx use"),
        ("ERROR: failed to solve: out of space", VERBOSE),
    ],
)
def test_a_builder_that_cannot(
    build: Any, client: Client, error: str, hint: str
) -> None:
    """The error has the command that helps."""
    client.set(DIGEST, error)
    message = error_of(build("--push", "--platform", PLATFORMS, "--base", BASE))
    suggestion = message.partition("Suggestion: ")[2]
    assert hint in suggestion
    assert suggestion.startswith(VERBOSE) == (hint == VERBOSE)


def test_the_image_in_values(
    build: Any, client: Client, tmp_path: Path
) -> None:
    """The pushed image becomes that of its component, whose folder is then in the image; the rest stays."""
    component = {
        "image": {"repository": "old", "tag": "0", "pullPolicy": "Always"},
        "blueprint": {"inline": {"name": "calculator"}},
        "files": {"tools.py": ""},
        "replicas": 2,
    }
    values = {
        "defaults": {"model": "offline/echo"},
        "components": {"calculator": component, "other": {}},
    }
    file = tmp_path / "values.yaml"
    file.write_text(f"# mine\n{yaml.safe_dump(values)}")
    done = build("--push", "--onto", "values.yaml")
    assert done.returncode == 0, done.stderr
    assert "comments" in done.stderr
    written = yaml.safe_load(file.read_text())
    image = {
        "repository": "registry.example:5000/team/calculator",
        "tag": "1.0",
        "digest": DIGEST,
        "pullPolicy": "Always",
    }
    changed = {"calculator": {"image": image, "replicas": 2}, "other": {}}
    assert written == {**values, "components": changed}


@pytest.mark.parametrize(
    ("base", "servers", "dependencies"),
    [
        ("podwright:slim", [], "without"),
        ("podwright:slim", ["tools"], "with"),
        ("podwright:full", ["tools"], "without"),
    ],
)
def test_the_package_for_mcp(
    build: Any,
    client: Client,
    tmp_path: Path,
    base: str,
    servers: list[str],
    dependencies: str,
) -> None:
    """It is added to an image whose blueprint names MCP tools, but not on the flavour that has it."""
    file = tmp_path / "calculator" / "blueprint.json"
    blueprint = json.loads(file.read_text())
    blueprint["mcp"] = [
        {"server": server, "tools": ["search"]} for server in servers
    ]
    file.write_text(json.dumps(blueprint))
    done = build("--base", base)
    assert done.returncode == 0, done.stderr
    for arguments in client.builds:
        assert f"--build-arg=DEPENDENCIES={dependencies}" in arguments


@contextlib.contextmanager
def removed_images(docker: Docker, *names: str) -> Iterator[None]:
    """Removes images of the engine in the end."""
    try:
        yield
    finally:
        docker.run("image", "rm", "--force", *names)


@pytest.fixture
def registry() -> Iterator[str]:
    with running_registry() as address:
        yield address


def test_a_registry_has_the_image(
    shell: Shell, docker: Docker, slim: str, registry: str, tmp_path: Path
) -> None:
    """What is printed and written is what the registry has, and the values need nothing else."""
    folder = agent(tmp_path / "calculator")
    repository = f"{registry}/team/calculator"
    image = f"{repository}:1.0"
    rendered = shell(
        "deploy", "render", "calculator", f"--image=calculator={image}",
        "--output=values.yaml",
    )  # fmt: skip
    assert rendered.returncode == 0, rendered.stderr
    options = ("--base", slim, "--push", "--docker", docker.client)
    with removed_images(docker, image, UNREACHABLE):
        done = shell(
            "build", str(folder), "--tag", image, *options, "--onto=values.yaml"
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        refused = shell("build", str(folder), "--tag", UNREACHABLE, *options)
        assert "refused" in error_of(refused)
    values = chart_values.read_values((tmp_path / "values.yaml").read_text())
    written = values["components"]["calculator"]["image"]
    manifest = plain_http.head(
        f"http://{registry}/v2/team/calculator/manifests/1.0"
    )
    digest = manifest.headers["docker-content-digest"]
    assert written == {
        "repository": repository,
        "tag": "1.0",
        "digest": digest,
    }
    assert f"{image}@{digest}" in done.stdout
    pulled = f"{repository}@{digest}"
    with removed_images(docker, pulled):
        docker("pull", pulled)
