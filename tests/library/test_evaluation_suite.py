"""Suites: `Suite.load` with all that a suite may name, the places of variants, and the JSON Schema."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.helpers import write_files
from tests.library.shapes import CONDUCTOR, Json, agent_step, problems_of

from podwright import blueprints
from podwright.errors import ConfigurationError
from podwright.evaluation.checks_form import label_of
from podwright.evaluation.overrides import changed_blueprint
from podwright.evaluation.suite import Case, Gates, Suite
from podwright.evaluation.suite_schema import suite_schema

Load = Callable[..., Suite]
SENT: Json = {"letter": "not sent"}
TOOL: Json = {
    "name": "search",
    "schema": {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
}
WRITER: Json = {
    "name": "writer",
    "instructions": "Write to {customer}.",
    # no provider serves it: a call of a model would be an error
    "config": {"model": "nobody/large"},
    "tools": [TOOL],
}
SORTER: Json = {
    "name": "sorter",
    "instructions": "Sort.",
    "config": {
        "model": "nobody/large",
        "response_schema": {
            "type": "object",
            "properties": {"category": {"type": "string"}},
            "required": ["category"],
        },
    },
    "tools": [],
}
DESK: Json = {
    "name": "desk",
    "inputs": {
        "input": {"type": "string"},
        "customer": {"type": "string"},
        "tone": {"enum": ["warm", "formal"], "default": "warm"},
    },
    "steps": [
        agent_step("sort", "sorter", output="ticket"),
        {
            "name": "polish",
            "steps": [agent_step("draft", "writer", output="draft")],
            "until": {"name": "is_empty", "args": {"value": "{ticket}"}},
            "max_iterations": 2,
        },
        {"name": "ask", "message": "Send {draft}?"},
        {
            "name": "send",
            "function": "send_letter",
            "arguments": {"text": "{draft}"},
            "output": "receipt",
        },
    ],
}
JUDGE: Json = {
    "name": "kind",
    "instructions": "Is it kind? Look at {about}.\n{output}",
    "inputs": {"about": {"type": "string"}},
    "config": {
        "model": "nobody/judge",
        "response_schema": {
            "type": "object",
            "properties": {"good": {"type": "boolean"}},
            "required": ["good"],
        },
    },
}
FOLDER: Json = {
    "desk/blueprint.json": DESK,
    "desk/agents/sorter.json": SORTER,
    "desk/agents/writer/blueprint.json": WRITER,
    "desk/agents/writer/tools.py": "def search() -> str: return ''",
    "desk/functions.py": "def send_letter(text: str): return {'letter': text}",
    "desk/evals/judges/kind.json": JUDGE,
    "desk/evals/judges/vague.json": {
        **JUDGE,
        "config": {"model": "nobody/judge"},
    },
    "desk/evals/prompts/short.md": "Be short.\n",
    "desk/evals/checks.py": "def is_short(context, words=9): return True",
    "desk/evals/fakes.py": "def search() -> str: return 'found'",
    "desk/evals/cases.jsonl": '{"name": "of a file", "inputs": {"input": "a", "customer": "Bob"}}\n\n',
    "secret.md": "outside",
}
INPUTS: Json = {"input": "My cup is broken.", "customer": "Ann"}
CASES: list[Json] = [{"name": "cup", "inputs": INPUTS}]
WHOLE: Json = {
    "$schema": "../.podwright/evals.schema.json",
    "matrix": {
        "*.model": ["nobody/large", "nobody/small"],
        "writer.instructions": {
            "as it is": None,
            "short": {"file": "prompts/short.md"},
        },
        "writer.config.temperature": {"warm": 0.7, "cold": 0},
    },
    "baseline": {
        "*.model": "nobody/small",
        "writer.instructions": "as it is",
        "writer.config.temperature": 0,
    },
    "repeat": 3,
    "decisions": [{"decision": "reject", "comment": "Too long."}],
    "fakes": {"send_letter": SENT, "search": {"from": "fakes.py"}},
    "checks": [
        {
            "name": "less_than",
            "args": {"value": "{usage.cost}", "than": 0.02},
            "label": "cheap",
        },
        {"name": "is_short", "args": {"words": 5}},
        {
            "name": "not",
            "args": {
                "condition": {"name": "is_empty", "args": {"value": "{draft}"}}
            },
        },
        {
            "name": "matches",
            "args": {"value": "{draft}", "pattern": "^[A-Z]{1,3}"},
        },
        {
            "name": "close_to",
            "args": {
                "value": "{rounds.polish}",
                "to": 1,
                "within": "{seconds}",
            },
        },
        {
            "name": "fits",
            "args": {"value": "{ticket}", "schema": {"type": "object"}},
        },
    ],
    "cases": [
        {
            "name": "cup",
            "inputs": INPUTS,
            "must": True,
            "messages": [
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "Hello!"},
            ],
            "decisions": [{"decision": "approve", "values": {"a": 1}}],
            "checks": [
                {
                    "name": "equals",
                    "args": {"value": "{ticket.category}", "to": "refund"},
                },
                {
                    "called": [
                        "send_letter",
                        {"tool": "search", "arguments": {"a": "{tone}"}},
                    ],
                    "order": "any",
                    "others": "refused",
                },
                {"judge": "kind", "input": {"about": "{tone}"}, "samples": 3},
                {"prefer": "kind", "input": {"about": "tone"}},
            ],
        },
        {"file": "cases.jsonl"},
        {"name": "fails", "inputs": INPUTS, "expect_error": "output_invalid"},
    ],
    "gates": {
        "pass_rate": {"at_least": 0.9},
        "against_baseline": {"pass_rate_drop": 0.05, "cost_ratio": 1.2},
    },
}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Writes the desk with a suite, and perhaps further files, and loads the suite."""

    def write_and_load(
        suite: Mapping[str, Any] | str,
        name: str = "desk/evals/evals.yaml",
        load: str = "desk",
        **files: Any,
    ) -> Suite:
        named = {f"desk/evals/{key}": text for key, text in files.items()}
        write_files(tmp_path, {**FOLDER, name: suite, **named})
        return Suite.load(tmp_path / load)

    return write_and_load


