"""From nothing to a tested image, outside this repository, with the commands of the documentation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

from tests.image_support import docker

from podwright_service.testing import ComponentContainer, ModelStub, ToolCall

TOOLS = '''
"""The agent's tools."""

from sortedcontainers import SortedList


def rank(names: list[str]) -> list[str]:
    """Put names in order.

    Args:
        names: The names, in any order.
    """
    return list(SortedList(names))
'''

TEST = """
from pathlib import Path

from podwright_service.testing import ToolCall, assert_counted


def test_it_ranks(serve_component, model_stub):
    model_stub.respond_with(ToolCall.of("rank", names=["b", "a"]), "a, b")
    service = serve_component(Path(__file__).parent, model=model_stub)
    result = service.run("Rank b and a.", trace=True)
    assert result.value == "a, b"
    assert model_stub.requests[1].messages[-1].content == '["a", "b"]'
    assert_counted(result, service.metrics())
"""

PRINT_TOOLS = """
import json, podwright, tools
print(json.dumps(podwright.Agent('x', 'x', 'm/m', tools=[tools.rank]).to_blueprint()['tools']))
"""


def test_the_journey_of_a_newcomer(tmp_path: Path, image: str) -> None:
    """A component with a tool and a dependency of its own is created, built, inspected, and tested in its image."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PODWRIGHT_", "PYTEST_"))}
    environment = {**inherited, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    tag = f"podwright-test-ranker:{uuid.uuid4().hex[:12]}"
    folder = tmp_path / "ranker"

    def shell(*command: str, cwd: Path = tmp_path) -> str:
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    shell("podwright", "new", "ranker")
    (folder / "tools.py").write_text(TOOLS)
    (folder / "requirements.txt").write_text("sortedcontainers>=2.4\n")
    (folder / "test_ranker.py").write_text(TEST)
    blueprint = json.loads((folder / "blueprint.json").read_text())
    blueprint["tools"] = json.loads(shell(sys.executable, "-c", PRINT_TOOLS, cwd=folder))
    (folder / "blueprint.json").write_text(json.dumps(blueprint))

    shell("podwright", "validate", "ranker")
    shell("podwright", "build", "ranker", "-t", tag, "--base", image)
    try:
        assert "rank" in shell("podwright", "inspect", tag)
        assert "2 passed" in shell(
            "pytest", "-p", "no:cacheprovider", "-o", f"podwright_image={image}",
            "-o", "asyncio_default_fixture_loop_scope=function", "ranker",
        )  # fmt: skip
        responses = [ToolCall.of("rank", names=["b", "a"]), "a, b"]
        with ModelStub(*responses, name="openai/gpt-4o-mini") as model, ComponentContainer(tag, model=model) as ranker:
            assert ranker.run("Rank b and a.") == "a, b"
            assert ranker.info()["tools"] == ["rank"]
        with ComponentContainer(folder, image=image, model="offline/echo") as ranker:
            built = ranker.image
            assert built.startswith("podwright-test-")
        assert docker().run("image", "inspect", built).returncode, "the image of a container is removed with it"
    finally:
        docker().run("image", "rm", "--force", tag)
