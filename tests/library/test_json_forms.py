"""The JSON form of what functions return, in every place where a function may return it."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import types
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from podwright import (
    Agent,
    FunctionAgent,
    FunctionStep,
    ScriptedModel,
    Workflow,
)
from podwright.data.json_data import to_json_data
from podwright.errors import ToolError
from podwright.testing import ToolCall

NAN = float("nan")


# --- Stand-ins for other packages, with the methods that these document ---------------------------------------------


class DType:
    """The type of the items of an array."""

    def __init__(self, kind: str, text: str = "", *names: str) -> None:
        self.kind = kind
        self.names = names or None
        self._text = text

    def __str__(self) -> str:
        return self._text


class Scalar:
    """A number of numpy, which is no number of Python."""

    def __init__(self, value: Any, dtype: DType | None = None) -> None:
        self._value = value
        self.dtype = dtype or DType("i")

    def item(self) -> Any:
        return self._value

    tolist = item

    def __repr__(self) -> str:
        return f"np.int64({self._value})"


class Float64(float):
    """`numpy.float64` is a float."""


class Array:
    """An array of numpy or a tensor of PyTorch."""

    def __init__(self, *items: Any, dtype: DType | None = None) -> None:
        self._items = items
        self.dtype = dtype or DType("f")

    def tolist(self) -> list[Any]:
        return list(self._items)

    def item(self) -> Any:
        raise ValueError("only an array of one item")

    def astype(self, dtype: str) -> Array:
        assert dtype == "M8[us]"
        moments = [
            None
            if item is None
            else datetime.datetime(1970, 1, 1 + item, tzinfo=datetime.UTC)
            for item in self._items
        ]
        return Array(*moments, dtype=DType("M", "datetime64[us]"))

    def __str__(self) -> str:
        return "[1 2 ... 9]"


class Record:
    """An item of a structured array."""

    dtype = DType("V", "", "x", "y")

    def __getitem__(self, name: str) -> Any:
        return {"x": Scalar(1), "y": "a"}[name]

    def item(self) -> Any:
        return (1, "a")


class NotATime(datetime.datetime):
    """`pandas.NaT` is a datetime without a year, and is not equal to itself."""

    @property
    def year(self) -> Any:
        return NAN

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = datetime.datetime.__hash__


NOT_A_TIME = NotATime(2020, 1, 1, tzinfo=datetime.UTC)


class NAType:
    """`pandas.NA`, which is neither equal to itself nor different."""

    def __ne__(self, other: object) -> Any:
        raise TypeError("boolean value of NA is ambiguous")


class RangeIndex:
    """The numbers of rows, without meaning."""

    names = (None,)


class Labels:
    """The labels of rows."""

    def __init__(self, *names: str, is_unique: bool = True) -> None:
        self.names = names
        self.is_unique = is_unique


class Columns(list[str]):
    """The names of columns."""

    @property
    def is_unique(self) -> bool:
        return len(set(self)) == len(self)


class Frame:
    """A DataFrame of pandas."""

    def __init__(
        self,
        columns: list[str],
        *rows: tuple[Any, ...],
        labels: list[str] | None = None,
    ) -> None:
        self.columns = Columns(columns)
        self._rows = rows
        self._labels = labels
        self.index = RangeIndex() if labels is None else Labels("key")

    def to_dict(self, orient: str = "dict") -> Any:
        assert orient == "records"
        return [dict(zip(self.columns, row, strict=True)) for row in self._rows]

    def reset_index(self) -> Frame:
        assert self._labels is not None
        rows = zip(self._labels, self._rows, strict=True)
        return Frame(
            ["key", *self.columns], *[(label, *row) for label, row in rows]
        )

    def itertuples(
        self, *, index: bool = True, name: str | None = None
    ) -> Iterator[tuple[Any, ...]]:
        if index and self._labels is not None:
            pairs = zip(self._labels, self._rows, strict=True)
            return iter([(label, *row) for label, row in pairs])
        return iter(self._rows)

    def __str__(self) -> str:
        return "0\n..\n99"


class Series:
    """A Series of pandas."""

    def __init__(self, *values: Any, labels: Labels | None = None) -> None:
        self._values = values
        self.index = labels or RangeIndex()

    def to_list(self) -> list[Any]:
        return list(self._values)

    def to_dict(self) -> dict[Any, Any]:
        return dict(zip("ab", self._values, strict=True))

    def reset_index(self) -> Frame:
        rows = [("a", value) for value in self._values]
        return Frame(["index", "value"], *rows)


class PolarsFrame:
    """A DataFrame of polars."""

    columns = ("a",)

    def to_dict(self, *, as_series: bool = True) -> Any:
        return {"a": object()}

    def to_dicts(self) -> list[dict[str, Any]]:
        return [{"a": 1}, {"a": None}]


class ArrowTable:
    """A table of pyarrow."""

    def to_pylist(self) -> list[dict[str, Any]]:
        return [{"a": 1}]


# --- Values ---------------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    """An enumeration."""

    RED = "red"


class Size(enum.StrEnum):
    """An enumeration of texts."""

    SMALL = "s"


class Level(enum.IntEnum):
    """An enumeration of numbers."""

    LOW = 1


class Pair(NamedTuple):
    """A tuple with names."""

    a: int
    b: Any


@dataclasses.dataclass
class Holder:
    """A dataclass."""

    value: Any


class Model(BaseModel):
    """A pydantic model."""

    value: Any


FORMS: dict[str, tuple[Callable[[], Any], Any]] = {
    "nothing inside": (lambda: [None], [None]),
    "a text": (lambda: "é\n", "é\n"),
    "an integer": (lambda: 3, 3),
    "a large integer": (lambda: 2**70, 2**70),
    "a number": (lambda: 2.5, 2.5),
    "true": (lambda: True, True),
    "zero": (lambda: 0, 0),
    "an empty list": (list, []),
    "an empty object": (dict, {}),
    "a tuple": (lambda: (1, (2,)), [1, [2]]),
    "a set": (lambda: {1}, [1]),
    "a frozen set": (lambda: frozenset("a"), ["a"]),
    "a range": (lambda: range(3), [0, 1, 2]),
    "a deque": (lambda: collections.deque([1]), [1]),
    "a counter": (lambda: collections.Counter("aa"), {"a": 2}),
    "a mapping": (lambda: types.MappingProxyType({"a": 1}), {"a": 1}),
    "a namespace": (lambda: types.SimpleNamespace(a=1), {"a": 1}),
    "keys": ({"a": 1}.keys, ["a"]),
    "values": ({"a": 1}.values, [1]),
    "a user's list": (lambda: collections.UserList([1]), [1]),
    "a named tuple": (lambda: Pair(1, Scalar(2)), [1, 2]),
    "an enumeration": (lambda: Colour.RED, "red"),
    "an enumeration of texts": (lambda: Size.SMALL, "s"),
    "an enumeration of numbers": (lambda: Level.LOW, 1),
    "a decimal": (lambda: decimal.Decimal("1.10"), "1.10"),
    "a date": (lambda: datetime.date(2020, 1, 2), "2020-01-02"),
    "a time": (lambda: datetime.time(3, 4), "03:04:00"),
    "a moment": (
        lambda: datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
        "2020-01-02T00:00:00Z",
    ),
    "a duration": (lambda: datetime.timedelta(hours=1), "PT1H"),
    "a UUID": (lambda: uuid.UUID(int=1), str(uuid.UUID(int=1))),
    "a path": (lambda: pathlib.PurePosixPath("/a"), "/a"),
    "bytes": ("é".encode, "é"),
    "a view of bytes": (lambda: memoryview(b"x"), "x"),
    "a complex number": (lambda: 1 + 2j, "1+2j"),
    "a dataclass": (lambda: Holder(Scalar(1)), {"value": 1}),
    "a model": (lambda: Model(value=Scalar(1)), {"value": 1}),
    "a missing date in a dataclass": (
        lambda: Holder(NOT_A_TIME), {"value": None},
    ),
    "a missing date in a model": (
        lambda: Model(value=[NOT_A_TIME]), {"value": [None]},
    ),
    "a generator": (lambda: [(number for number in (1, 2))], [[1, 2]]),
    "a number as key": (lambda: {1: "a"}, {"1": "a"}),
    "a number of numpy as key": (lambda: {Scalar(1): "a"}, {"1": "a"}),
    "an integer of numpy": (lambda: Scalar(3), 3),
    "a boolean of numpy": (lambda: Scalar(True), True),
    "a float of numpy": (lambda: Float64(2.5), 2.5),
    "a missing float of numpy": (lambda: {"x": Float64("nan")}, {"x": None}),
    "an array": (lambda: Array(1.0, NAN, [NAN]), [1.0, None, [None]]),
    "an array of objects": (lambda: Array(Scalar(1), "a"), [1, "a"]),
    "an array of moments": (
        lambda: Array(1, None, dtype=DType("M", "datetime64[ns]")),
        ["1970-01-02T00:00:00Z", None],
    ),
    "a record": (Record, {"x": 1, "y": "a"}),
    "missing": (lambda: [NAType(), NOT_A_TIME], [None, None]),
    "a frame": (
        lambda: Frame(["a", "b"], (Scalar(1), NAN), (2, NAType())),
        [{"a": 1, "b": None}, {"a": 2, "b": None}],
    ),
    "a frame without rows": (lambda: Frame(["a"]), []),
    "a frame with labels": (
        lambda: Frame(["a"], (1,), labels=["x"]), [{"key": "x", "a": 1}],
    ),
    "a frame with a label that is a column": (
        lambda: Frame(["key"], (1,), labels=["x"]),
        {"columns": ["key", "key"], "rows": [["x", 1]]},
    ),
    "a frame with a column twice": (
        lambda: Frame(["a", "a"], (1, 2)),
        {"columns": ["a", "a"], "rows": [[1, 2]]},
    ),
    "a series": (lambda: Series(1, NAN), [1, None]),
    "a series with labels": (
        lambda: Series(1, NAN, labels=Labels("k")), {"a": 1, "b": None},
    ),
    "a series with a label twice": (
        lambda: Series(1, 2, labels=Labels("k", is_unique=False)),
        [{"index": "a", "value": 1}, {"index": "a", "value": 2}],
    ),
    "a frame of polars": (PolarsFrame, [{"a": 1}, {"a": None}]),
    "a table of pyarrow": (ArrowTable, [{"a": 1}]),
    "half a character": (lambda: "a\ud83d", "a\ufffd"),
    "two halves": (lambda: "\ud83d\ude00", "\U0001f600"),
    "the second half": (lambda: ["\ude00b"], ["\ufffdb"]),
    "half a character in a key": (lambda: {"a\ud83d": 1}, {"a\ufffd": 1}),
    "half a character in a model": (
        lambda: Model(value={"\udc80": "\udc80"}),
        {"value": {"\ufffd": "\ufffd"}},
    ),
}  # fmt: skip
"""Values that have a JSON form, and that form."""


class Opaque:
    """An object without a text."""


class Shown:
    """An object with a text of its own."""

    def __str__(self) -> str:
        return "Shown by itself"


async def never() -> None:
    """Return nothing."""


def coroutine() -> Any:
    """A coroutine that nobody awaits, and that does not warn of it."""
    waiting = never()
    waiting.close()
    return [waiting]


WITHOUT_FORM: dict[str, tuple[Callable[[], Any], str]] = {
    "an object": (lambda: [Opaque()], "Opaque"),
    "an object with a text": (lambda: [Shown()], "Shown by itself"),
    "a function": (lambda: [never], "function"),
    "a method": (lambda: [Shown().__str__], "method"),
    "a class": (lambda: [Opaque], "Opaque"),
    "a coroutine": (coroutine, "coroutine"),
    "an exception": (lambda: [ValueError("wrong")], "wrong"),
    "bytes that are no text": (lambda: [b"\xff\xfe\xfd"], "3 bytes"),
    "an object as key": (lambda: {Opaque(): 1}, "Opaque"),
    "an infinite number of numpy": (lambda: Array(-float("inf")), "-Infinity"),
    "an object in an array": (lambda: Array(Opaque()), "Opaque"),
}  # fmt: skip
"""Values that have no JSON form, and what a model is told of them."""


def alone(value: Any) -> Any:
    return value


def in_list(value: Any) -> Any:
    return [value]


def in_object(value: Any) -> Any:
    return {"x": {"y": value}}


def in_dataclass(value: Any) -> Any:
    return Holder(value)


def in_model(value: Any) -> Any:
    return Model(value=value)


PLACES: tuple[tuple[Callable[[Any], Any], Callable[[Any], Any]], ...] = (
    (alone, alone),
    (in_list, in_list),
    (in_object, in_object),
    (in_dataclass, lambda form: {"value": form}),
    (in_model, lambda form: {"value": form}),
)
"""Where in a result the value is, and what that is in JSON."""


def from_tool(function: Callable[..., Any]) -> str:
    """What a model is told of a result."""
    model = ScriptedModel(
        ToolCall.of("get"), lambda request: request.messages[-1].text
    )
    return Agent("guide", "Help.", model, tools=[function]).run("x")


def from_step(function: Callable[..., Any]) -> Any:
    """What a workflow has of a result."""
    step = FunctionStep(function, output="result")
    result = Workflow("flow", [step]).run("x", trace=True)
    if result.data is None:
        return result.value["result"]
    return result.data["result"]


def from_agent(function: Callable[..., Any]) -> Any:
    """The answer of an agent that is a function."""
    return FunctionAgent("helper", lambda task: function()).run("x")


def both_kinds(make: Callable[[], Any]) -> tuple[Callable[..., Any], ...]:
    """Functions that return a value: a blocking and an async one."""

    def get() -> Any:
        """Get."""
        return make()

    async def get_later() -> Any:
        """Get."""
        await asyncio.sleep(0)
        return make()

    get_later.__name__ = "get"
    return get, get_later


@pytest.mark.parametrize("name", FORMS)
def test_a_value_has_one_json_form(name: str) -> None:
    """Tools, steps and agents, async or not, have the same form of a value, wherever it is in the result."""
    make, form = FORMS[name]
    for put, put_form in PLACES:
        expected = put_form(form)
        for get in both_kinds(lambda put=put: put(make())):
            text = from_tool(get)
            if isinstance(expected, str):
                # a string is shown as it is, and others that become one are quoted
                assert text in (
                    expected,
                    json.dumps(expected, ensure_ascii=False),
                )
            else:
                assert json.loads(text) == expected
            assert from_step(get) == expected
        assert from_agent(lambda put=put: put(make())) == expected


@pytest.mark.parametrize("name", WITHOUT_FORM)
def test_a_value_without_a_form_is_described(name: str) -> None:
    """A model reads a sentence, without memory addresses; steps and agents fail."""
    make, words = WITHOUT_FORM[name]
    for put, _ in PLACES:
        for get in both_kinds(lambda put=put: put(make())):
            text = from_tool(get)
            assert words in text
            assert " at 0x" not in text
            with pytest.raises(ToolError):
                from_step(get)
        with pytest.raises(ToolError):
            from_agent(lambda put=put: put(make()))


def test_numbers_that_json_lacks() -> None:
    """Python's own NaN and infinities are named for a model, and an error of a step."""
    for number, name in ((NAN, "NaN"), (-float("inf"), "-Infinity")):
        for get in both_kinds(lambda number=number: {"x": [number]}):
            assert json.loads(from_tool(get)) == {"x": [name]}
            with pytest.raises(ToolError):
                from_step(get)