def pointers(load: Load, suite: Any, **files: Any) -> list[str]:
    return [
        problem.pointer
        for problem in problems_of(partial(load, suite, **files))
    ]


@pytest.mark.parametrize("suffix", ["yaml", "yml", "json"])
def test_a_whole_suite(load: Load, suffix: str, tmp_path: Path) -> None:
    """All that a suite may have is read, with the files that it names, and no model is called."""
    suite = load(WHOLE, f"desk/evals/evals.{suffix}")
    assert suite.name == "desk"
    assert suite.folder == tmp_path / "desk" / "evals"
    assert list(suite.variants)[:3] == [
        "large, as it is, warm",
        "large, as it is, cold",
        "large, short, warm",
    ]
    assert len(suite.variants) == 8
    assert suite.variants["large, short, cold"].changes == {
        "*.model": "nobody/large",
        "writer.instructions": "Be short.",
        "writer.config.temperature": 0,
    }
    assert suite.baseline == "small, as it is, cold"
    assert "writer.instructions" not in suite.variants[suite.baseline].changes
    assert [case.name for case in suite.cases] == ["cup", "of a file", "fails"]
    assert suite.cases[1] == Case(
        "of a file", {"input": "a", "customer": "Bob"}
    )
    assert suite.cases[0].must
    assert len(suite.checks_of(suite.cases[0])) == 10
    assert suite.fakes["send_letter"] == SENT
    assert suite.fakes["search"]() == "found"
    assert suite.judges["kind"].name == "kind.json"
    assert suite.conditions["is_short"]({}) is True
    assert suite.gates == Gates(0.9, 0.05, 1.2)
    assert suite.repeat == 3


def test_the_least_suite(load: Load) -> None:
    """With cases alone there is one variant, which changes nothing, and no baseline."""
    suite = load({"cases": CASES})
    assert list(suite.variants) == ["as it is"]
    assert suite.variants["as it is"].changes == {}
    assert (suite.baseline, suite.repeat, suite.gates) == ("", 1, Gates())


