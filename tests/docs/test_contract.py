"""The contract: what its page says about blueprints, signatures, routes, events and errors is what the code does."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.docs.test_docs import blocks
from tests.helpers import ROOT

import podwright
import podwright_service
from podwright import Agent, AgentStep, Component, Usage, Workflow, blueprints
from podwright_service import create_app
from podwright_service.settings import Settings

PAGE = ROOT / "docs" / "contract.md"
SCANNED = ("library", "service", "tests", "docs")
REFERENCE = re.compile(
    r"spec §+\s*(\d+(?:\.\d+)*(?:(?:,| to| and)\s+§*\d+(?:\.\d+)*)*)"
)
Row = dict[str, str]

ECHO: dict[str, Any] = {
    "name": "echo",
    "instructions": "Repeat.",
    "config": {"model": "offline/echo"},
}
MEMBER = {"type": "Agent", **ECHO}
MINIMAL: dict[str, dict[str, Any]] = {
    "2.1": ECHO,
    "2.2": {
        "name": "flow",
        "steps": [
            {"type": "approval_step", "name": "ask", "message": "Go on?"}
        ],
    },
    "2.3": {**ECHO, "type": "Conductor", "skills": [MEMBER]},
    "2.4": {"type": "Pipeline", "name": "line", "steps": [MEMBER]},
}
"""Only what is required; a step of the contract would need an agent."""
KINDS = {
    "2.1": "agent",
    "2.2": "workflow",
    "2.3": "conductor",
    "2.4": "pipeline",
}
SENT: dict[str, Any] = {
    "type": "agent",
    "blueprint": ECHO,
    "input": "the moon",
    "inputs": {"query": "the moon", "language": "Latin"},
}
"""A value for each field of a request."""


@cache
def parts() -> Mapping[str, str]:
    """The text of each section and of each numbered item, by number."""
    sections = re.split(
        r"^#{2,3} (\d(?:\.\d)?)\.? .*\n", PAGE.read_text(), flags=re.MULTILINE
    )
    found = dict(zip(sections[1::2], sections[2::2], strict=True))
    for number, text in list(found.items()):
        items = re.split(r"^(\d+)\. ", text, flags=re.MULTILINE)
        found |= {
            f"{number}.{item}": content
            for item, content in zip(items[1::2], items[2::2], strict=True)
        }
    return found


def tables(text: str) -> Iterator[tuple[str, list[Row]]]:
    """Each table of a text, as rows without code marks, with the last paragraph before it."""
    paragraphs = ["", *text.strip().split("\n\n")]
    for before, table in itertools.pairwise(paragraphs):
        if not table.startswith("|"):
            continue
        head, _, *rows = (
            [
                cell.strip().replace("`", "")
                for cell in line.strip("|").split("|")
            ]
            for line in table.splitlines()
        )
        yield before, [dict(zip(head, row, strict=True)) for row in rows]


def rows(section: str, column: str) -> list[Row]:
    """The rows of a section's tables that have a column."""
    return [
        row
        for _, table in tables(parts()[section])
        for row in table
        if column in row
    ]


@cache
def signatures() -> Mapping[str, ast.arguments]:
    """The signatures in the Python of the page, by qualified name."""
    return {
        f"{cls.name}.{function.name}": function.args
        for cls in ast.parse("\n".join(blocks(PAGE, "python"))).body
        if isinstance(cls, ast.ClassDef)
        for function in cls.body
        if isinstance(function, ast.FunctionDef)
    }


def implementation(name: str) -> Any:
    """The function with a qualified name, of the library or the service."""
    cls, _, function = name.partition(".")
    package = podwright if hasattr(podwright, cls) else podwright_service
    return getattr(getattr(package, cls), function)


def parameters(name: str) -> dict[str, inspect.Parameter]:
    """The parameters of a function of the code, without the class or the instance."""
    found = dict(inspect.signature(implementation(name)).parameters)
    found.pop("self", None)
    return found


def subschema(schema: dict[str, Any], key: str) -> tuple[dict[str, Any], bool]:
    """The JSON Schema of a key such as `steps[].name`, and whether the key is required."""
    at, required = schema, True
    for part in key.split("."):
        at = followed(schema, at)
        required = part.removesuffix("[]") in at.get("required", ())
        at = followed(schema, at["properties"][part.removesuffix("[]")])
        if part.endswith("[]"):
            at = followed(schema, at["items"])
    return at, required


def followed(schema: dict[str, Any], at: dict[str, Any]) -> dict[str, Any]:
    """What a JSON Schema refers to; of the types of steps, the one of the contract."""
    if "discriminator" in at:
        at = {"$ref": at["discriminator"]["mapping"]["agent_step"]}
    if "$ref" not in at:
        return at
    return followed(schema, schema["$defs"][at["$ref"].rpartition("/")[2]])


def client(component: Component) -> TestClient:
    return TestClient(create_app(Settings(), component))


