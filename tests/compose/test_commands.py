"""The page on the composed fleet: its commands work, one after the other, and it names each variable and service."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.compose.composed import NEEDED, PUBLISHED, ROOT, Engine

PAGE = (ROOT / "docs" / "fleet.md").read_text()
COMPOSE = (ROOT / "compose.yaml").read_text()


def test_the_commands_work(engine: Engine, image: str, observers: dict[str, str], tmp_path: Path) -> None:
    """Each command of the page succeeds, from the first `up` to that with the profile, and `down` leaves nothing."""
    images = tmp_path / "images.yaml"
    stand_ins = {**observers, "grafana": observers["jaeger"]}
    images.write_text(json.dumps({"services": {name: {"image": one} for name, one in stand_ins.items()}}))
    (tmp_path / "docker").symlink_to(engine.client)
    project = f"podwright-test-{tmp_path.name.replace('_', '-')}-{os.getpid()}"
    kept = {name: os.environ[name] for name in NEEDED if name in os.environ}
    variables = {
        **kept, **PUBLISHED, "PATH": f"{tmp_path}:{kept['PATH']}", "IMAGE": image, "COMPOSE_PROJECT_NAME": project,
        "COMPOSE_FILE": f"{ROOT / 'compose.yaml'}:{images}",
    }  # fmt: skip
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    # requests are sent by the tests of all pages, and a fleet with a vendor's models is up for the dashboard's
    elsewhere = ("curl", "OPENAI_API_KEY=")
    commands = [line for block in blocks for line in block.splitlines() if not line.startswith(elsewhere)]
    assert len(commands) >= 7
    last = ["docker compose ps --format '{{.Service}}'", "docker compose down --volumes"]
    script = "\n".join(["set -ex", *commands, *last])
    try:
        done = subprocess.run(
            ["bash", "-c", script], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert set(done.stdout.split()) >= {"newsroom", "desk", "collector", "grafana", "jaeger", "prometheus"}
        label = f"label=com.docker.compose.project={project}"
        assert engine("ps", "--all", "--quiet", "--filter", label) == ""
    finally:
        engine("compose", "--project-name", project, "down", "--volumes", "--timeout", "5", check=False)


def rows(heading: str) -> set[str]:
    """What stands in code in the first cells of a table under a heading."""
    part = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return {name for cell in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE) for name in re.findall("`([^`]+)`", cell)}


def test_every_variable_is_told() -> None:
    """The variables of the page are those that the file reads."""
    assert rows("Variables") == set(re.findall(r"\$\{([A-Z_]+)", COMPOSE))


def test_every_service_is_told(engine: Engine) -> None:
    """The page names each service, and the port of this machine that it has, if it has one."""
    told = engine("compose", "--file", str(ROOT / "compose.yaml"), "--profile", "*", "config", "--format", "json")
    services: dict[str, Any] = json.loads(told)["services"]
    for name, service in services.items():
        line = next(line for line in PAGE.splitlines() if line.startswith("| `") and f"`{name}`" in line)
        for port in service.get("ports", []):
            assert f"port {port['published']}" in line, name
