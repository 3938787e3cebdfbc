"""The JSON form of values of any type, those of numpy, pandas and the like among them, and text that is UTF-8.

Packages that may not be installed are not imported: their values are recognized by the methods that they document.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
    ValuesView,
)
from datetime import datetime
from enum import Enum
from types import SimpleNamespace
from typing import Any, cast

from pydantic_core import to_jsonable_python

from podwright.data.text import describe_error

MAX_DESCRIPTION = 1_000
"""Characters of the text of a value that has no JSON form."""
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")
_MISSING_TYPES = ("NAType", "NaTType")
"""Types of pandas.NA and pandas.NaT."""
_FINE_UNITS = ("[ns]", "[ps]", "[fs]", "[as]")
"""Units in which numpy's times are integers in Python, because `datetime` has microseconds only."""
_BYTES = (bytes, bytearray)
_NO_FORM = object()
_Describe = Callable[[object], Any]
"""Gives what stands for a value without a JSON form, or raises an error."""


class NoJsonFormError(TypeError):
    """A value has no JSON form."""


def to_json_form(value: object, describe: _Describe) -> Any:
    """The value as JSON data.

    Pydantic models, dataclasses and mappings become objects, sequences, sets and arrays lists, tables lists with an
    object for each row, and numbers of numpy numbers. What is missing in arrays and tables is null.

    Args:
        value: The value.
        describe: Called with each value that has no JSON form, such as an object of an unknown class, an infinite
            number, or bytes that are not UTF-8; see `described` and `refused`.

    Raises:
        ValueError: The value refers to itself.
        RecursionError: It is nested too deeply.
    """
    walk = _Walk(describe)
    try:
        # much faster than the walk, which is for what pydantic refuses as a whole
        data = to_jsonable_python(value, fallback=walk.unknown)
        json.dumps(data, allow_nan=False)
    except (TypeError, ValueError):
        return walk.convert(value)
    return data


def described(value: object) -> str:
    """A sentence in place of a value that has no JSON form; NaN and infinities by their names in JavaScript."""
    if isinstance(value, float):
        return json.dumps(float(value))
    name = type(value).__name__
    if isinstance(value, _BYTES):
        return f"({len(value):,} bytes that are not UTF-8 text)"
    text = _own_text(value)
    if not text:
        return f"(a value of the type '{name}', which has no JSON form)"
    shown = text[:MAX_DESCRIPTION]
    subject = "its text"
    if shown != text:
        subject = f"the first {MAX_DESCRIPTION:,} of {len(text):,} characters of its text"
    return f"(a value of the type '{name}', which has no JSON form; {subject}: {shown})"


def refused(value: object) -> Any:
    """Refuse a value that has no JSON form.

    Raises:
        NoJsonFormError: Always; with a description of the value.
    """
    raise NoJsonFormError(described(value))