def test_named_variants(load: Load, tmp_path: Path) -> None:
    """Variants by name change places, or name another component; the first is the baseline."""
    write_files(tmp_path, {"desk-2/blueprint.json": DESK})
    suite = load(
        {
            "variants": {
                "now": None,
                "cold": {"writer.config.temperature": 0, "*.model": None},
                "other": {"blueprint": "../desk-2"},
                "older": {"blueprint": "previous/old.json"},
                "image": {"image": "desk:1.3"},
                "served": {
                    "url": "https://desk.example",
                    "api_key_file": "desk.key",
                },
            },
            "cases": CASES,
        },
        **{"desk.key": "k", "../previous/old.json": DESK},
    )
    variants = suite.variants
    assert suite.baseline == "now"
    assert variants["cold"].changes == {"writer.config.temperature": 0}
    other = variants["other"].blueprint
    assert other is not None
    assert other.resolve() == tmp_path / "desk-2"
    assert variants["image"].image == "desk:1.3"
    assert variants["served"].api_key_file == suite.folder / "desk.key"


def test_a_suite_by_its_path(load: Load, tmp_path: Path) -> None:
    """A suite elsewhere names its component, and a file in `evals` has the component around it."""
    suite = load(
        {"component": "../desk", "cases": CASES},
        "suites/quick.yaml",
        "suites/quick.yaml",
    )
    assert suite.name == "desk"
    suite = load(
        {"cases": CASES}, "desk/evals/quick.json", "desk/evals/quick.json"
    )
    assert suite.component == tmp_path / "desk"


MISTAKES: Json = {
    "matrix": {
        "wirter.instructions": ["Write."],
        "writer.config.temprature": [0, 1],
        "desk.steps.0.agent": ["writer"],
    },
    "baseline": {"*.model": "nobody/large"},
    "decisions": [{"decision": "aprove"}],
    "fakes": {"send_leter": None},
    "checks": [
        {"name": "equals", "args": {"value": "{tickt.category}", "to": "a"}},
        {"judge": "kindd"},
        {"called": ["serch"]},
    ],
    "cases": [
        *CASES,
        {"name": "cup", "inputs": INPUTS},
        {"name": "other", "inputs": {"input": "x", "custmer": "Ann"}},
    ],
}


def test_all_mistakes_at_once(load: Load) -> None:
    """Every mistake of a suite is a problem with its pointer, in one error, and each misspelt name has a suggestion."""
    found = problems_of(partial(load, MISTAKES))
    by_pointer = {problem.pointer: problem for problem in found}
    assert sorted(by_pointer) == sorted(
        [
            "/matrix/wirter.instructions",
            "/matrix/writer.config.temprature/0",
            "/matrix/writer.config.temprature/1",
            "/matrix/desk.steps.0.agent",
            "/baseline/*.model",
            "/baseline",
            "/decisions/0/decision",
            "/fakes/send_leter",
            "/checks/0/args/value",
            "/checks/1/judge",
            "/checks/2/called/0",
            "/cases/1/name",
            "/cases/2/inputs/customer",
            "/cases/2/inputs/custmer",
        ]
    )
    meant = {
        "/matrix/wirter.instructions": "writer",
        "/matrix/writer.config.temprature/0": "temperature",
        "/matrix/desk.steps.0.agent": "blueprint",
        "/decisions/0/decision": "approve",
        "/fakes/send_leter": "send_letter",
        "/checks/0/args/value": "ticket",
        "/checks/1/judge": "kind",
        "/checks/2/called/0": "search",
        "/cases/2/inputs/custmer": "customer",
    }
    for pointer, name in meant.items():
        assert name in by_pointer[pointer].suggestion, pointer


