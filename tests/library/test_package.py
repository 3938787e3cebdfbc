"""The package as a whole: what importing it costs, and what it offers."""

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import podwright

HEAVY = ["litellm", "fastapi", "aiohttp", "httptools", "opentelemetry", "starlette", "prometheus_client", "pydantic"]
LAZY = [*HEAVY, "rich", "yaml", "docstring_parser", "asyncio"]


def imported(statement: str, names: list[str]) -> list[str]:
    """Which of these packages a fresh process has after a statement."""
    code = f"import sys, json\n{statement}\nprint(json.dumps([name for name in {names!r} if name in sys.modules]))"
    process = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    return json.loads(process.stdout)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("import podwright", []),
        ("from podwright import Agent, Workflow", ["pydantic"]),
        ("from podwright import *", ["aiohttp", "pydantic"]),
        ("from podwright import load; load", ["pydantic"]),
        ("from podwright import PodwrightError", []),
    ],
)
def test_importing_is_cheap(statement: str, expected: list[str]) -> None:
    """The package imports nothing heavy, and what needs pydantic only that."""
    assert imported(statement, HEAVY) == expected


def test_what_few_need_is_imported_late() -> None:
    """Printing, YAML and docstrings are imported by what needs them, not by importing the package."""
    assert imported("import podwright", LAZY) == []
    assert imported("from podwright import Agent, Workflow", ["rich", "yaml", "docstring_parser"]) == []


def test_every_name_resolves() -> None:
    """Each name of `__all__` can be imported, is listed by `dir`, and is the object of its home."""
    assert dir(podwright) == sorted(podwright.__all__)
    assert len(set(podwright.__all__)) == len(podwright.__all__)
    for name in podwright.__all__:
        assert getattr(podwright, name) is not None
    for module in ("blueprints", "conditions", "errors", "events", "models", "testing"):
        assert getattr(podwright, module) is sys.modules[f"podwright.{module}"]
    for name, home in podwright._HOME.items():
        assert getattr(podwright, name) is getattr(sys.modules[home], name)


def test_the_names_of_the_specification_are_there() -> None:
    """What a user needs for all of spec §4.4 is a name of the package."""
    needed = (
        "Agent Workflow Conductor Pipeline AgentStep ConditionStep ParallelStep LoopStep MapStep WorkflowStep "
        "ApprovalStep EventManager ExecutionResult Usage RunLimits BlueprintValidationError PodwrightError load "
        "ReplayModel ScriptedModel FunctionModel testing blueprints"
    )
    assert set(needed.split()) <= set(podwright.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A name that the package does not have fails as any module's does."""
    with pytest.raises(AttributeError, match="module 'podwright' has no attribute 'Agnet'"):
        podwright.Agnet  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
    assert not hasattr(podwright, "tools_by_name")


@pytest.mark.parametrize("module", ["blueprints", "models", "testing", "components"])
def test_modules_offer_what_they_list(module: str) -> None:
    """Every name in the `__all__` of a public module is there."""
    public = importlib.import_module(f"podwright.{module}")
    assert public.__all__
    assert [name for name in public.__all__ if not hasattr(public, name)] == []


def test_the_package_is_typed() -> None:
    """Type checkers find the marker of a typed package."""
    assert (Path(podwright.__file__).parent / "py.typed").is_file()


def test_the_version_is_written_once() -> None:
    """The package's version is that of its distribution."""
    assert podwright.__version__ == importlib.metadata.version("podwright")