def echo() -> Agent:
    return Agent.from_blueprint(ECHO)


def test_every_reference_leads_to_a_section() -> None:
    """Each `spec §…` of the code, the tests and the pages names a section or a numbered item of the page."""
    files = [
        path
        for folder in SCANNED
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".pyi", ".md", ".html"}
    ]
    found = [
        (str(path.relative_to(ROOT)), number)
        for path in [*files, ROOT / "CONTRIBUTING.md"]
        for numbers in REFERENCE.findall(path.read_text())
        for number in re.findall(r"\d+(?:\.\d+)*", numbers)
    ]
    assert len(found) > 40
    assert {"2.4", "4.4", "7.2"} <= {number for _, number in found}
    assert [
        (file, number) for file, number in found if number not in parts()
    ] == []


def test_every_numbered_item_has_an_anchor() -> None:
    """The anchor of a numbered item has its number, so that links to it last."""
    items = {
        number: text
        for number, text in parts().items()
        if number.startswith(("1.", "7."))
    }
    assert len(items) == 11
    for number, text in items.items():
        assert text.startswith(f'<a id="item-{number.replace(".", "-")}"></a>')


@pytest.mark.parametrize("name", signatures())
def test_signatures_are_those_of_the_page(name: str) -> None:
    """Parameters have the names, the order and the defaults of the page; others come last, and have defaults."""
    stated = signatures()[name]
    names = [argument.arg for argument in stated.args][1:]
    first = len(names) - len(stated.defaults)
    found = parameters(name)
    own = list(found.values())[: len(names)]
    assert [parameter.name for parameter in own] == names
    assert all(
        parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in own
    )
    assert [parameter.default for parameter in own] == [
        inspect.Parameter.empty
    ] * (first) + [ast.literal_eval(default) for default in stated.defaults]
    keywords = [
        each.name for each in found.values() if each.kind is each.VAR_KEYWORD
    ]
    assert keywords == ([stated.kwarg.arg] if stated.kwarg else [])
    for further in list(found.values())[len(names) :]:
        assert further.kind is further.VAR_KEYWORD or further.default is not (
            further.empty
        )


def test_the_tables_describe_the_parameters_of_the_signatures() -> None:
    """Each method of section 4.4 with parameters has a table with these, in their order."""
    described = {
        before.split("`")[1]: [row["parameter"] for row in table]
        for before, table in tables(parts()["4.4"])
    }
    assert len(described) == 4
    assert described == {
        name: [argument.arg for argument in stated.args][1:]
        + ([f"**{stated.kwarg.arg}"] if stated.kwarg else [])
        for name, stated in signatures().items()
        if name.startswith(("Agent.", "Workflow.")) and len(stated.args) > 1
    }


def test_constants_are_the_defaults_of_parameters() -> None:
    """Each constant of the page is the default of that parameter in the methods that the page names."""
    constants = rows("8", "default")
    assert len(constants) == 5
    for row in constants:
        for name in row["of"].split(", "):
            default = parameters(name)[row["parameter"]].default
            assert repr(default) == row["default"].replace('"', "'")


@pytest.mark.parametrize("section", KINDS)
def test_blueprint_keys_are_those_of_the_page(section: str) -> None:
    """The keys of a blueprint have the types of the page, and exactly those that it calls required are required."""
    schema = blueprints.json_schema()[KINDS[section]]  # pyright: ignore[reportArgumentType] - a name of a kind
    keys = {row["key"]: row for row in rows(section, "key")}
    assert {"name", *MINIMAL[section]} <= set(keys)
    for key, row in keys.items():
        found, required = subschema(schema, key)
        type_, _, constant = row["type"].partition(" ")
        assert found["type"] == type_, key
        assert found.get("const") == (
            json.loads(constant) if constant else None
        ), key
        assert required == (row["if missing"] == "required"), key
    for parent in {"", *(key.rpartition(".")[0] for key in keys)}:
        at = (
            subschema(schema, parent)[0] if parent else followed(schema, schema)
        )
        prefix = f"{parent}." if parent else ""
        assert {f"{prefix}{key}" for key in at.get("required", ())} <= set(keys)


def test_a_missing_key_has_the_default_of_the_page() -> None:
    """A component whose blueprint lacks a key behaves as if the key had the default of the page."""
    found = 0
    for section, blueprint in MINIMAL.items():
        component = podwright.load(blueprint)
        for row in rows(section, "key"):
            if (default := row["if missing"]) not in {"required", "optional"}:
                value = getattr(component, row["key"].rpartition(".")[2])
                value = list(value) if isinstance(value, Mapping) else value
                assert value == json.loads(default), row["key"]
                found += 1
    assert found == 3


