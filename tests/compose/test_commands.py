"""The commands, variables and services in docs/fleet.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.compose.composed import PUBLISHED
from tests.helpers import ROOT, until
from tests.image_support import INHERITED, Docker

PAGE = (ROOT / "docs" / "fleet.md").read_text()
COMPOSE = (ROOT / "compose.yaml").read_text()


def test_the_commands_work(
    docker: Docker, slim: str, observers: dict[str, Any], tmp_path: Path
) -> None:
    """Each command succeeds, from the first `up` to the one with the profile, and `down` removes all containers."""
    services = tmp_path / "services.yaml"
    services.write_text(
        json.dumps({"services": {**observers, "grafana": observers["jaeger"]}})
    )
    (tmp_path / "docker").symlink_to(docker.client)
    project = f"podwright-test-{tmp_path.name.replace('_', '-')}-{os.getpid()}"
    label = f"label=com.docker.compose.project={project}"
    # `up --build` makes another image than the fixture
    image = f"{project}:built"
    inherited = {
        name: os.environ[name] for name in INHERITED if name in os.environ
    }
    variables = {
        **inherited, **PUBLISHED, "PATH": f"{tmp_path}:{inherited['PATH']}", "IMAGE": image,
        "COMPOSE_PROJECT_NAME": project, "COMPOSE_FILE": f"{ROOT / 'compose.yaml'}:{services}",
    }  # fmt: skip
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    # the tests of all pages send requests, those of the dashboard use models, and others the profile `background`
    elsewhere = (
        "curl",
        "OPENAI_API_KEY=",
        "docker compose --profile background",
    )
    commands = [
        line
        for block in blocks
        for line in block.splitlines()
        if not line.startswith(elsewhere)
    ]
    assert len(commands) >= 7
    last = [
        "docker compose ps --format '{{.Service}}'",
        "docker compose down --volumes",
    ]
    script = "\n".join(["set -ex", *commands, *last])
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=ROOT,
            env=variables,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert set(done.stdout.split()) >= {
            "newsroom",
            "desk",
            "collector",
            "grafana",
            "jaeger",
            "prometheus",
        }
        until(lambda: docker("ps", "--all", "--quiet", "--filter", label) == "")
    finally:
        docker.run(
            "compose",
            "--project-name",
            project,
            "down",
            "--volumes",
            "--timeout",
            "5",
        )
        docker.run("image", "rm", "--force", image)
        # one for each service, of which only the last has the tag
        docker.run("image", "prune", "--force", f"--filter={label}")


def first_cells(heading: str) -> set[str]:
    """The code in the first cells of the table under a heading."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall("`([^`]+)`", cell)}


def test_variables_and_services_are_documented(docker: Docker) -> None:
    """The page lists the variables of the compose file, and each service with its port on this machine."""
    assert first_cells("Variables") == set(
        re.findall(r"\$\{([A-Z_]+)", COMPOSE)
    )
    config = docker(
        "compose",
        "--file",
        str(ROOT / "compose.yaml"),
        "--profile",
        "*",
        "config",
        "--format",
        "json",
    )
    services: dict[str, Any] = json.loads(config)["services"]
    for name, service in services.items():
        line = next(
            line
            for line in PAGE.splitlines()
            if line.startswith("| `") and f"`{name}`" in line
        )
        for port in service.get("ports", []):
            assert f"port {port['published']}" in line, name