VISIBLE: list[tuple[Json, str]] = [
    ({"repeet": 3}, "/repeet"),
    ({"repeat": 0}, "/repeat"),
    ({"repeat": 101}, "/repeat"),
    ({"cases": []}, "/cases"),
    ({"cases": [{"name": "a", "inputs": 3}]}, "/cases/0/inputs"),
    ({"cases": [{"name": "a", "inputs": "", "mus": True}]}, "/cases/0/mus"),
    ({"checks": [{"label": "x"}]}, "/checks/0"),
    ({"checks": [{"called": [], "ordr": "any"}]}, "/checks/0/ordr"),
    ({"checks": [{"judge": "kind", "samples": "3"}]}, "/checks/0/samples"),
    ({"decisions": [{"decision": "approve", "valus": {}}]}, "/decisions/0/valus"),
    ({"gates": {"pass_rate": {"at_least": 90}}}, "/gates/pass_rate/at_least"),
    ({"gates": {"against_baseline": {"cost": 2}}}, "/gates/against_baseline/cost"),
    ({"variants": {}}, "/variants"),
    ({"variants": {"": None}}, "/variants/"),
]  # fmt: skip
"""Mistakes that a JSON Schema can see, and where they are."""


@pytest.mark.parametrize(("change", "pointer"), VISIBLE)
def test_keys_and_types(load: Load, change: Json, pointer: str) -> None:
    """Unknown keys and wrong types are problems, and the JSON Schema refuses them, too."""
    suite = {"cases": CASES, **change}
    assert pointer in pointers(load, suite)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(suite, suite_schema())


@pytest.mark.parametrize(
    "change",
    [
        {"matrix": {"writer.steps": ["x"]}},
        {"variants": {"a": {"bluprint": "x"}}},
    ],
)
def test_places_in_the_schema(load: Load, change: Json) -> None:
    """The JSON Schema refuses keys of variants that have the form of no place."""
    suite = {"cases": CASES, **change}
    assert pointers(load, suite)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(suite, suite_schema())


def test_the_schema_accepts_a_suite() -> None:
    """The JSON Schema is valid, closed and described, and accepts what `load` accepts."""
    schema = suite_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(WHOLE, schema)
    jsonschema.validate({"cases": CASES, "variants": {"now": None}}, schema)
    assert schema["additionalProperties"] is False
    described = {**schema["properties"]}
    described.pop("$schema")
    for name, part in described.items():
        assert "description" in part or "$ref" in part, name


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"matrix": {"writer.model": ["nobody"]}}, ["/matrix/writer.model/0"]),
        ({"matrix": {"writer.model": []}}, ["/matrix/writer.model"]),
        ({"matrix": {"writer.tools.serch.timeout": [1]}}, ["/matrix/writer.tools.serch.timeout"]),
        ({"matrix": {"writer.tools.search.retries": [1]}}, ["/matrix/writer.tools.search.retries/0"]),
        ({"matrix": {"desk.model": ["a/b"]}}, ["/matrix/desk.model"]),
        ({"matrix": {"*.model": ["a/x", "b/x"]}}, ["/matrix/*.model/1"]),
        ({"matrix": {"*.model": {"one": "a/x", "two": "a/x"}}}, ["/matrix"]),
        ({"matrix": {"writer.config.max_tokens": list(range(1, 66))}}, ["/matrix"]),
        ({"matrix": {"writer.model": ["a/b"]}, "variants": {"a": None}}, ["/variants"]),
        ({"variants": {"a": None, "b": {"writer.model": "nobody/large"}}}, ["/variants/b"]),
        ({"variants": {"a": None, "b": {"writer.model": None}}}, ["/variants/b"]),
        ({"variants": {"a": {"*.model": "a/b"}, "b": {"sorter.model": "a/b", "writer.model": "a/b"}}}, ["/variants/b"]),
        ({"variants": {"a": {"bluprint": "x"}}}, ["/variants/a/bluprint"]),
        ({"variants": {"a": {"blueprint": "../nowhere"}}}, ["/variants/a/blueprint"]),
        ({"variants": {"a": {"blueprint": "evals/judges/vague.json", "image": "x"}}}, ["/variants/a"]),
        ({"variants": {"a": {"image": "x", "writer.model": "a/b"}}}, ["/variants/a"]),
        ({"variants": {"a": {"url": "desk.example"}}}, ["/variants/a/url"]),
        ({"variants": {"a": {"image": "x", "api_key_file": "none"}}}, ["/variants/a/api_key_file"] * 2),
        ({"matrix": {"writer.instructions": [{"file": "prompts/shrt.md"}]}}, ["/matrix/writer.instructions/0/file"]),
        ({"matrix": {"writer.instructions": [{"file": "../../secret.md"}]}}, ["/matrix/writer.instructions/0/file"]),
        ({"variants": {"a": None, "b": {"image": "x"}}, "baseline": "c"}, ["/baseline"]),
        ({"baseline": {"*.model": "a/b"}}, ["/baseline"]),
        ({"matrix": {"*.model": ["a/b", "a/c"]}, "baseline": {"*.model": "a/d"}}, ["/baseline/*.model"]),
        ({"fakes": {"search": {"from": "nowhere.py"}}}, ["/fakes/search/from"]),
        ({"fakes": {"search": {"from": "../../secret.md"}}}, ["/fakes/search/from"]),
        ({"fakes": {"send_letter": {"from": "fakes.py"}}}, ["/fakes/send_letter/from"]),
        ({"component": "../../nowhere"}, ["/component"]),
        ({"component": "x" * 300}, ["/component"]),
        ({"variants": {"a": {"blueprint": "x" * 300}}}, ["/variants/a/blueprint"]),
        ({"variants": {"a": {"url": "http://a", "api_key_file": "x" * 300}}}, ["/variants/a/api_key_file"]),
        ({"cases": [{"file": "\0"}]}, ["/cases/0/file"]),
        ({"cases": [{"name": "a", "inputs": {"input": "", "customer": 3}}]}, ["/cases/0/inputs/customer"]),
        ({"cases": [{"name": "a", "inputs": "text"}]}, ["/cases/0/inputs/customer"]),
        ({"cases": [{**CASES[0], "messages": [{"role": "usr", "content": ""}]}]}, ["/cases/0/messages/0/role"]),
        ({"cases": [{**CASES[0], "decisions": [{"decision": "maybe"}]}]}, ["/cases/0/decisions/0/decision"]),
        ({"cases": [{**CASES[0], "checks": [{"called": ["serch"]}]}]}, ["/cases/0/checks/0/called/0"]),
        ({"cases": [{"file": "nowhere.jsonl"}]}, ["/cases/0/file"]),
    ],
)  # fmt: skip
def test_mistakes(load: Load, change: Json, expected: list[str]) -> None:
    """What does not fit the component, or names what does not exist, is a problem where it is written."""
    assert pointers(load, {"cases": CASES, **change}) == expected


