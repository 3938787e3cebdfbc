"""The public names of the package; `__init__.py` imports each of them on first use."""

from .asserts import (
    RunLimits,
    Usage,
    assert_counted,
    assert_spans,
    assert_usage,
    assert_within,
)
from .containers import ComponentContainer, ModelStubContainer, component_image
from .metrics import Metrics
from .model_stub import ModelStub, ReceivedRequest
from .process import ComponentProcess
from .script import Fault, ModelRequest, ModelResponse, StubResponse, ToolCall
from .served import ProblemError, Served, StartError
from .spans import Span, SpanCollector

__all__ = [
    "ComponentContainer",
    "ComponentProcess",
    "Fault",
    "Metrics",
    "ModelRequest",
    "ModelResponse",
    "ModelStub",
    "ModelStubContainer",
    "ProblemError",
    "ReceivedRequest",
    "RunLimits",
    "Served",
    "Span",
    "SpanCollector",
    "StartError",
    "StubResponse",
    "ToolCall",
    "Usage",
    "assert_counted",
    "assert_spans",
    "assert_usage",
    "assert_within",
    "component_image",
]