def to_utf8_text(text: str) -> str:
    """The text without halves of surrogate pairs: two that belong together are one character, others U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        encoded = text.encode("utf-16-le", "surrogatepass")
        return encoded.decode("utf-16-le", "replace")
    return text


def to_utf8_data(data: Any) -> Any:
    """JSON data without halves of surrogate pairs in its texts and keys; see `to_utf8_text`."""
    text = json.dumps(data, ensure_ascii=False)
    whole = to_utf8_text(text)
    if whole == text:
        return data
    return json.loads(whole)


def _own_text(value: object) -> str:
    """The text of a value whose class says it; empty if it has none, or one with a memory address."""
    if isinstance(value, BaseException):
        return describe_error(value)
    own = type(value)
    if own.__str__ is object.__str__ and own.__repr__ is object.__repr__:
        return ""
    text = _try(str, value)
    if text is _NO_FORM or _ADDRESS.search(text):
        return ""
    return text


class _Walk:
    """Converts values one by one.

    Args:
        describe: See `to_json_form`.
    """

    def __init__(self, describe: _Describe) -> None:
        self._describe = describe
        self._above: set[int] = set()
        """Ids of the values that this one is inside of."""

    def convert(self, value: object) -> Any:
        """The JSON form of a value.

        Raises:
            ValueError: It is inside of itself.
        """
        key = id(value)
        if key in self._above:
            raise ValueError("Circular reference")
        # None, small integers and the like are one object each
        if value is None or isinstance(value, str | int | float):
            return self._convert(value)
        self._above.add(key)
        try:
            return self._convert(value)
        finally:
            self._above.discard(key)

    def _convert(self, value: object) -> Any:
        match value:
            case None | bool():
                return value
            case Enum():
                return self.convert(value.value)
            case str():
                return str.__str__(value)
            case int():
                return int(value)
            case float():
                return self._number(value)
            case Mapping():
                return self._object(cast("Mapping[Any, Any]", value))
            case list() | tuple() | Set():
                items = cast("Sequence[Any]", value)
                return [self.convert(item) for item in items]
            case _ if _has(value, "model_dump"):
                return self._model(value)
            case Iterator():
                # pydantic may have read it up
                return self._describe(cast("object", value))
            case _ if dataclasses.is_dataclass(value):
                return self._dataclass(value)
            case _:
                return self._leaf(value)

    def unknown(self, value: object) -> Any:
        """The JSON form of a value of a type that pydantic does not know."""
        data = foreign_data(value)
        if data is _NO_FORM:
            return self._describe(value)
        return self._convert(data)

    def _number(self, value: float) -> Any:
        number = float(value)
        if math.isfinite(number):
            return number
        # numpy and pandas write NaN for what is missing
        if math.isnan(number) and type(value) is not float:
            return None
        return self._describe(number)

    def _object(self, mapping: Mapping[Any, Any]) -> dict[str, Any]:
        return {
            self._key(key): self.convert(value)
            for key, value in mapping.items()
        }

    def _key(self, key: object) -> str:
        if isinstance(key, str):
            return self.convert(key)
        form = self.convert(key)
        if isinstance(form, str):
            return form
        if isinstance(form, list):
            return ",".join(map(self._key, cast("list[Any]", form)))
        if isinstance(form, dict):
            return self._describe(key)
        # as pydantic writes it
        return next(iter(to_jsonable_python({form: None})))

    def _model(self, model: Any) -> Any:
        try:
            data = to_jsonable_python(model, fallback=self.unknown)
            json.dumps(data, allow_nan=False)
        except NoJsonFormError:
            raise
        except (TypeError, ValueError):
            return self.convert(model.model_dump(warnings=False))
        return data

    def _dataclass(self, value: Any) -> Any:
        if isinstance(value, type):
            return self._describe(value)
        return {
            field.name: self.convert(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }

    def _leaf(self, value: object) -> Any:
        try:
            return to_jsonable_python(value)
        except (TypeError, ValueError):
            return self.unknown(value)


def foreign_data(value: object) -> Any:
    """Data of Python in place of a table, an array or a number of another package, or of a collection."""
    if _is_missing(value):
        return None
    conversions = (_collection_data, _table_data, _series_data, _array_data)
    for convert in conversions:
        data = _try(convert, value)
        # some numbers are those of numpy again
        if data is not _NO_FORM and type(data) is not type(value):
            return data
    return _NO_FORM


def _try(convert: Callable[[Any], Any], value: object) -> Any:
    """The data of a value; a method of the name that is looked for may be anything."""
    try:
        return convert(value)
    except Exception:  # noqa: BLE001 - the methods of a caller's class may raise anything
        return _NO_FORM


def _is_missing(value: object) -> bool:
    """Whether it is pandas.NaT or pandas.NA, or another date that is none."""
    if type(value).__name__ in _MISSING_TYPES:
        return True
    return isinstance(value, datetime) and value != value  # noqa: PLR0124 - as with NaN


def _has(value: object, *methods: str) -> bool:
    """Whether the class of a value has all of these methods or properties; its attributes may be made up by itself."""
    return all(hasattr(type(value), method) for method in methods)


def _table_data(value: Any) -> Any:
    """The rows of a table: of polars, pyarrow, or pandas."""
    if _has(value, "to_dicts"):
        return _with_null(value.to_dicts())
    if _has(value, "to_pylist"):
        return _with_null(value.to_pylist())
    if not _has(value, "to_dict") or not hasattr(value, "columns"):
        return _NO_FORM
    if _has_labels(value):
        labels = value.index.names
        if not set(labels) & set(value.columns):
            return _table_data(value.reset_index())
        columns = [*labels, *value.columns]
        return _rows(columns, value.itertuples(name=None))
    if not getattr(value.columns, "is_unique", True):
        rows = value.itertuples(index=False, name=None)
        return _rows([*value.columns], rows)
    return _with_null(value.to_dict(orient="records"))


def _rows(columns: list[Any], rows: Iterable[Any]) -> Any:
    """A table of which columns have the same name, which the keys of an object cannot."""
    return {"columns": columns, "rows": _with_null([*rows])}


def _series_data(value: Any) -> Any:
    """The values of a column: of pandas, by label if it has labels, or of polars."""
    if _has(value, "to_list", "to_dict") and hasattr(value, "index"):
        if not _has_labels(value):
            return _with_null(value.to_list())
        if value.index.is_unique:
            return _with_null(value.to_dict())
        return _table_data(value.reset_index())
    if _has(value, "to_list"):
        return _with_null(value.to_list())
    return _NO_FORM


def _has_labels(value: Any) -> bool:
    """Whether the rows of a table of pandas have labels, and not only numbers."""
    index = getattr(value, "index", None)
    return index is not None and type(index).__name__ != "RangeIndex"


def _array_data(value: Any) -> Any:
    """The items of an array, or the number: of numpy, PyTorch and others."""
    dtype = getattr(value, "dtype", None)
    fields = getattr(dtype, "names", None)
    if fields:
        if getattr(value, "ndim", 0):
            return list(value)
        return {name: value[name] for name in fields}
    if getattr(dtype, "kind", "") in ("m", "M") and str(dtype).endswith(
        _FINE_UNITS
    ):
        value = value.astype(f"{cast('Any', dtype).kind}8[us]")
    for method in ("tolist", "item"):
        if _has(value, method):
            return _with_null(getattr(value, method)())
    return _NO_FORM


def _collection_data(value: object) -> Any:
    """The members of a collection, or the text of a path, that pydantic does not know."""
    match value:
        case SimpleNamespace():
            return vars(value)
        case os.PathLike():
            return os.fspath(cast("os.PathLike[str]", value))
        case memoryview():
            return bytes(cast("memoryview[int]", value))
        case Mapping():
            return dict(cast("Mapping[Any, Any]", value))
        case Sequence() | Set() | ValuesView() if not isinstance(value, _BYTES):
            return list(cast("Sequence[Any]", value))
        case _:
            return _NO_FORM


def _with_null(data: Any) -> Any:
    """What another package has written, with null for numbers and dates that are missing."""
    if data is None or type(data) in (str, int, bool):
        return data
    if isinstance(data, dict):
        members = cast("dict[Any, Any]", data)
        return {key: _with_null(item) for key, item in members.items()}
    if isinstance(data, list | tuple):
        return [_with_null(item) for item in cast("list[Any]", data)]
    if (isinstance(data, float) and math.isnan(data)) or _is_missing(data):
        return None
    return data