def test_a_result_has_the_attributes_of_the_page() -> None:
    """The result of a traced run has the attributes of the page; both components keep their last usage."""
    agent = echo()
    flow = Workflow("flow", [AgentStep(agent)])
    for component in (agent, flow):
        result = component.run("the moon", trace=True)
        assert result.value == component.run("the moon")
        names = [row["attribute"] for row in rows("2.5", "attribute")]
        assert names == ["value", "events", "duration_ms", "usage"]
        assert [field.name for field in fields(result)][: len(names)] == names
        last, cost = (row["attribute"] for row in rows("2.6", "attribute"))
        assert isinstance(usage := getattr(component, last), Usage)
        assert isinstance(getattr(usage, cost), float)
        assert json.loads(json.dumps(result.to_dict())).keys() >= set(names)


def test_routes_are_those_of_the_page() -> None:
    """Each route of the page is in the OpenAPI document with its method, or is a page for people or programs."""
    routes = [row["route"].split() for row in rows("4.1", "route")]
    assert len(routes) == 6
    documented: dict[str, Any] = create_app(Settings(), echo()).openapi()[
        "paths"
    ]
    with client(echo()) as service:
        for method, path in routes:
            if path in ("/docs", "/openapi.json"):
                response = service.request(method, path)
                expected = (
                    "text/html" if path == "/docs" else "application/json"
                )
                assert response.headers["content-type"].startswith(expected)
            else:
                assert method.lower() in documented[path]
        assert service.get("/info").json()["blueprint"] == ECHO


@pytest.mark.parametrize(
    ("route", "table"),
    [
        pytest.param(before.split("`")[1], table, id=before.strip())
        for before, table in tables(parts()["4.2"])
    ],
)
def test_request_bodies_are_those_of_the_page(
    route: str, table: list[Row]
) -> None:
    """A body with the fields of the page is taken; without one of them, or with another type, it is refused."""
    method, path = route.split()
    body = {row["field"]: SENT[row["field"]] for row in table}
    assert {row["required"] for row in table} == {"yes"}
    types = {"string": str, "object": dict}
    assert all(
        isinstance(body[row["field"]], types[row["type"]]) for row in table
    )
    with client(echo()) as service:
        assert service.request(method, path, json=body).status_code == 200
        for field in body:
            others = {key: value for key, value in body.items() if key != field}
            for wrong in (others, {**others, field: 5}):
                response = service.request(method, path, json=wrong)
                assert response.status_code == 422
                assert response.json()["code"] == "request_invalid"


@pytest.mark.parametrize("kind", ["agent", "workflow"])
def test_response_bodies_are_those_of_the_page(kind: str) -> None:
    """The response to a run has the fields of the page, all of them texts."""
    stated = [row for row in rows("4.3", "field") if row["component"] == kind]
    names = {row["field"].replace("<agent_name>", "echo") for row in stated}
    assert {row["type"] for row in stated} == {"string"}
    component = (
        echo() if kind == "agent" else Workflow("flow", [AgentStep(echo())])
    )
    with client(component) as service:
        body = service.post("/run", json={"input": "the moon"}).json()
    assert body.keys() == names
    assert all(isinstance(value, str) for value in body.values())


def test_events_and_lines_are_those_of_the_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A verbose run has the events of the page in their order, and prints the line of each."""
    agent = Agent.from_blueprint(ECHO, verbose=True)
    events = [event.type for event in agent.run("the moon", trace=True).events]
    lines = capsys.readouterr().out.splitlines()
    stated = rows("6", "event")
    assert [row["event"] for row in stated] == [
        event for event in events if event != "model_call_finished"
    ]
    assert len(lines) == len(stated)
    for line, row in zip(lines, stated, strict=True):
        assert line.startswith(f"[echo] {row['printed line']}")


def test_errors_are_those_of_the_page() -> None:
    """The errors of the page derive from the first, have its codes, and are answered with its statuses."""
    stated = rows("7", "error")
    assert [row["error"] for row in stated] == [
        "PlatformError",
        "BlueprintValidationError",
    ]
    classes = [getattr(podwright, row["class"]) for row in stated]
    app = create_app(Settings(), echo())

    @app.get("/fail/{name}")
    async def fail(name: str) -> None:  # pyright: ignore[reportUnusedFunction] - by its route
        raise getattr(podwright, name)("It failed.", suggestion="Do this.")

    with TestClient(app) as service:
        for cls, row in zip(classes, stated, strict=True):
            assert issubclass(cls, classes[0])
            text = str(cls("It failed.", suggestion="Do this."))
            assert re.search(
                rf"It failed\.\n.*Do this\.\n.*#{row['code']}$", text
            )
            response = service.get(f"/fail/{row['class']}")
            assert str(response.status_code) == row["status"]
            assert response.json()["code"] == row["code"]
        body = {
            "type": "agent",
            "blueprint": {**ECHO, "name": 5},
            "input": "the moon",
        }
        assert (
            service.post("/run-blueprint", json=body).json()["code"]
            == row["code"]
        )