EMPTY: Json = {"name": "is_empty", "args": {"value": "{drft}"}}


@pytest.mark.parametrize(
    ("check", "pointer"),
    [
        ({"name": "equal", "args": {}}, "/name"),
        ({"name": "is_shrt"}, "/name"),
        ({"name": "equals", "args": {"value": "{draft}"}}, "/args"),
        ({"name": "equals", "args": {"value": "{draft}", "to": 1, "too": 1}}, "/args/too"),
        ({"name": "not", "args": {"condition": {"name": "matches", "args": {}}}}, "/args/condition/name"),
        ({"name": "any", "args": {"conditions": [EMPTY]}}, "/args/conditions/0/args/value"),
        ({"name": "is_empty", "args": {"value": "{usage.costs}"}}, "/args/value"),
        ({"name": "is_empty", "args": {"value": "{error.reason}"}}, "/args/value"),
        ({"name": "is_empty", "args": {"value": "{rounds.publish}"}}, "/args/value"),
        ({"name": "is_empty", "args": {"value": "{ticket.categry}"}}, "/args/value"),
        ({"name": "matches", "args": {"value": "{draft}", "pattern": "("}}, "/args/pattern"),
        ({"name": "matches", "args": {"value": "{draft}", "pattern": 3}}, "/args/pattern"),
        ({"name": "matches", "args": {"value": "{draft}"}}, "/args"),
        ({"name": "close_to", "args": {"value": 1, "to": 1, "within": "{secnds}"}}, "/args/within"),
        ({"name": "fits", "args": {"value": "{draft}", "schema": {"type": "txt"}}}, "/args/schema"),
        ({"name": "fits", "args": {"value": "{draft}", "schema": "string"}}, "/args/schema"),
        ({"called": [{"tool": "search", "arguments": {"a": "{drft}"}}]}, "/called/0/arguments/a"),
        ({"called": [{"tool": "serch"}]}, "/called/0/tool"),
        ({"judge": "vague", "input": {"about": "a"}}, "/judge"),
        ({"judge": "kind"}, "/input"),
        ({"judge": "kind", "input": {"about": "{drft}"}}, "/input/about"),
        ({"prefer": "kindd"}, "/prefer"),
    ],
)  # fmt: skip
def test_mistakes_in_checks(load: Load, check: Json, pointer: str) -> None:
    """A check that no run could answer is a problem."""
    found = pointers(load, {"cases": CASES, "checks": [check]})
    assert found == [f"/checks/0{pointer}"]


