"""Blueprints as data: digests, differences, JSON and YAML text, files."""

import math
from pathlib import Path
from typing import Any

import pytest
from tests.library.shapes import (
    AGENT,
    problems_of,
)

from podwright import blueprints
from podwright.data.text import short_repr


def test_a_digest_depends_on_the_content_only() -> None:
    """The digest ignores the order of keys and the notation of numbers, and nothing else."""
    assert blueprints.digest(AGENT) == blueprints.digest(
        dict(reversed(AGENT.items()))
    )
    assert blueprints.digest(
        {"config": {"temperature": 1}}
    ) == blueprints.digest({"config": {"temperature": 1.0}})
    different = [
        {"a": 1},
        {"a": True},
        {"a": "1"},
        {"a": [1, 2]},
        {"a": [2, 1]},
        {"a": None},
        {},
    ]
    different += [{"a": "é"}, {"a": "e\u0301"}]
    assert len(
        {blueprints.digest(blueprint) for blueprint in different}
    ) == len(different)


def test_digests_stay_the_same_over_releases() -> None:
    """Deployments compare digests, so the digest of a blueprint never changes."""
    assert blueprints.digest({"é": ["🚀", 1.0, 0.1, None, True]}) == (
        "sha256:6c58be3334300bcf3f32266548dddfc9f2f77bdbf4b949f3b39dd3e13fa6fa56"
    )


NOT_JSON: list[Any] = [
    "",
    "{",
    '{"a": NaN}',
    "{'a': 1}",
    '{"a": 1} {"b": 2}',
    b'{"a": "\xff"}',
    "[" * 100_000,
]
NOT_YAML: list[Any] = [
    "a: [1", "a: !!python/object/apply:os.system [ls]", "a: !custom 1", "--- 1\n--- 2", b"a: \xff",
    "a: 2020-99-99", "? [1, 2]\n: 3", "[" * 3000, 'b: !!int ""', "b: !!bool x", "b: !!timestamp x",
]  # fmt: skip


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *(("from_json", text) for text in NOT_JSON),
        *(("from_yaml", text) for text in NOT_YAML),
    ],
    ids=short_repr,
)
def test_invalid_text_is_one_problem(read: str, text: Any) -> None:
    """Invalid JSON or YAML is one problem with a suggestion, and so are tags: nothing in a file is executed."""
    (problem,) = problems_of(lambda: getattr(blueprints, read)(text))
    assert (problem.pointer, bool(problem.suggestion)) == ("", True)
    assert "Invalid" in problem.detail


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ("a: 2020-01-01", "/a"),
        ("a: .nan", "/a"),
        ("1: x", ""),
        ("a: !!binary aGk=", "/a"),
        ("a: !!set {x}", "/a"),
    ],
)
def test_yaml_values_without_a_json_form_are_problems(
    text: str, pointer: str
) -> None:
    """Dates, sets, binaries and keys that are not strings are not blueprint data."""
    assert [
        problem.pointer
        for problem in blueprints.problems(blueprints.from_yaml(text))
    ] == [pointer]


def test_text_is_readable() -> None:
    """JSON and YAML keep non-ASCII letters, and YAML repeats shared data instead of writing aliases."""
    step = {"type": "approval_step", "name": "ü", "message": ""}
    blueprint = {"name": "w", "steps": [step, step]}
    for text in (blueprints.to_json(blueprint), blueprints.to_yaml(blueprint)):
        assert text.count("ü") == 2
        assert len(text.splitlines()) > 5
    with pytest.raises(ValueError, match="nan"):
        blueprints.to_json({"a": math.nan})


@pytest.mark.parametrize("suffix", [".json", ".yaml", ".yml", ".JSON"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_file_is_read_by_its_suffix(
    tmp_path: Path, suffix: str, encoding: str
) -> None:
    """JSON and YAML files are read, with and without a byte order mark, which some editors write."""
    write = (
        blueprints.to_json if suffix.lower() == ".json" else blueprints.to_yaml
    )
    file = tmp_path / f"blueprint{suffix}"
    file.write_text(write({**AGENT, "name": "ü"}), encoding=encoding)
    assert blueprints.read_file(file) == {**AGENT, "name": "ü"}
