"""What arrives in pieces, put together: fields of a message, and tool calls."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    is_set,
    to_text,
)
from podwright.data.model_json import clean_arguments, is_object
from podwright.messages.messages import ToolCall
from podwright.models.offline.offline import estimate_tokens

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


def merge_fields(pieces: Iterable[JsonMapping]) -> JsonObject:
    """Further fields from their pieces: texts are appended, lists continued by index, and objects by key."""
    values: dict[str, list[Any]] = {}
    for piece in pieces:
        for key, value in piece.items():
            if value is not None:
                values.setdefault(key, []).append(value)
    return {key: _merged(key, found) for key, found in values.items()}


def text_field(fields: JsonMapping, key: str) -> str:
    """A field as a text; empty if there is none."""
    return to_text(fields.get(key) or "")


def set_fields(fields: JsonMapping) -> JsonObject:
    """Those of the fields that have a value."""
    return {key: value for key, value in fields.items() if is_set(value)}


def _merged(key: str, values: list[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    # an empty text is how some providers end a list
    filled = [value for value in values if value != ""]
    if not filled:
        return ""
    kinds = set(map(type, filled))
    if kinds == {dict}:
        return merge_fields(filled)
    if kinds == {list}:
        return merge_items(chain.from_iterable(filled))
    if kinds == {str} and key not in _LABELS:
        return _joined(key, filled)
    return filled[-1]


def _joined(key: str, texts: Iterable[str]) -> str:
    parts: list[str] = []
    length = 0
    for text in texts:
        may_repeat = len(parts) > 1 or key in _WHOLE
        is_as_long = len(text) == length
        if may_repeat and is_as_long and _is_repetition(text, parts):
            continue
        parts.append(text)
        length += len(text)
    return "".join(parts)


def _is_repetition(text: str, parts: Iterable[str]) -> bool:
    if len(text) < _REPETITION:
        return False
    return text == "".join(parts)


@dataclass(slots=True)
class _PartialItem:
    type: Any
    pieces: list[Any] = field(default_factory=list[Any])
    is_signed: bool = False
    """Whether a signature has ended it."""

    def add(self, piece: Any) -> None:
        self.pieces.append(piece)
        if as_object(piece).get("signature"):
            self.is_signed = True


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
        if index is None:
            item = _unfinished_item(items, kind)
        else:
            item = by_index.get(_index_key(index, kind))
        if item is None:
            item = _PartialItem(kind)
            items.append(item)
        if index is not None:
            by_index[_index_key(index, item.type)] = item
            # the last one of this index, for pieces without a type
            by_index[_index_key(index, None)] = item
        item.add(piece)
    return [_merged("", item.pieces) for item in items]


def _index_key(index: Any, kind: Any) -> tuple[str, str]:
    """An index and a type as texts, because an answer may have what is not hashable in their place."""
    if kind is None:
        return repr(index), ""
    return repr(index), repr(kind)


def _unfinished_item(
    items: list[_PartialItem], kind: Any
) -> _PartialItem | None:
    """The item that a piece of this type continues, if it has no index."""
    if not items:
        return None
    last = items[-1]
    if last.is_signed:
        return None
    if last.type not in _CONTINUED:
        return None
    if kind not in (last.type, None):
        return None
    return last


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
        if self._ends_open():  # as nearly always
            return False
        text = self.text.strip()
        if text == "{}":
            return False
        if not text.endswith(("}", '}"')):
            return False
        return is_object(text)

    def _ends_open(self) -> bool:
        if not self._pieces:
            return False
        last = self._pieces[-1].rstrip()
        if last == "":
            return False
        return not last.endswith(("}", '"'))

    @property
    def is_begun(self) -> bool:
        """Whether they are cut off in the middle."""
        text = self.text.strip()
        if text in ("", "{}"):
            return False
        return not self.is_whole

    def add(self, piece: str) -> None:
        """Add a piece."""
        if piece:
            self._pieces.append(piece)
            self.length += len(piece)


@dataclass(slots=True)
class _CallPiece:
    """What a piece of a tool call has."""

    index: Any
    id: str
    name: str
    """Empty if it is white space."""
    arguments: str
    fields: JsonObject
    """Its further fields."""


def _read_call_piece(piece: Any) -> _CallPiece:
    function = as_object(piece.get("function"))
    name = text_field(function, "name")
    if not name.strip():
        name = ""
    fields = _without(piece, _OWN_CALL_KEYS)
    function_fields = _without(function, _OWN_FUNCTION_KEYS)
    if function_fields:
        fields["function"] = function_fields
    return _CallPiece(
        index=piece.get("index"),
        id=str(piece.get("id") or ""),
        name=name,
        arguments=text_field(function, "arguments"),
        fields=fields,
    )


def _without(fields: JsonMapping, keys: Iterable[str]) -> JsonObject:
    others = dict(fields)
    for key in keys:
        others.pop(key, None)
    return others


@dataclass(slots=True)
class _PartialCall:
    index: Any = None
    id: str = ""
    name: str = ""
    arguments: _PartialArguments = field(default_factory=_PartialArguments)
    fields: list[JsonMapping] = field(default_factory=list[JsonMapping])
    """The pieces of its further fields."""

    def add(self, piece: _CallPiece) -> None:
        if not self.id:
            self.id = piece.id
        # some providers repeat the whole name in each piece
        if not self.has_name(piece.name):
            self.name += piece.name
        # and some the whole call at its end
        is_repeated = self.has_arguments(piece.arguments)
        if not (is_repeated and self.arguments.is_whole):
            self.arguments.add(piece.arguments)
        if piece.fields:
            self.fields.append(piece.fields)

    def has_name(self, name: str) -> bool:
        return name.strip() == self.name.strip()

    def is_begun_as(self, name: str) -> bool:
        """Whether the call has this name, and arguments that are cut off in the middle."""
        if not self.has_name(name):
            return False
        return self.arguments.is_begun

    def has_arguments(self, arguments: str) -> bool:
        """Whether arguments are those that the call has, perhaps encoded once more."""
        if not _begins_object(arguments):
            return False
        # to encode a text once more makes it twice as long at most
        length = 2 * len(arguments) + 2
        if length < self.arguments.length:
            return False
        text = self.arguments.text
        if arguments.strip() == text.strip():
            return True
        return clean_arguments(arguments) == clean_arguments(text)

    def may_have_index(self, index: Any) -> bool:
        if index is None or self.index is None:
            return True
        return self.index == index

    def is_other_than(self, piece: _CallPiece) -> bool:
        """Whether a piece with the same id and a name is one of another call, and not repeated either."""
        if not self.is_over_before(piece.arguments):
            return False
        if self.index != piece.index:
            return True
        return not self.has_arguments(piece.arguments)

    def is_over_before(self, arguments: str) -> bool:
        """Whether arguments are those of another call with the same id or index, and not a continuation."""
        if not _begins_object(arguments):
            return False
        if self.arguments.is_whole:
            return True
        if arguments.strip() != "{}":
            return False
        return self.arguments.text.strip() == "{}"


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
        call_piece = _read_call_piece(piece)
        call = None
        if not whole:
            call = self._find(call_piece)
        if call is None:
            call = _PartialCall(call_piece.index)
            self._calls.append(call)
        call.add(call_piece)

    def _find(self, piece: _CallPiece) -> _PartialCall | None:
        """The call that a piece of a stream continues; None if it begins one.

        A piece belongs to the call of its id, else to that of its index, else to the last one. Only a piece with a
        name can begin a call beside others, and only if it does not continue one of them.
        """
        of_id = self._calls_of_id(piece.id)
        of_both = [call for call in of_id if call.may_have_index(piece.index)]
        if of_both:
            last = of_both[-1]
            if piece.name and last.is_other_than(piece):
                return None
            return last
        if piece.name:
            return self._find_by_name(piece)
        if of_id:
            return of_id[-1]
        return self._find_by_index(piece.index)

    def _calls_of_id(self, id_: str) -> list[_PartialCall]:
        if not id_:
            return []
        return [call for call in self._calls if call.id == id_]

    def _calls_of_index(self, index: Any) -> list[_PartialCall]:
        if index is None:
            return []
        return [call for call in self._calls if call.index == index]

    def _find_by_index(self, index: Any) -> _PartialCall | None:
        """The call that a piece with neither name nor known id continues."""
        if not self._calls:
            return None
        last = self._calls[-1]
        of_index = self._calls_of_index(index)
        if of_index and of_index[-1] is last:  # as nearly always
            return last
        for call in reversed(of_index):
            if not call.arguments.is_whole:
                return call
        return last

    def _find_by_name(self, piece: _CallPiece) -> _PartialCall | None:
        """The call that a piece with a name, but without a known id, continues."""
        of_index = self._calls_of_index(piece.index)
        if of_index:
            last = of_index[-1]
        elif piece.index is None and self._calls:
            last = self._calls[-1]
        else:
            return None
        # some providers make a new id for each piece
        if _is_middle(piece.arguments) and last.is_begun_as(piece.name):
            return last
        has_other_id = piece.id and last.id
        if has_other_id or not of_index:
            return None
        if last.is_over_before(piece.arguments):
            return None
        if piece.arguments:
            return last
        if last.arguments.is_whole:
            return None
        return last

    def estimate(self) -> int:
        """An estimate of the tokens of the calls."""
        tokens = 0
        for call in self._calls:
            text = call.name + call.arguments.text
            tokens += estimate_tokens(text)
        return tokens

    def has_nameless(self) -> bool:
        """Whether a call has no name."""
        for call in self._calls:
            if not call.name.strip():
                return True
        return False

    def tool_calls(self) -> Iterator[ToolCall]:
        """The calls, each with an id of its own, so that each result belongs to one call."""
        ids = {""}
        for call in self._calls:
            id_ = call.id
            if id_ in ids:
                id_ = f"call_{os.urandom(8).hex()}"
            ids.add(id_)
            yield ToolCall(
                id_,
                call.name.strip(),
                clean_arguments(call.arguments.text),
                provider_fields=set_fields(merge_fields(call.fields)),
            )


def _begins_object(arguments: str) -> bool:
    return arguments.lstrip().startswith(("{", '"{'))


def _is_middle(arguments: str) -> bool:
    if _begins_object(arguments):
        return False
    return arguments.strip() != ""
