"""The published JSON Schema says what the library checks, on whatever document."""

import copy
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.library.shapes import (
    EVERY_STEP,
    SHAPES,
    Json,
)
from tests.library.strategies import valid

from podwright import (
    blueprints,
)

SCHEMAS = blueprints.json_schema()


def test_the_published_schema_is_one() -> None:
    """There is a valid JSON Schema 2020-12 for each kind, it is plain JSON, and it takes the spec's shapes."""
    assert list(SCHEMAS) == list(SHAPES)
    assert json.loads(json.dumps(SCHEMAS)) == SCHEMAS
    for kind, schema in SCHEMAS.items():
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(SHAPES[kind], schema)
    jsonschema.validate(EVERY_STEP, SCHEMAS["workflow"])


JUNK: list[Any] = [
    None, True, False, 0, -1, 3, 1.5, -0.5, 10**6, "", "x", "a/b", "Agent", "Workflow", "agent_step", [], {}, ["x"],
    [[]], [5], {"name": "x"}, {"type": "agent_step"}, {"type": "Agent", "name": "x"}, {"model": "a/b"}, {"x": 1},
    "x" * 101,
]  # fmt: skip
KEYS = ["name", "type", "config", "steps", "tools", "else", "input", "args", "max_loops", "model", "description", "x"]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a document, as its container and key."""
    pairs: list[Any] = list(value.items() if isinstance(value, dict) else enumerate(value))
    inner = [place for _, one in pairs if isinstance(one, dict | list) for place in places(one)]
    return [(value, key) for key, _ in pairs] + inner


@st.composite
def _damaged(draw: st.DrawFn) -> tuple[Any, Json]:
    """A blueprint with one place or two changed at random, and its kind; it may still be valid."""
    kind = draw(st.sampled_from(list(valid)))
    whole = copy.deepcopy(draw(valid[kind]))
    for _ in range(draw(st.integers(1, 2))):
        container, key = draw(st.sampled_from(places(whole)))
        what = draw(st.sampled_from(["replace", "remove", "add"]))
        if what == "remove":
            del container[key]
        elif what == "replace":
            container[key] = copy.deepcopy(draw(st.sampled_from(JUNK)))
        elif isinstance(container, dict):
            container[draw(st.sampled_from(KEYS))] = copy.deepcopy(draw(st.sampled_from(JUNK)))
        assume(whole)
    return kind, whole


damaged = _damaged()
MEANING = ("duplicate ", "but its schema '", "may refer only", "schema version '")


@settings(max_examples=200)
@given(one=damaged)
def test_the_schema_and_the_check_agree(one: tuple[Any, Json]) -> None:
    """Whatever document it is, the published schema and `problems` both take its shape, or both refuse it."""
    kind, document = one
    found = blueprints.problems(document, kind)
    versions = [problem for problem in found if "schema version '" in problem.detail and problem.pointer == "/version"]
    assume(not versions)  # an unknown version is refused before the shape is looked at
    shape = [problem for problem in found if not any(words in problem.detail for words in MEANING)]
    accepts = jsonschema.Draft202012Validator(SCHEMAS[kind]).is_valid(document)
    assert accepts == (not shape), shape


@pytest.mark.parametrize("kind", valid)
@settings(max_examples=25)
@given(data=st.data())
def test_the_schema_takes_every_valid_blueprint(kind: str, data: st.DataObject) -> None:
    """What can be loaded fits the published schema."""
    assert list(jsonschema.Draft202012Validator(SCHEMAS[kind]).iter_errors(data.draw(valid[kind]))) == []


@settings(max_examples=150)
@given(data=st.data())
def test_a_pointer_always_leads_somewhere(data: st.DataObject) -> None:
    """Whatever is wrong with a blueprint, each problem's pointer leads to a place in it."""
    kind, broken = data.draw(damaged)
    for problem in blueprints.problems(broken, kind):
        here: Any = broken
        for part in problem.pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            here = here[int(key)] if isinstance(here, list) else here[key]
        assert problem.detail.endswith(".")
