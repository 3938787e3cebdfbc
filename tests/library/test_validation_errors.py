"""pydantic's validation errors as problems with JSON pointers and suggestions."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from podwright.errors import Problem
from podwright.schemas.validation_errors import MAX_PROBLEMS, to_problems


class Square(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["square"]
    size: int


class Label(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["label"]
    lines: list[str]


Shape = Annotated[Square | Label, Field(discriminator="type")]


def problems(data_type: Any, data: Any) -> list[Problem]:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(data_type).validate_python(data)
    return to_problems(
        caught.value.errors(include_url=False),
        data,
        lambda location: ["size", "lines"],
    )


ONE_PROBLEM: list[tuple[Any, Any, str, str]] = [
    # type, data, pointer, words
    (int, None, "", "integer null"),
    (dict[str, int], [], "", "object array"),
    (Annotated[int, Field(gt=0)], 0, "", "greater 0"),
    (Annotated[str, Field(min_length=2)], "a", "", "at least 2 characters"),
    (Annotated[list[int], Field(max_length=1)], [1, 2], "", "at most 1 item"),
    (Literal["low", "high"], "hihg", "", "'low' or 'high' 'hihg'"),
    (
        dict[str, dict[str, int]],
        {"a/b": {"c~d": []}},
        "/a~1b/c~0d",
        "integer array",
    ),
    (int | list[int], {"x": 1}, "", "integer or array object"),
    (int | list[int], [1, None], "/1", "integer null"),
    (Shape, {"type": "circle"}, "/type", "Unknown 'circle'"),
    (Shape, {}, "", "Missing 'type'"),
    (
        list[Shape],
        [{"type": "label", "lines": ["a", 1]}],
        "/0/lines/1",
        "string 1",
    ),
    (
        list[Shape],
        [{"type": "square", "size": 1, "lnes": []}],
        "/0/lnes",
        "Unknown 'lnes'",
    ),
    (
        dict[str, Shape],
        {"square": {"type": "square"}},
        "/square",
        "Missing 'size'",
    ),
]


@pytest.mark.parametrize(("data_type", "data", "pointer", "words"), ONE_PROBLEM)
def test_a_wrong_value_is_one_problem(
    data_type: Any, data: Any, pointer: str, words: str
) -> None:
    """A problem has the pointer of the value, what was expected and what it is; members of a union are merged."""
    (problem,) = problems(data_type, data)
    assert problem.pointer == pointer
    assert [
        word for word in words.split(" ") if word not in problem.detail
    ] == []


@pytest.mark.parametrize(
    ("value", "suggestion"),
    [
        ("Low", "Did you mean 'low'?"),
        ("hihg", "Did you mean 'high'?"),
        ("medium", ""),
        (5, ""),
    ],
)
@pytest.mark.parametrize(
    "data_type", [Literal["low", "high"], Literal["low", "high"] | None]
)
def test_a_misspelled_value(
    data_type: Any, value: object, suggestion: str
) -> None:
    """The allowed value that it resembles is suggested; all are listed anyway."""
    (problem,) = problems(data_type, value)
    assert problem.suggestion == suggestion
    assert "'low' or 'high'" in problem.detail


def test_the_message_of_a_validator_is_kept() -> None:
    """A ValueError of our own is the detail, without pydantic's prefix."""

    def refuse(value: int) -> int:
        raise ValueError(f"Too odd: {value}")

    from pydantic import AfterValidator

    (problem,) = problems(Annotated[int, AfterValidator(refuse)], 3)
    assert problem.detail == "Too odd: 3."


def test_at_most_100_problems_are_listed() -> None:
    """Of more problems the first are listed, and the last entry counts the others."""
    *listed, last = problems(list[int], ["x"] * (MAX_PROBLEMS + 50))
    assert [problem.pointer for problem in listed] == [
        f"/{number}" for number in range(MAX_PROBLEMS)
    ]
    assert (last.pointer, "50" in last.detail) == ("", True)


def test_invalid_json_is_a_problem_of_the_whole_document() -> None:
    """The error of a JSON parser has the pointer of the whole document and a suggestion."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_json("{")
    (problem,) = to_problems(caught.value.errors(include_url=False), "{")
    assert (problem.pointer, bool(problem.suggestion)) == ("", True)
    assert "JSON" in problem.detail
