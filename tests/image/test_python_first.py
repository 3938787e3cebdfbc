"""From the README's Python to a container: the same blueprint, and the same answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.docs.test_docs import blocks
from tests.helpers import ROOT
from tests.image.conftest import Shell, Start
from tests.image_support import Docker

RUN = """
import json, sys
import journey
component = getattr(journey, sys.argv[1])
print(json.dumps(component.run(json.loads(sys.argv[2]))))
"""


@pytest.mark.parametrize("name", ["guide", "travel"])
def test_from_python_to_a_container(
    shell: Shell,
    docker: Docker,
    slim: str,
    *,
    tag: str,
    start: Start,
    tmp_path: Path,
    name: str,
) -> None:
    """The Python of the README, exported and built, is the same component in its container."""
    (tmp_path / "journey.py").write_text(
        blocks(ROOT / "README.md", "python")[0]
    )
    done = shell("export", f"journey:{name}")
    assert done.returncode == 0, done.stderr
    options = ("--docker", docker.client)
    done = shell("build", name, "--tag", tag, "--base", slim, *options)
    assert done.returncode == 0, done.stderr
    [report] = json.loads(shell("validate", "--json", f"journey:{name}").stdout)
    described = json.loads(shell("inspect", tag, "--json", *options).stdout)
    assert described["digest"] == report["digest"]
    inputs = {"input": "Two days in Rome", "language": "Italian"}
    program = (sys.executable, "-c", RUN, name, json.dumps(inputs))
    here = shell(program=program)
    assert here.returncode == 0, here.stderr
    container = start(tag, "--network=none", "--read-only").healthy()
    response = container.post_run({"inputs": inputs})
    # the context of a workflow is the answer itself
    answer = response.get("output", response)
    assert answer == json.loads(here.stdout.splitlines()[-1])
    assert container.stop() == 0
