"""Types instead of JSON Schemas by hand: `schemas.py` of a folder, and what functions say that they return."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field
from tests.helpers import write_files
from tests.library.shapes import Json, agent_step
from typing_extensions import TypedDict

from podwright import (
    Agent,
    AgentStep,
    ConditionStep,
    FunctionStep,
    MapStep,
    Workflow,
    WorkflowStep,
    blueprints,
    load,
)
from podwright.errors import BlueprintValidationError, ConfigurationError
from podwright.folders.folder import Folder
from podwright.folders.typed_schemas import outdated_schemas, typed_schemas

TYPES = '''
from typing import Annotated

from pydantic import BaseModel, Field

class Item(BaseModel):
    sku: str

class Ticket(BaseModel):
    """The wish of a customer."""

    category: str = Field(description="One word.")
    items: list[Item] = []

Words = Annotated[int, Field(ge=1)]
LIMIT = 3
'''
FUNCTIONS = """
from schemas import Ticket

def typed(ticket: Ticket) -> str:
    return f"{type(ticket).__name__} {ticket.category}"

def plain(ticket: dict) -> str:
    return f"{type(ticket).__name__} {ticket['category']}"

def untyped(ticket) -> str:
    return f"{type(ticket).__name__} {ticket['category']}"
"""
TICKET: Json = {
    "title": "Ticket",
    "description": "The wish of a customer.",
    "properties": {
        "category": {"description": "One word.", "type": "string"},
        "items": {
            "default": [],
            "items": {"$ref": "#/$defs/Item"},
            "type": "array",
        },
    },
    "required": ["category"],
    "type": "object",
    "$defs": {
        "Item": {
            "properties": {"sku": {"type": "string"}},
            "required": ["sku"],
            "title": "Item",
            "type": "object",
        }
    },
}


@pytest.fixture(autouse=True)
def _forget_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test import a `schemas` of its own."""
    monkeypatch.delitem(sys.modules, "schemas", raising=False)


def call(function: str) -> Json:
    return {
        "type": "function_step",
        "name": function,
        "function": function,
        "arguments": {"ticket": "{sorter_output}"},
    }


def desk(schema: Json, **more: Any) -> Json:
    sort = agent_step("sort", "sorter", response_schema=schema)
    calls = [call(name) for name in ("typed", "plain", "untyped")]
    return {"name": "desk", "steps": [sort, *calls], **more}


SORTER: Json = {
    "name": "sorter",
    "instructions": "Sort.",
    "config": {"model": "offline/echo"},
}


def desk_folder(path: Path, blueprint: Json, types: str = TYPES) -> Folder:
    files = {
        "desk/blueprint.json": blueprint,
        "desk/agents/sorter.json": SORTER,
        "desk/functions.py": FUNCTIONS,
        "desk/schemas.py": types,
    }
    write_files(path, files)
    return Folder(path / "desk")


def test_functions_are_given_data_or_an_instance(tmp_path: Path) -> None:
    """A parameter with the annotation of the type is given an instance of it, any other the data."""
    folder = desk_folder(tmp_path, desk(TICKET))
    result = load(folder.path).run("hello")
    assert result["typed_output"] == "Ticket hello"
    assert result["plain_output"] == "dict hello"
    assert result["untyped_output"] == "dict hello"


def test_the_title_of_a_schema_names_a_type(tmp_path: Path) -> None:
    """Schemas of answers, inputs and edits, in a component, its members and its steps, also nested ones."""
    words: Json = {"title": "Words", "default": 3, "description": "How many."}
    inner = {
        "name": "inner",
        "inputs": {"words": {"title": "Words"}},
        "steps": [
            {
                "type": "approval_step",
                "name": "ask",
                "message": "?",
                "edit": {"sorter_output": {"title": "Ticket"}},
            }
        ],
    }
    nest = {"type": "workflow_step", "name": "nest", "workflow": inner}
    blueprint = desk({"title": "Ticket"}, inputs={"words": words})
    blueprint["steps"].append(nest)
    typed, problems = typed_schemas(desk_folder(tmp_path, blueprint), blueprint)
    assert problems == []
    written = {schema.pointer: schema.own for schema in typed}
    number = {"title": "Words", "minimum": 1, "type": "integer"}
    assert written == {
        "/inputs/words": {**words, **number},
        "/steps/0/response_schema": TICKET,
        "/steps/4/workflow/inputs/words": number,
        "/steps/4/workflow/steps/0/edit/sorter_output": TICKET,
    }
    member = {"name": "a", "config": {"response_schema": {"title": "Ticket"}}}
    for key in ("skills", "steps"):
        typed, _ = typed_schemas(Folder(tmp_path / "desk"), {key: [member]})
        pointer = f"/{key}/0/config/response_schema"
        assert [schema.pointer for schema in typed] == [pointer]


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Tickett", "Did you mean 'Ticket'?"),
        ("Zebra", "remove the title"),
        ("LIMIT", "no JSON Schema"),
        ("The answer", "remove the title"),
    ],
)
def test_titles_without_a_type(tmp_path: Path, title: str, words: str) -> None:
    """Where a folder has types, a title that names none is a problem of `sync`; the folder runs all the same."""
    blueprint = desk({**TICKET, "title": title})
    folder = desk_folder(tmp_path, blueprint)
    typed, [problem] = typed_schemas(folder, blueprint)
    assert typed == []
    assert problem.pointer.startswith("/steps/0/response_schema")
    assert words in str(problem)
    assert load(folder.path).run("hello")["plain_output"] == "dict hello"


