"""Definitions of MCP tools: limits, cleaning, differences, and what is imported when."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from podwright.errors import ToolDefinitionError
from podwright.mcp.definitions import ToolDefinition

SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


def _read(**data: Any) -> ToolDefinition:
    return ToolDefinition.read({"name": "a", "inputSchema": SCHEMA, **data})


def _nested(depth: int) -> Any:
    schema: Any = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "a": schema}
    return schema


@pytest.mark.parametrize(
    "data",
    [
        {"name": ""},
        {"name": None},
        {"name": 5},
        {"name": "a" * 129},
        {"name": "a\u202eb"},
        {"name": "a\nb"},
        {"name": "a\U000e0041"},
        {"description": ["a"]},
        {"title": 1},
        {"inputSchema": None},
        {"inputSchema": []},
        {"inputSchema": True},
        {"inputSchema": {}},
        {"inputSchema": {"type": "string"}},
        {"inputSchema": {"type": ["object", "null"]}},
        {"inputSchema": {**SCHEMA, "title": "x" * 70_000}},
        {"inputSchema": _nested(40)},
        {"inputSchema": {**SCHEMA, "$ref": "https://a.example/b"}},
        {"inputSchema": {**SCHEMA, "items": [{"$ref": "file:///etc/passwd"}]}},
        {"inputSchema": {**SCHEMA, "$dynamicRef": "other.json#a"}},
        {"outputSchema": "a"},
        {"outputSchema": {"$ref": "//a.example"}},
        {"outputSchema": {"title": "x" * 70_000}},
        {"annotations": []},
        {"annotations": {"title": "x" * 70_000}},
    ],
    ids=str,
)
def test_an_invalid_definition(data: Any) -> None:
    """What is missing, of a wrong type, too large, or refers to another document is refused."""
    with pytest.raises(ToolDefinitionError):
        _read(**data)


def test_characters_that_nobody_sees() -> None:
    """Control, bidi and tag characters are removed from all texts that a model reads."""
    hidden = "\U000e0049\u202e\u2066\x1b\ufeff\ud800"
    schema = {
        "type": "object",
        "description": f"a{hidden}",
        "properties": {
            "description": {"type": "string", "title": f"b{hidden}"},
            "plain": {"enum": [f"c{hidden}"]},
        },
    }
    definition = _read(
        title=f"t{hidden}",
        description=f"One\n\ttwo{hidden}, क\u200dष",
        inputSchema=schema,
    )
    assert definition.title == "t"
    assert definition.description == "One\n\ttwo, क\u200dष"
    assert definition.input_schema["description"] == "a"
    properties = definition.input_schema["properties"]
    assert properties["description"]["title"] == "b"


def test_long_texts_are_cut() -> None:
    """A description is cut to 4 096 characters."""
    definition = _read(description="x" * 10_000, title="y" * 1000)
    assert len(definition.description) == 4096
    assert len(definition.title or "") == 256


def test_a_definition_is_stored_and_read() -> None:
    """The JSON of a definition is the same after it is read again, and so is its digest."""
    definition = _read(
        title="A",
        description="B" * 5000,
        outputSchema={"type": "array"},
        annotations={"readOnlyHint": True},
        icons=[{"src": "https://a.example"}],
    )
    data = definition.to_data()
    assert set(data) == {
        "name",
        "title",
        "description",
        "inputSchema",
        "outputSchema",
        "annotations",
    }
    again = ToolDefinition.read(data)
    assert again == definition
    assert again.digest == definition.digest
    assert definition.digest.startswith("sha256:")
    assert set(_read().to_data()) == {"name", "inputSchema"}


def test_the_digest_is_of_the_content() -> None:
    """The order of keys does not count, and everything else does."""
    one = _read(inputSchema={"type": "object", "a": 1, "b": 2})
    same = _read(inputSchema={"b": 2, "type": "object", "a": 1})
    assert one.digest == same.digest
    assert one.differences(same) == []
    for other in (
        _read(inputSchema={"type": "object", "a": 1, "b": 3}),
        _read(inputSchema={"type": "object", "a": True, "b": 2}),
        _read(inputSchema=one.input_schema, description="x"),
        _read(inputSchema=one.input_schema, title="x"),
        _read(inputSchema=one.input_schema, annotations={"a": 1}),
        _read(inputSchema=one.input_schema, outputSchema={}),
        _read(inputSchema=one.input_schema, name="b"),
    ):
        assert other.digest != one.digest
        assert one.differences(other)


def test_differences() -> None:
    """Differences are pointers into the locked definition; of what is new, only the place is named."""
    locked = _read(
        description="a",
        inputSchema={
            "type": "object",
            "properties": {"q": {"type": "string"}, "gone/~": {}},
        },
        annotations={"readOnlyHint": True},
    )
    live = _read(
        description="b",
        inputSchema={
            "type": "object",
            "properties": {"q": {"type": "number"}, "evil words": {}},
        },
        annotations={"readOnlyHint": False},
    )
    assert locked.differences(live) == [
        "/description",
        "/inputSchema/properties/q/type",
        "/inputSchema/properties/gone~1~0",
        "/inputSchema/properties (added)",
        "/annotations/readOnlyHint",
    ]


def test_nothing_is_imported_before_the_first_call() -> None:
    """A server is made without the package `mcp`, which a call imports."""
    code = (
        "import sys, podwright\n"
        "server = podwright.MCPServer('https://files.example/mcp')\n"
        "print({'mcp', 'httpx2', 'mcp_types'} & set(sys.modules))\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert output.strip() == "set()"


def test_the_package_is_missing() -> None:
    """Without the package, a call says which extra to install."""
    code = (
        "import asyncio, sys, podwright\n"
        "sys.modules['mcp'] = None\n"
        "server = podwright.MCPServer('https://files.example/mcp')\n"
        "try:\n"
        "    asyncio.run(server.list_tools())\n"
        "except podwright.errors.ConfigurationError as error:\n"
        "    print(error)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert "podwright[mcp]" in output
