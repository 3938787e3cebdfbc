"""The package: what importing it costs, and the names it offers."""

import ast
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

import podwright

HEAVY = [
    "litellm",
    "fastapi",
    "aiohttp",
    "genai_prices",
    "opentelemetry",
    "prometheus_client",
    "pydantic",
]
LAZY = ["rich", "yaml", "docstring_parser"]


def imported(statement: str, packages: list[str]) -> list[str]:
    """Which of these packages a new process has imported after a statement."""
    code = f"import sys, json\n{statement}\nprint(json.dumps([name for name in {packages!r} if name in sys.modules]))"
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(process.stdout)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("import podwright", []),
        ("from podwright import Agent, Workflow, load", ["pydantic"]),
        ("from podwright import PodwrightError", []),
    ],
)
def test_importing_is_cheap(statement: str, expected: list[str]) -> None:
    """Importing the package imports nothing heavy, and using it only pydantic; the rest is imported when needed."""
    assert imported(statement, [*HEAVY, *LAZY]) == expected


def stub_names() -> dict[str, str]:
    """The names that the stub imports, each with the module it comes from."""
    names: dict[str, str] = {}
    for node in ast.parse(
        (Path(podwright.__file__).parent / "__init__.pyi").read_text()
    ).body:
        if isinstance(node, ast.ImportFrom):
            names |= {
                alias.asname or alias.name: node.module or ""
                for alias in node.names
            }
    return names


def test_the_names_of_the_package_are_those_of_the_stub() -> None:
    """Each name of the stub can be imported and is the object of its module; there are no others."""
    names = stub_names()
    assert sorted(podwright.__all__) == sorted(names) == dir(podwright)
    for name, module in names.items():
        value = getattr(podwright, name)
        if module:
            assert value is getattr(
                importlib.import_module(f"podwright.{module}"), name
            )
        else:
            assert value is importlib.import_module(f"podwright.{name}")


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A name that the package does not have fails as that of any module."""
    with pytest.raises(AttributeError, match="Agnet"):
        podwright.Agnet  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
    assert not hasattr(podwright, "tools_by_name")


def test_the_package_has_types_and_a_version() -> None:
    """The package is marked as typed, and its version is that of its distribution."""
    assert (Path(podwright.__file__).parent / "py.typed").is_file()
    assert podwright.__version__ == importlib.metadata.version("podwright")