@pytest.mark.parametrize("title", ["Tickett", "LIMIT"])
def test_nothing_but_a_title_without_a_type(tmp_path: Path, title: str) -> None:
    """A schema that is only a misspelt name would take every answer, so the folder does not load."""
    folder = desk_folder(tmp_path, desk({"title": title}))
    with pytest.raises(BlueprintValidationError) as refused:
        load(folder.path)
    [problem] = refused.value.problems
    assert problem.pointer.startswith("/steps/0/response_schema")
    assert "schemas.py" in problem.detail


def test_without_types_a_title_is_a_title(tmp_path: Path) -> None:
    """A folder without `schemas.py` may give its schemas any titles; one whose schemas have none imports no types."""
    blueprint = desk(TICKET)
    folder = desk_folder(tmp_path, blueprint, types="raise SystemExit(1)")
    (folder.path / "functions.py").write_text(
        FUNCTIONS.replace(
            "from schemas import Ticket", "Ticket = dict"
        ).replace("{ticket.category}", "")
    )
    with pytest.raises(
        ConfigurationError, match=r"Cannot import 'schemas\.py'"
    ):
        load(folder.path)
    untitled = {**TICKET, "title": 1}
    del untitled["title"]
    write_files(folder.path, {"blueprint.json": desk(untitled)})
    assert load(folder.path).run("hello")
    (folder.path / "schemas.py").unlink()
    write_files(
        folder.path, {"blueprint.json": desk({**TICKET, "title": "Zebra"})}
    )
    fresh = Folder(folder.path)
    assert typed_schemas(fresh, fresh.blueprint()) == ([], [])
    assert load(folder.path).run("hello")


