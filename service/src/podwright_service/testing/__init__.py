"""Tests of components as they are served: in a process on this machine, or in their image.

    from podwright_service.testing import ComponentContainer, ModelStub, ToolCall

    def test_it_adds():
        with ModelStub(ToolCall.of("add_numbers", numbers=[2, 3]), "It is 5.", name="openai/gpt-4o-mini") as model:
            with ComponentContainer("calculator", model=model) as calculator:
                assert calculator.run("What is 2 + 3?") == "It is 5."

Install it with the extra `podwright-service[testing]`. The service itself does not import it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from podwright.messages import ModelRequest, ModelResponse, ToolCall
from podwright.usage import RunLimits, Usage
from podwright_service.testing.asserts import assert_counted, assert_spans, assert_usage, assert_within
from podwright_service.testing.metrics import Metrics
from podwright_service.testing.model_stub import ModelStub, ReceivedRequest
from podwright_service.testing.script import Fault, StubResponse
from podwright_service.testing.spans import Span, SpanCollector

if TYPE_CHECKING:
    from podwright_service.testing.containers import ComponentContainer, ModelStubContainer, component_image
    from podwright_service.testing.process import ComponentProcess
    from podwright_service.testing.served import ProblemError, Served, StartError

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

_MODULES_OF_THE_EXTRA = {
    "ComponentContainer": "containers",
    "ComponentProcess": "process",
    "ModelStubContainer": "containers",
    "ProblemError": "served",
    "Served": "served",
    "StartError": "served",
    "component_image": "containers",
}


def __getattr__(name: str) -> Any:
    """Import what needs the extra on first use, so that a stub runs in an image, which does not have it."""
    if name not in _MODULES_OF_THE_EXTRA:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES_OF_THE_EXTRA[name]}"), name)
    except ModuleNotFoundError as error:
        error.add_note("Install podwright-service[testing].")
        raise
