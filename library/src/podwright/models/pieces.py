"""What arrives in pieces, put together: fields of a message, and tool calls."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from podwright.json_data import as_object, is_set, to_text
from podwright.messages import ToolCall
from podwright.models.offline import estimate_tokens

_LABELS = ("type", "id", "index", "format", "name", "role", "object")
"""Keys that say what an object is: a further piece repeats them, and does not continue them."""
_CONTINUED = ("text", "thinking", "reasoning.text", "reasoning.summary")
"""Types of the items that go on in the next piece although they have no index."""
_REPETITION = 32
"""Characters from which a piece that is equal to all pieces before is these once more, and no continuation."""
_WHOLE = ("signature", "thought_signature", "data", "encrypted_content")
"""Keys whose text may be repeated although it came in one piece."""
_OWN_CALL_KEYS = ("id", "type", "index", "function")
_OWN_FUNCTION_KEYS = ("name", "arguments")


def merge_fields(pieces: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Further fields from their pieces: texts are appended, lists continued by index, and objects by key."""
    values: dict[str, list[Any]] = {}
    for piece in pieces:
        for key, value in piece.items():
            if value is not None:
                values.setdefault(key, []).append(value)
    return {key: _merged(key, found) for key, found in values.items()}


def _merged(key: str, values: list[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    # an empty text is how some providers end a list
    values = [value for value in values if value != ""] or values[:1]
    kinds = set(map(type, values))
    if kinds == {str}:
        return (
            next((value for value in reversed(values) if value), "")
            if key in _LABELS
            else _joined(key, values)
        )
    if kinds == {dict}:
        return merge_fields(values)
    if kinds == {list}:
        return merge_items(item for value in values for item in value)
    return values[-1]


def _joined(key: str, texts: Iterable[str]) -> str:
    parts: list[str] = []
    length = 0
    for text in texts:
        is_long = len(parts) > 1 or key in _WHOLE
        if is_long and len(text) == length >= _REPETITION and text == "".join(parts):
            continue
        parts.append(text)
        length += len(text)
    return "".join(parts)


@dataclass(slots=True)
class _PartialItem:
    index: Any
    type: Any
    pieces: list[Any]
    is_signed: bool
    """Whether a signature has ended it."""


def merge_items(pieces: Iterable[Any]) -> list[Any]:
    """The items of a list from their pieces, in the order in which they begin.

    A piece continues the item with its index, of the same type, because one provider numbers its items by type. Texts
    and thoughts go on without an index; a signature ends a thought.
    """
    items: list[_PartialItem] = []
    by_index: dict[tuple[str, str], _PartialItem] = {}
    for piece in pieces:
        fields = as_object(piece)
        index = fields.get("index")
        kind = fields.get("type")
        item: _PartialItem | None = None
        if index is not None:
            item = by_index.get((repr(index), "" if kind is None else repr(kind)))
        elif (
            items
            and items[-1].type in _CONTINUED
            and kind in (items[-1].type, None)
            and not items[-1].is_signed
        ):
            item = items[-1]
        if item is None:
            item = _PartialItem(index, kind, [], is_signed=False)
            items.append(item)
        if index is not None:
            by_index[repr(index), repr(item.type)] = item
            # the last one of this index, for pieces without a type
            by_index[repr(index), ""] = item
        item.pieces.append(piece)
        item.is_signed = item.is_signed or bool(fields.get("signature"))
    return [_merged("", item.pieces) for item in items]


class _PartialArguments:
    """Arguments that arrive in pieces, which are put together only when they are needed: each time takes longer."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.length = 0
        """Characters so far."""

    @property
    def text(self) -> str:
        """All pieces."""
        if len(self._pieces) != 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    @property
    def is_whole(self) -> bool:
        """Whether they are complete; `{}` may be how a gateway begins those that follow."""
        last = self._pieces[-1].rstrip() if self._pieces else ""
        if last and last[-1] not in '}"':  # as nearly always
            return False
        text = self.text.strip()
        return (
            text.endswith(("}", '}"')) and text != "{}" and _object_in(text) is not None
        )

    @property
    def is_begun(self) -> bool:
        """Whether they are cut off in the middle."""
        return self.text.strip() not in ("", "{}") and not self.is_whole

    def add(self, piece: str) -> None:
        """Add a piece."""
        if piece:
            self._pieces.append(piece)
            self.length += len(piece)


@dataclass(slots=True)
class _PartialCall:
    index: Any = None
    id: str = ""
    name: str = ""
    arguments: _PartialArguments = field(default_factory=_PartialArguments)
    fields: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    """The pieces of its further fields."""


class ToolCallPieces:
    """The tool calls of one answer, in whatever pieces they arrive."""

    def __init__(self) -> None:
        self._calls: list[_PartialCall] = []

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, piece: Any, *, whole: bool) -> None:
        """Add a piece, or a whole call.

        Args:
            piece: The JSON data of a tool call.
            whole: Whether it is one of a completion, and not of a stream.
        """
        function = as_object(piece.get("function"))
        id_ = str(piece.get("id") or "")
        name = to_text(function.get("name") or "")
        name = name if name.strip() else ""
        arguments = to_text(function.get("arguments") or "")
        call = None if whole else self._find(piece.get("index"), id_, name, arguments)
        if call is None:
            call = _PartialCall(piece.get("index"))
            self._calls.append(call)
        call.id = call.id or id_
        # some providers repeat the whole name in each piece
        if name.strip() != call.name.strip():
            call.name += name
        # and some the whole call at its end
        if not (_repeats(call, arguments) and call.arguments.is_whole):
            call.arguments.add(arguments)
        fields = {
            key: value for key, value in piece.items() if key not in _OWN_CALL_KEYS
        }
        if in_function := {
            key: value
            for key, value in function.items()
            if key not in _OWN_FUNCTION_KEYS
        }:
            fields["function"] = in_function
        if fields:
            call.fields.append(fields)

    def _find(
        self, index: Any, id_: str, name: str, arguments: str
    ) -> _PartialCall | None:
        """The call that a piece of a stream continues; None if it begins one.

        A piece belongs to the call of its id, else to that of its index, else to the last one. Only a piece with a
        name can begin a call beside others, and only if it does not continue one of them.
        """
        by_id = [call for call in self._calls if id_ and call.id == id_]
        by_index = [
            call for call in self._calls if index is not None and call.index == index
        ]
        same_id = [
            call for call in by_id if None in (index, call.index) or call.index == index
        ]
        if not name:
            # as nearly always
            if by_index and not by_id and by_index[-1] is self._calls[-1]:
                return by_index[-1]
            candidates = (
                same_id
                or by_id
                or [call for call in by_index if not call.arguments.is_whole]
                or self._calls
                or by_index
            )
            return candidates[-1] if candidates else None
        if same_id:
            last = same_id[-1]
            is_other = _begins_again(last, arguments) and not (
                last.index == index and _repeats(last, arguments)
            )
            return None if is_other else last
        last = (
            by_index[-1]
            if by_index
            else self._calls[-1]
            if index is None and self._calls
            else None
        )
        if last is None:
            return None
        goes_on = arguments.strip() != "" and not _begins_object(arguments)
        if goes_on and last.arguments.is_begun and name.strip() == last.name.strip():
            # some providers make a new id for each piece
            return last
        if not by_index or (id_ and last.id):
            return None
        is_other = _begins_again(last, arguments) or (
            last.arguments.is_whole and not arguments
        )
        return None if is_other else last

    def estimate(self) -> int:
        """An estimate of the tokens of the calls."""
        return sum(
            estimate_tokens(call.name + call.arguments.text) for call in self._calls
        )

    def has_nameless(self) -> bool:
        """Whether a call has no name."""
        return any(not call.name.strip() for call in self._calls)

    def tool_calls(self) -> Iterator[ToolCall]:
        """The calls, each with an id of its own, so that each result belongs to one call."""
        ids = {""}
        for call in self._calls:
            id_ = f"call_{os.urandom(8).hex()}" if call.id in ids else call.id
            ids.add(id_)
            fields = {
                key: value
                for key, value in merge_fields(call.fields).items()
                if is_set(value)
            }
            yield ToolCall(
                id_, call.name.strip(), clean_arguments(call.arguments.text), fields
            )


def _begins_again(call: _PartialCall, arguments: str) -> bool:
    """Whether arguments are those of another call with the same id or index, and not a continuation."""
    if not _begins_object(arguments):
        return False
    return call.arguments.is_whole or (
        arguments.strip() == "{}" and call.arguments.text.strip() == "{}"
    )


def _repeats(call: _PartialCall, arguments: str) -> bool:
    """Whether arguments are those that the call has, perhaps encoded once more."""
    # to encode a text once more makes it twice as long at most
    if not _begins_object(arguments) or 2 * len(arguments) + 2 < call.arguments.length:
        return False
    text = call.arguments.text
    return arguments.strip() == text.strip() or clean_arguments(
        arguments
    ) == clean_arguments(text)


def _begins_object(arguments: str) -> bool:
    return arguments.lstrip().startswith(("{", '"{'))


def clean_arguments(text: str) -> str:
    """The arguments of a tool call as the JSON text of an object, if it is certain what they are; else as they came.

    No arguments at all, `null` and `[]` are an empty object. JSON text may be encoded once more, and gateways put an
    empty object before the arguments or write them twice.
    """
    stripped = text.strip()
    if stripped in ("", "null", "[]"):
        return "{}"
    found = _object_in(stripped)
    if found is None and (found := _first_object(stripped)) is None:
        return text
    if isinstance(found, str):
        return found
    return stripped


def _object_in(text: str) -> dict[str, Any] | str | None:
    """The object that a JSON text is; its text if it is encoded once more; None if it is none."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(data, str):
        inner = clean_arguments(data)
        with suppress(ValueError, RecursionError):
            return inner if isinstance(json.loads(inner), dict) else None
        return None
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None


def _first_object(text: str) -> str | None:
    """The text of the only object in a row of those that are empty or equal; None if there is no such row.

    Each may be encoded once more, and an empty one may be `null`.
    """
    decoder = json.JSONDecoder()
    found: dict[str, str] = {}
    rest = text
    while rest:
        try:
            data, end = decoder.raw_decode(rest)
            part = rest[:end]
            if isinstance(data, str):
                part = data.strip()
                data = json.loads(part)
        except (ValueError, RecursionError):
            return None
        if not isinstance(data, dict) and data not in (None, []):
            return None
        found[json.dumps(data or {}, sort_keys=True)] = part
        rest = rest[end:].lstrip()
    filled = [part for key, part in found.items() if key != "{}"]
    return filled[0] if len(filled) == 1 else "{}" if not filled else None