def test_a_schema_that_is_not_that_of_its_type(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder whose types have changed is warned of; one whose schema is only a name is refused."""
    old = {**TICKET, "required": []}
    folder = desk_folder(tmp_path, desk(old, name="older_desk"))
    [warning] = outdated_schemas(folder, folder.blueprint())
    assert warning.pointer == "/steps/0/response_schema"
    assert "'Ticket'" in warning.detail
    assert "podwright sync" in warning.suggestion
    with caplog.at_level(logging.WARNING, logger="podwright"):
        load(folder.path)
    assert "not that of the type 'Ticket'" in caplog.text
    write_files(folder.path, {"blueprint.json": desk({"title": "Ticket"})})
    with pytest.raises(BlueprintValidationError) as refused:
        load(folder.path)
    [problem] = refused.value.problems
    assert problem.pointer == "/steps/0/response_schema"
    assert "not written yet" in problem.detail


def test_titles_of_fields_mean_nothing(tmp_path: Path) -> None:
    """The schema that pydantic writes by itself has titles of fields, which are no difference."""
    titled = {
        **TICKET,
        "properties": {
            name: {**schema, "title": name.title()}
            for name, schema in TICKET["properties"].items()
        },
    }
    blueprint = desk(titled)
    folder = desk_folder(tmp_path, blueprint)
    assert outdated_schemas(folder, blueprint) == []
    [schema], _ = typed_schemas(folder, blueprint)
    assert schema.own == TICKET
    # a property that is called like the keyword counts
    without = TYPES.replace("category: str", "title: str")
    (tmp_path / "other").mkdir()
    other = desk_folder(tmp_path / "other", blueprint, without)
    assert len(outdated_schemas(other, blueprint)) == 1


def test_a_type_that_contains_itself(tmp_path: Path) -> None:
    """The title stands beside the reference to the definition."""
    types = """
from __future__ import annotations
from pydantic import BaseModel

class Node(BaseModel):
    inner: list[Node] = []
"""
    blueprint = {**SORTER, "inputs": {"tree": {"title": "Node"}}}
    files = {"a/blueprint.json": blueprint, "a/schemas.py": types}
    folder = Folder(write_files(tmp_path, files) / "a")
    [schema], _ = typed_schemas(folder, blueprint)
    assert schema.own["title"] == "Node"
    assert schema.own["$ref"] == "#/$defs/Node"
    written = {**blueprint, "inputs": {"tree": schema.own}}
    assert blueprints.problems(written) == []
    write_files(folder.path, {"blueprint.json": written})
    loaded = load(folder.path)
    assert loaded.to_blueprint() == written
    assert loaded.run({"input": "x", "tree": {"inner": [{}]}})


# --- Results of functions


class Profile(BaseModel):
    email: str = Field(serialization_alias="mail")

    @computed_field
    def domain(self) -> str:
        return ""


class Entry(TypedDict):
    email: str


@dataclass
class Order:
    buyer: Profile
    lines: list[Entry]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    email: str


def a_model(x: str) -> Profile:
    return Profile(email=x)


def an_entry(x: str) -> Entry:
    return {"email": x}


def an_order(x: str) -> Order:
    return Order(Profile(email=x), [{"email": x}])


def a_strict(x: str) -> Strict:
    return Strict(email=x)


def a_list(x: str) -> list[Entry]:
    return [{"email": x}]


def entries(x: str) -> Iterator[Entry]:
    yield {"email": x}


def a_text(x: str) -> str:
    return x


def a_function(x: str) -> Callable[[], str]:
    return x.upper


def anything(x: str) -> Any:
    return x


def not_annotated(x: str):
    return x


def written_by(function: Callable[..., Any], expression: str) -> list[Any]:
    """The problems of a workflow in which a template reads the result of a function."""
    first = FunctionStep(function, {"x": "{input}"}, output="p")
    second = FunctionStep(a_text, {"x": f"{{{expression}}}"})
    try:
        Workflow("w", [first, second])
    except BlueprintValidationError as error:
        return list(error.problems)
    return []


@pytest.mark.parametrize(
    ("function", "expression", "hint"),
    [
        (a_model, "p.mail", ""),
        (a_model, "p.domain", ""),
        (a_model, "p.emial", "Did you mean 'mail'?"),
        (a_model, "p.domian", "Did you mean 'domain'?"),
        # a subclass may have more
        (a_model, "p.phone", ""),
        (an_entry, "p.emial", "Did you mean 'email'?"),
        (an_order, "p.buyer.mail", ""),
        (an_order, "p.buyer.maill", "Did you mean 'mail'?"),
        (an_order, "p.lines.0.emial", "Did you mean 'email'?"),
        (a_strict, "p.phone", "email"),
        (a_list, "p.0.emial", "Did you mean 'email'?"),
        (a_list, "p.email", "counted from 0"),
        # pydantic has no schema for it
        (entries, "p.0.emial", ""),
        (a_text, "p.x", "let the function return data"),
        (a_function, "p.x", ""),
        (anything, "p.x", ""),
        (not_annotated, "p.x", ""),
    ],
)
def test_fields_of_what_a_function_returns(
    function: Callable[..., Any], expression: str, hint: str
) -> None:
    """A field that the annotated type of a result lacks is a problem of the template; without annotation, none is."""
    problems = written_by(function, expression)
    if not hint:
        assert problems == []
        return
    [problem] = problems
    assert problem.pointer == "/steps/1/arguments/x"
    assert f"'{{{expression}}}'" in problem.detail
    assert hint in problem.suggestion


def test_results_in_conditions_maps_and_instructions() -> None:
    """The check reaches conditions, the items of a map, nested workflows and the instructions of agents."""
    order = FunctionStep(an_order, {"x": "{input}"}, output="order")
    line = FunctionStep(a_text, {"x": "{line.emial}"})
    writer = Agent("writer", "For {order.buyer.maill}.", "offline/echo")
    condition = {"name": "is_empty", "args": {"value": "{order.lnies}"}}
    inner = Workflow("inner", [order])
    steps = [
        WorkflowStep(inner),
        MapStep("order.lines", "line", [line]),
        AgentStep(writer, input="x"),
        ConditionStep(condition, [writer]),
    ]
    with pytest.raises(BlueprintValidationError) as refused:
        Workflow("w", steps)
    hints = {
        problem.pointer: problem.suggestion
        for problem in refused.value.problems
    }
    assert hints == {
        "/steps/1/steps/0/arguments/x": "Did you mean 'email'?",
        "/steps/2/agent": "Did you mean 'mail'?",
        "/steps/3/condition/args/value": "Did you mean 'lines'?",
        "/steps/3/then/0/agent": "Did you mean 'mail'?",
    }


def test_a_function_of_a_folder(tmp_path: Path) -> None:
    """What a function of a folder returns is known of its blueprint too, also to one that is loaded by itself."""
    functions = """
from schemas import Item

def find(text: str) -> Item:
    return Item(sku=text)

def show(text: str) -> str:
    return text
"""
    steps = [
        {
            "type": "function_step",
            "name": name,
            "function": name,
            "arguments": {"text": text},
        }
        for name, text in (("find", "{input}"), ("show", "{find_output.skuu}"))
    ]
    blueprint = {"name": "finder", "steps": steps}
    files = {
        "finder/blueprint.json": blueprint,
        "finder/functions.py": functions,
        "finder/schemas.py": TYPES,
    }
    folder = write_files(tmp_path, files) / "finder"
    with pytest.raises(BlueprintValidationError) as refused:
        load(folder)
    [problem] = refused.value.problems
    assert problem.pointer == "/steps/1/arguments/text"
    assert problem.suggestion == "Did you mean 'sku'?"
    steps[1]["arguments"] = {"text": "{find_output.sku}"}
    write_files(folder, {"blueprint.json": blueprint})
    assert load(folder).run("s-1")["show_output"] == "s-1"