def test_what_checks_of_an_agent_read(load: Load) -> None:
    """The fields of an agent's structured answer are known, and so are the inputs of any case."""
    suite: Json = {
        "component": "../agents/sorter",
        "cases": [{"name": "a", "inputs": {"input": "x", "tone": "y"}}],
    }
    files: Json = {"../agents/sorter/blueprint.json": SORTER}

    def with_value(value: str) -> Json:
        check = {"name": "is_empty", "args": {"value": value}}
        return {**suite, "checks": [check]}

    for value in ("{output.category}", "{tone}", "{inputs.tone}", "{question}"):
        assert load(with_value(value), **files).name == "sorter"
    for value in ("{output.categry}", "{draft}"):
        found = pointers(load, with_value(value), **files)
        assert found == ["/checks/0/args/value"]


def test_code_that_fails(load: Load) -> None:
    """A file of checks that cannot be imported is a problem of the suite."""
    suite = {"cases": CASES, "checks": [{"name": "is_short"}]}
    found = problems_of(partial(load, suite, **{"checks.py": "1 / 0"}))
    assert "ZeroDivisionError" in found[0].detail


def test_lines_of_a_file_of_cases(load: Load) -> None:
    """A problem in a file of cases says the file and the line, and where in the line."""
    lines = "\n".join(
        [
            '{"name": "cup", "inputs": {"input": "a", "customer": "b"}}',
            "{broken",
            '{"name": "b", "input": "x"}',
            '{"name": "c", "inputs": {"input": "a"}}',
            '{"name": "cup", "inputs": {"input": "a", "customer": "b"}}',
        ]
    )
    suite = {"cases": [{"file": "cases.jsonl"}]}
    found = problems_of(partial(load, suite, **{"cases.jsonl": lines}))
    assert {problem.pointer for problem in found} == {"/cases/0/file"}
    details = [problem.detail for problem in found]
    for number, place in ((2, ": "), (3, ", /input: "), (4, ", /inputs/customer: "), (5, ", /name: ")):  # fmt: skip
        start = f"cases.jsonl, line {number}{place}"
        assert any(detail.startswith(start) for detail in details), start


def test_an_empty_file_of_cases(load: Load) -> None:
    """Without any case there is nothing to evaluate."""
    suite = {"cases": [{"file": "cases.jsonl"}]}
    assert pointers(load, suite, **{"cases.jsonl": "\n"}) == ["/cases"]


@pytest.mark.parametrize(
    "text",
    ["- cases", "cases: [}", "cases: &a [*a]", "cases: {1: 2}"],
)
def test_files_that_are_no_suite(load: Load, text: str) -> None:
    """Text that is no object, no YAML or no JSON data is a problem, as it is of a blueprint."""
    problems_of(partial(load, text))