def test_all_rows_or_a_sentence() -> None:
    """No row of a table is left out without a word."""
    rows = [(number,) for number in range(1000)]
    shown = from_tool(both_kinds(lambda: Frame(["a"], *rows))[0])
    assert json.loads(shown)[-1] == {"a": 999}
    many = rows * 100
    shown = from_tool(both_kinds(lambda: Frame(["a"], *many))[0])
    assert "was cut" in shown.splitlines()[-1]


def test_a_long_text_of_an_object_says_that_it_is_cut() -> None:
    """The sentence about an object says how much of its text it has."""

    class Long:
        def __repr__(self) -> str:
            return "x" * 5000

    sentence = to_json_data(Long())
    assert len(sentence) < 1200
    assert "1,000 of 5,000" in sentence


def test_an_object_that_makes_everything_up() -> None:
    """Attributes that an object invents, and methods that fail, are no interface."""

    class Everything:
        def __getattr__(self, name: str) -> Any:
            return lambda *args, **kwargs: [name]

    class Failing:
        def tolist(self) -> Any:
            raise RuntimeError

        def to_dict(self) -> Any:
            raise RuntimeError

    class Endless:
        def item(self) -> Any:
            return self

    for value in (Everything(), Failing(), Endless()):
        assert type(value).__name__ in to_json_data(value)


def test_an_awaitable_of_a_blocking_function_is_awaited() -> None:
    """A function that returns a coroutine or an async generator gives what that gives."""

    async def later() -> int:
        return 3

    async def pieces() -> Any:
        yield 1
        yield 2

    for make, form in ((later, 3), (pieces, [1, 2])):
        get, _ = both_kinds(make)
        assert json.loads(from_tool(get)) == form
        assert from_step(get) in (form, json.dumps(form))
