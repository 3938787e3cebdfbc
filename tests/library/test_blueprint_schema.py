"""The published JSON Schema and `blueprints.problems` agree on every document."""

import copy
import json
from typing import Any

import jsonschema
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.library.shapes import BLUEPRINTS, EVERY_KEY, KINDS, Json
from tests.library.strategies import changed, places, valid

from podwright import blueprints
from podwright.blueprints.validation import with_types
from podwright.steps.registry import step_keys

SCHEMAS = blueprints.json_schema()


def test_each_kind_has_a_schema() -> None:
    """There is a JSON Schema 2020-12 for each kind, and it accepts the examples of the specification and all keys."""
    assert list(SCHEMAS) == KINDS
    assert json.loads(json.dumps(SCHEMAS)) == SCHEMAS
    for kind, schema in SCHEMAS.items():
        assert (
            schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        )
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(BLUEPRINTS[kind], schema)
        jsonschema.validate(EVERY_KEY[kind], schema)


def test_the_keys_that_hold_steps_are_known() -> None:
    """Each key of a step that the schema allows to hold steps is one that everything which walks steps knows."""
    definitions = SCHEMAS["workflow"]["$defs"]
    holding = {
        key
        for shape in definitions.values()
        for key, schema in shape.get("properties", {}).items()
        if "discriminator" in schema.get("items", {})
    }
    assert holding == {*step_keys()} - {"branches"}


VALUES: list[Any] = [
    None, True, False, 0, -1, 3, 1.5, -0.5, 10**6, "", "x", "a/b", "Agent", "Workflow", "agent_step", [], {}, ["x"],
    [[]], [5], {"name": "x"}, {"type": "agent_step"}, {"type": "Agent", "name": "x"}, {"model": "a/b"}, {"x": 1},
    "x" * 101, {"x": {}}, {"tokens": 1}, {"type": "string", "default": 1}, [{"type": "approval_step"}],
]  # fmt: skip
KEYS = [
    "name",
    "type",
    "config",
    "steps",
    "tools",
    "else",
    "input",
    "args",
    "max_loops",
    "model",
    "description",
    "inputs",
    "limits",
    "response_schema",
    "arguments",
    "catch",
    "retries",
    "x",
]


@st.composite
def _damaged(draw: st.DrawFn) -> tuple[Any, Json]:
    """A kind, and a blueprint of it with a value or two replaced, removed or added; it may still be valid."""
    kind = draw(st.sampled_from(list(valid)))
    blueprint = draw(valid[kind])
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.sampled_from(list(places(blueprint))[1:]))
        if draw(st.booleans()):
            at = (
                (*at[:-1], draw(st.sampled_from(KEYS)))
                if isinstance(at[-1], str)
                else at
            )
            blueprint = changed(
                blueprint, at, copy.deepcopy(draw(st.sampled_from(VALUES)))
            )
        else:
            blueprint = changed(
                blueprint, at, draw(st.just(...) | st.sampled_from(VALUES))
            )
        assume(blueprint)
    return kind, blueprint


BEYOND_THE_SCHEMA = (
    "Duplicate name",
    "but its schema",
    "refer only to itself",
    "schema version",
    "g/max_loops: U",
    "g/response_schema: U",
    "g/limits: U",
    "Invalid JSON Schema",
    "The default",
    "A try step needs",
    "both write",
    "nothing to collect",
)
"""Words of the problems that a JSON Schema cannot express; some are of keys in another place than their own."""


@settings(max_examples=200)
@given(example=_damaged())
def test_the_schema_and_the_check_agree(example: tuple[Any, Json]) -> None:
    """The schema accepts a document with all types if and only if its shape has no problems, which point to values."""
    kind, document = example
    found = blueprints.problems(document, kind)
    shape = [
        problem
        for problem in found
        if not any(words in str(problem) for words in BEYOND_THE_SCHEMA)
    ]
    assert jsonschema.Draft202012Validator(SCHEMAS[kind]).is_valid(
        with_types(document)
    ) == (not shape), shape
    for problem in found:
        here: Any = document
        for part in problem.pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            here = here[int(key)] if isinstance(here, list) else here[key]
        assert problem.detail.endswith(".")
