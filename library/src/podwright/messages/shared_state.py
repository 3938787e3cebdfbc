"""The state of a run: JSON data by name that its functions share, and what a call has changed of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    copy_json,
    to_exact_json_data,
    to_json_bytes,
)
from podwright.data.text import short_repr

MAX_STATE = 512 * 1024
"""Bytes of a state as JSON: what a caller carries of a stopped run, sealed, has to fit into the body of a request."""


MAX_NAMES = 1_000
"""Names in a state: at the end of each call of a function, the event loop looks at the value of each."""
NOTHING: JsonMapping = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StateChange:
    """What a call has changed in the state of its run."""

    written: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The values that are new, by name."""
    removed: tuple[str, ...] = ()
    """The names that are gone."""

    def apply(self, values: JsonObject) -> None:
        """Change values in the same way."""
        for name in self.removed:
            values.pop(name, None)
        values.update(copy_json(dict(self.written)))


class SharedState:
    """The state of one run and of all runs nested in it.

    Functions change the values as they like; what has changed is found out at the end of each call.

    Args:
        values: The values to begin with.
        changes: What earlier attempts of the run have changed since, in order.
    """

    def __init__(
        self,
        values: JsonMapping = NOTHING,
        changes: Iterable[StateChange] = (),
    ) -> None:
        self.values: JsonObject = copy_json(dict(values))
        """What functions are given."""
        for change in changes:
            change.apply(self.values)
        self._recorded = {
            name: to_json_bytes(value) for name, value in self.values.items()
        }
        """The values as they were last recorded, by name."""
        self._size = sum(map(_size_of, self._recorded.items()))
        self._written: JsonObject = {}
        self._removed: dict[str, None] = {}

    def settle(self) -> str:
        """Note what has changed; a value that cannot be kept becomes what it was before.

        Returns:
            What is wrong with such a value; empty if there is none.
        """
        problem = ""
        # copies, because functions in threads may change the values meanwhile
        values = self.values.copy()
        for name in [*self._recorded]:
            if name not in values:
                self._size -= _size_of((name, self._recorded.pop(name)))
                self._written.pop(name, None)
                self._removed[name] = None
        for name, value in values.items():
            problem = self._settle_value(name, value) or problem
        return problem

    def _settle_value(self, name: Any, value: Any) -> str:
        recorded = self._recorded.get(name)
        size = self._size
        try:
            text = _to_json(name, value)
            size += _size_of((name, text))
            if recorded is not None:
                size -= _size_of((name, recorded))
            if size > MAX_STATE:
                raise ValueError(f"the state has more than {MAX_STATE} bytes")
            if recorded is None and len(self._recorded) == MAX_NAMES:
                raise ValueError(f"the state has more than {MAX_NAMES} names")
        except (TypeError, ValueError, RecursionError) as error:
            self.values.pop(name, None)
            if recorded is not None:
                self.values[name] = json.loads(recorded)
            return f"the value of {short_repr(name, 60)} in the state of the run cannot be kept: {error}"
        if text != recorded:
            self._size = size
            self._recorded[name] = text
            self._written[name] = json.loads(text)
            self._removed.pop(name, None)
        return ""

    def take_change(self) -> StateChange | None:
        """Return what has changed since it was last asked for; None if nothing has."""
        self.settle()
        if not self._written and not self._removed:
            return None
        change = StateChange(self._written, tuple(self._removed))
        self._written = {}
        self._removed = {}
        return change

    def to_data(self) -> JsonObject:
        """Return a copy of the values."""
        self.settle()
        return {name: json.loads(text) for name, text in self._recorded.items()}


def _size_of(entry: tuple[str, bytes]) -> int:
    name, text = entry
    return len(name) + len(text)


def _to_json(name: object, value: Any) -> bytes:
    """A value as JSON that is read as the same value.

    Raises:
        TypeError, ValueError, RecursionError: It is no JSON data.
    """
    if not isinstance(name, str):
        raise TypeError("its name is not a text")
    name.encode()
    data = to_exact_json_data(value)
    if data != value:
        # perhaps a function in a thread has changed it meanwhile
        value = _snapshot(value)
        data = to_exact_json_data(value)
    if data != value:
        raise TypeError(f"{short_repr(value)} is not JSON data")
    return to_json_bytes(data)


def _snapshot(value: Any) -> Any:
    """A copy of lists and dictionaries, each of which is copied in one step."""
    if type(value) is dict:
        members = cast("JsonObject", value)
        return {key: _snapshot(item) for key, item in members.copy().items()}
    if type(value) is list:
        return [_snapshot(item) for item in cast("list[Any]", value).copy()]
    return value
