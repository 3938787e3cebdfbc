"""The programs of docs/embedding.md do what the page says, each as a program of its own."""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import re
import signal
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.docs.test_docs import address_in, blocks
from tests.helpers import COMMAND, NO_PLUGINS, ROOT, environment, plain_http

from podwright import Remote
from podwright.client import Client
from podwright_service.testing import (
    ComponentProcess,
    SpanCollector,
)

PAGE = ROOT / "docs" / "embedding.md"
PROGRAMS: Mapping[str, str] = dict(
    re.findall(
        r"`([\w.]+)`(?:[^`\n]|\n(?!\n))*:\n\n```\w+\n(.*?)^```",
        PAGE.read_text(),
        re.MULTILINE | re.DOTALL,
    )
)
"""The files that the page shows, by name."""
OWN_CODE = ("providers.py", "agents.py", "prices.yaml", "blueprint.json")
"""Those of the folder with a component and a model of its own."""


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text(PROGRAMS[name])


@contextlib.contextmanager
def served(folder: Path, application: str, **variables: str) -> Iterator[str]:
    """The address of an application of the page, under uvicorn; it exits in good order."""
    file = f"{application.partition(':')[0]}.py"
    write(folder, file)
    with subprocess.Popen(
        [sys.executable, "-m", "uvicorn", application, "--port", "0"],
        cwd=folder,
        env=environment(**variables),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stderr is not None
        try:
            address = address_in(server.stderr)
            assert address
            yield address
        finally:
            server.send_signal(signal.SIGTERM)
            rest = server.stderr.read()
    assert "Application shutdown complete" in rest
    assert "Traceback" not in rest


def test_routes_of_your_own(tmp_path: Path) -> None:
    """An added route runs the component as `/run` does, and the service's own routes are there."""
    with served(tmp_path, "desk:app") as address:
        answer = plain_http.post(
            f"{address}/tickets/7/reply", params={"text": "Where is it"}
        )
        assert answer.text == '{"reply":"Echo: Ticket 7: Where is it"}'
        assert answer.text in PAGE.read_text()
        metrics = plain_http.get(f"{address}/metrics").text
        assert plain_http.get(f"{address}/ready").status_code == 200
    assert re.search(r'podwright_runs_total{.*status="ok"} 1.0', metrics)


def test_mounted_components(tmp_path: Path) -> None:
    """Two components of one process have begun, and run."""
    with served(tmp_path, "shop:shop") as address:
        for name in ("writer", "editor"):
            url = f"{address}/{name}"
            assert plain_http.get(f"{url}/ready").json() == {"status": "ready"}
            answer = plain_http.post(f"{url}/run", json={"input": "the moon"})
            assert answer.text == '{"output":"Echo: the moon"}'
            assert Client(url).run("the moon").value == "Echo: the moon"
            assert Remote(name, url).run("the moon") == "Echo: the moon"


def test_the_library_alone(tmp_path: Path) -> None:
    """A run in a handler has its spans, inside of the request's, in the provider of the program."""
    with SpanCollector() as collector:
        variables = collector.variables(collector.url)
        with served(tmp_path, "app:api", **variables) as address:
            answer = plain_http.get(
                f"{address}/ask", params={"question": "Why?", "user": "ann"}
            )
            assert answer.json() == {"answer": "Echo: Why?"}
        spans = collector.wait(
            lambda spans: (
                {"GET /ask", "chat echo"} <= {span.name for span in spans}
            )
        )
    (run,) = [span for span in spans if span.name == "invoke_agent guide"]
    (request,) = [span for span in spans if span.name == "GET /ask"]
    assert run.trace == request.trace
    assert run.attributes["user.id"] == "ann"


async def test_a_notebook() -> None:
    """The cells of the page run as IPython runs them: with `await`, on a loop that runs already."""
    cells = blocks(PAGE, "py")
    names: dict[str, Any] = {}
    for cell in cells:
        code = compile(cell, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = types.FunctionType(code, names)()
        if inspect.iscoroutine(value):
            await value
    assert len(cells) == 3
    assert names["answer"] == "Echo: Is the sea salty?"
    assert names["result"].value == "Echo: And lakes?"
    assert "".join(names["words"]) == "Echo: Why?"


def test_asynchronous_tests(tmp_path: Path) -> None:
    """The tests of the page pass, in a project that has no settings for pytest."""
    write(tmp_path, "test_guide.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *NO_PLUGINS.split()],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert "2 passed" in done.stdout, done.stdout


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """The folder of the page with a component and a model of its own."""
    folder = tmp_path / "desk"
    folder.mkdir()
    write(folder, *OWN_CODE)
    return folder


def podwright(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [COMMAND, *arguments],
        cwd=folder.parent,
        env=environment(PODWRIGHT_PRICES=f"{folder}/prices.yaml"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_component_and_a_model_of_your_own(desk: Path) -> None:
    """The commands import the folder's code; calls of its models cost what the price file says."""
    assert "unknown" not in podwright(desk, "validate", "desk")
    question = "Where is order number 7?"
    podwright(desk, "run", "desk", question, "--trace", "trace.json")
    trace = json.loads((desk.parent / "trace.json").read_text())
    usage = trace["usage"]
    assert trace["value"]["helper_output"] == question.upper()
    assert usage["cost_source"] == "override"
    assert usage["cost"] == pytest.approx(
        (24 * 1 + 1 * 2 + 24 * 10 + 24 * 20) / 1e6
    )


def test_a_service_of_your_own_model(desk: Path) -> None:
    """The service of such a folder counts the models of the component's parts, and their cost."""
    prices = {"PODWRIGHT_PRICES": str(desk / "prices.yaml")}
    with ComponentProcess(desk, env=prices) as service:
        assert service.run("Who?", trace=True).usage.cost is not None
        assert service.info().models["named"] == ["acme/small", "acme/large"]
        metrics = service.metrics()
    assert metrics.get("podwright_cost_usd_total", model="acme/small") > 0


def test_the_build_of_your_own_model(desk: Path) -> None:
    """What a build executes in the image finds a client for each model."""
    facts = desk.parent / "facts.json"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "podwright_service.images.describe",
            desk,
            facts,
        ],
        env=environment(),
        check=True,
    )
    described = json.loads(facts.read_text())
    assert described["models"] == ["acme/small", "acme/large"]
    assert described["unserved"] == []