def test_aliases_are_bounded(load: Load) -> None:
    """A few aliases that stand for millions of values are refused."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for number in range(1, 9):
        inner = ", ".join([f"*a{number - 1}"] * 10)
        lines.append(f"a{number}: &a{number} [{inner}]")
    assert pointers(load, "\n".join(lines)) == [""]


def test_folders_without_a_suite(load: Load, tmp_path: Path) -> None:
    """A folder without a suite or with two, and a file that is none, are errors with a suggestion."""
    write_files(tmp_path, {"bare/blueprint.json": WRITER})
    load({"cases": CASES})
    both = {"desk/evals/evals.json": {"cases": CASES}}
    for name, files in (
        ("bare", {}),
        ("nowhere", {}),
        ("desk/evals/cases.jsonl", {}),
        ("desk", both),
    ):
        write_files(tmp_path, files)
        with pytest.raises(ConfigurationError) as caught:
            Suite.load(tmp_path / name)
        assert caught.value.suggestion


@pytest.mark.parametrize("name", ["nowhere", "nowhere.yaml", "x" * 300])
def test_a_path_that_does_not_exist(tmp_path: Path, name: str) -> None:
    """The error says so, and does not speak of the form of suites."""
    with pytest.raises(ConfigurationError, match="There is no file or folder"):
        Suite.load(tmp_path / name)


def test_an_invalid_component(load: Load) -> None:
    """The problems of the component's blueprint come before those of its suite."""
    broken = {"../agents/sorter.json": {**SORTER, "confg": {}}}
    assert pointers(load, MISTAKES, **broken) == ["/confg"]


# --- Places -----------------------------------------------------------------------------------------------------------


def test_changes_of_a_blueprint() -> None:
    """A value for a member takes precedence over one for all, and the blueprint itself stays as it is."""
    changes = {
        "writer.model": "a/writer",
        "writer.config.temperature": 0,
        "*.model": "a/all",
        "*.config.temperature": 1,
        "writer.instructions": "Short.",
        "writer.tools.search.description": "Find.",
        "writer.tools.search.timeout": 3,
        "other.model": "a/other",
        "writer.config.max_tokens": None,
    }
    before = blueprints.digest(WRITER)
    changed = changed_blueprint(WRITER, changes)
    assert changed["config"] == {"model": "a/writer", "temperature": 0}
    assert changed["instructions"] == "Short."
    (tool,) = changed["tools"]
    assert tool["schema"]["function"]["description"] == "Find."
    assert tool["timeout"] == 3
    assert blueprints.problems(changed) == []
    assert blueprints.digest(WRITER) == before
    assert changed_blueprint(WRITER, {}) == WRITER


def test_changes_of_a_team() -> None:
    """Members in a blueprint are changed by their names; the model for all is that of the whole, which they share."""
    named = {"type": "Agent", "name": "reader"}
    team = {**CONDUCTOR, "skills": [*CONDUCTOR["skills"], named]}
    changed = changed_blueprint(
        team, {"*.model": "a/all", "*.config.temperature": 1}
    )
    assert changed["config"]["model"] == "a/all"
    assert changed["config"]["temperature"] == 1
    writer, reader = changed["skills"]
    assert writer["config"] == {"temperature": 1}
    assert reader == named
    changed = changed_blueprint(team, {"writer.model": "a/writer"})
    assert changed["skills"][0]["config"] == {"model": "a/writer"}
    assert changed["config"] == team["config"]
    assert changed_blueprint(DESK, {"*.model": "a/b"}) == DESK


# --- Labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "label"),
    [
        ({"name": "equals", "args": {}, "label": "own"}, "own"),
        ({"name": "equals", "args": {"value": "{a.b}", "to": 3}}, "a.b equals 3"),
        ({"name": "not_equals", "args": {"value": "{a} {b}", "to": "x\ny"}}, "{a} {b} not equals x y"),
        ({"name": "not", "args": {"condition": {"name": "is_empty", "args": {"value": "{a}"}}}}, "not a is empty"),
        ({"name": "fits", "args": {"value": "{a}", "schema": {"type": "object"}}}, "a fits"),
        ({"called": ["search", {"tool": "send"}]}, "calls search, send"),
        ({"called": []}, "calls nothing"),
        ({"judge": "kind"}, "kind"),
        ({"prefer": "kind"}, "preferred by kind"),
    ],
)  # fmt: skip
def test_labels(check: Json, label: str) -> None:
    """A check without a label is called by what it says, in a line."""
    assert label_of(check) == label


def test_long_labels_are_cut() -> None:
    """A label of a long text stays readable in a table."""
    text = "x" * 1000
    check = {"name": "contains", "args": {"value": "{a}", "text": text}}
    assert len(label_of(check)) <= 60
