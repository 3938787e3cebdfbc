"""Spans in the format of OTLP, each encoded as it ends: a few hundred bytes wait for the exporter, and no objects.

Of our own spans, those of which nothing rare is said are written by hand: the exporter's encoder makes an object of
each value, which takes longer than all else that is done for a span. A span is its own few fields, and then the bytes
of its attributes; the spans of a service repeat most of those, so the last ones are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, cast

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, SpanKind

from podwright_service.observability.spans import Recorder, Span

_KINDS = {
    SpanKind.INTERNAL: 1,
    SpanKind.SERVER: 2,
    SpanKind.CLIENT: 3,
    SpanKind.PRODUCER: 4,
    SpanKind.CONSUMER: 5,
}
# Each piece begins with its tag: the number of the field, and how what follows is written (protobuf, "Encoding").
_TRACE, _SPAN, _PARENT, _ATTRIBUTE, _STATUS = b"\x0a\x10", b"\x12\x08", b"\x22\x08", b"\x4a", b"\x7a\x00"
_TIMES = Struct("<BQBQ")
_BEGAN, _ENDED = 0x39, 0x41
_FLAGS = b"\x85\x01"
_LOCAL, _REMOTE = _FLAGS + (0x100).to_bytes(4, "little"), _FLAGS + (0x300).to_bytes(4, "little")
_DOUBLE = Struct("<Bd")
_SHORT = [bytes((length,)) for length in range(128)]
_UNSIGNED = 2**64
_LONGEST_KEPT = 200
"""Characters of a text that is kept encoded: what was said to a model is long, and comes once."""


class Encoded:
    """A span of ours that has ended, in its place in the message of a scope."""

    __slots__ = ("context", "data", "like")

    def __init__(self, span: Span) -> None:
        self.context: SpanContext = span.context
        """What a span processor asks for."""
        self.like = span.recorder
        self.data = _of_field(b"\x12", _encoded(span))


class Request:
    """What the exporter sends."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def SerializePartialToString(self) -> bytes:  # noqa: N802 - as protobuf has it
        """The message."""
        return self._data


def encode(spans: Sequence[ReadableSpan | Encoded]) -> Request:
    """What `encode_spans` gives, of spans that are encoded already and of others."""
    ours = [one for one in spans if isinstance(one, Encoded)]
    others = [one for one in spans if not isinstance(one, Encoded)]
    # messages written one after the other are one (protobuf, "Last One Wins")
    data = encode_spans(others).SerializePartialToString() if others else b""
    for recorder in {one.like for one in ours}:
        resource, scope = _frame(recorder)
        whole = b"".join((scope, *(one.data for one in ours if one.like is recorder)))
        data += _of_field(b"\x0a", resource + _of_field(b"\x12", whole))
    return Request(data)


def _frame(recorder: Recorder) -> tuple[bytes, bytes]:
    """A resource and a scope as the exporter writes them."""
    any_one = SpanContext(1, 1, is_remote=False)
    span = ReadableSpan("", any_one, resource=recorder.resource, instrumentation_scope=recorder.scope)
    resource = encode_spans([span]).resource_spans[0]
    scope = resource.scope_spans[0]
    del scope.spans[:]
    written = scope.SerializeToString()
    del resource.scope_spans[:]
    return resource.SerializeToString(), written


def _encoded(span: Span) -> bytes:
    context, parent, limits = span.context, span.parent, span.recorder.limits
    attributes = span.attributes.copy()  # another thread may say more
    rare = span.events or span.links or not span.status.is_unset or context.trace_state
    most, longest = limits.max_span_attributes, limits.max_span_attribute_length
    if rare or longest is not None or (most is not None and len(attributes) > most):
        return _by_the_exporter(span)
    parts = [_TRACE, context.trace_id.to_bytes(16, "big"), _SPAN, context.span_id.to_bytes(8, "big")]
    if parent:
        parts += (_PARENT, parent.span_id.to_bytes(8, "big"))
    try:
        parts.append(_titled(span.name, span.kind))
        parts.append(_TIMES.pack(_BEGAN, span.started, _ENDED, span.ended))
        for key, value in attributes.items():
            kind = value.__class__
            write = _written if kind is str and len(value) > _LONGEST_KEPT else _attribute
            parts.append(write(key, value, kind))
    except (TypeError, ValueError):  # none of the usual types, or more than 64 bits
        return _by_the_exporter(span)
    parts += (_STATUS, _REMOTE if parent and parent.is_remote else _LOCAL)
    return b"".join(parts)


def _by_the_exporter(span: Span) -> bytes:
    return encode_spans([span.readable()]).resource_spans[0].scope_spans[0].spans[0].SerializeToString()


@lru_cache(256)
def _titled(name: str, kind: SpanKind) -> bytes:
    return _of_field(b"\x2a", name.encode(errors="replace")) + b"\x30" + _SHORT[_KINDS[kind]]


def _written(key: str, value: Any, kind: Any) -> bytes:
    """An attribute in its place in a span. The kind tells values apart that are equal: 1, True.

    Raises:
        TypeError: It is of a type that attributes seldom have.
        ValueError: It has more than 64 bits.
    """
    whole = _of_field(b"\x0a", key.encode(errors="replace")) + _of_field(b"\x12", _value(value, kind))
    return _of_field(_ATTRIBUTE, whole)


_attribute = lru_cache(2048)(_written)


def _value(value: Any, kind: Any) -> bytes:
    if kind is str:
        return _of_field(b"\x0a", value.encode(errors="replace"))
    if kind is bool:
        return b"\x10\x01" if value else b"\x10\x00"
    if kind is int:
        if not -(2**63) <= value < 2**63:
            raise ValueError
        return b"\x18" + _varint(value % _UNSIGNED)
    if kind is float:
        return _DOUBLE.pack(0x21, value)
    if kind is tuple and all(type(one) is str for one in value):
        texts = cast("tuple[str, ...]", value)
        return _of_field(b"\x2a", b"".join(_of_field(b"\x0a", _value(text, str)) for text in texts))
    raise TypeError


def _of_field(tag: bytes, data: bytes) -> bytes:
    length = len(data)
    return tag + (_SHORT[length] if length < 128 else _varint(length)) + data


def _varint(number: int) -> bytes:
    if number < 128:
        return _SHORT[number]
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)
