"""For tests of components as they are served: in a process beside the test, or in their image.

    from podwright_service.testing import ComponentContainer, ModelStub, ToolCall

    def test_it_adds():
        with ModelStub(ToolCall.of("add_numbers", numbers=[2, 3]), "It is 5.", name="openai/gpt-4o-mini") as model:
            with ComponentContainer("calculator", model=model) as calculator:
                assert calculator.run("What is 2 + 3?") == "It is 5."

It needs the extra `podwright-service[testing]`. A service imports nothing of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from podwright.messages import ModelRequest, ModelResponse, ToolCall
from podwright.usage import RunLimits, Usage

if TYPE_CHECKING:
    from podwright_service.testing.answers import Answer, Fault
    from podwright_service.testing.asserts import assert_counted, assert_spans, assert_usage, assert_within
    from podwright_service.testing.containers import ComponentContainer, ModelStubContainer, component_image
    from podwright_service.testing.metrics import Metrics
    from podwright_service.testing.model_stub import Asked, ModelStub
    from podwright_service.testing.process import ComponentProcess
    from podwright_service.testing.served import ProblemError, Served, StartError
    from podwright_service.testing.spans import Span, SpanCollector

__all__ = [
    "Answer",
    "Asked",
    "ComponentContainer",
    "ComponentProcess",
    "Fault",
    "Metrics",
    "ModelRequest",
    "ModelResponse",
    "ModelStub",
    "ModelStubContainer",
    "ProblemError",
    "RunLimits",
    "Served",
    "Span",
    "SpanCollector",
    "StartError",
    "ToolCall",
    "Usage",
    "assert_counted",
    "assert_spans",
    "assert_usage",
    "assert_within",
    "component_image",
]

_HOMES = {
    "answers": ("Answer", "Fault"),
    "asserts": ("assert_counted", "assert_spans", "assert_usage", "assert_within"),
    "containers": ("ComponentContainer", "ModelStubContainer", "component_image"),
    "metrics": ("Metrics",),
    "model_stub": ("Asked", "ModelStub"),
    "process": ("ComponentProcess",),
    "served": ("ProblemError", "Served", "StartError"),
    "spans": ("Span", "SpanCollector"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: a stub in an image of ours has no testcontainers, nor pytest."""
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as error:
        error.add_note("It comes with podwright-service[testing].")
        raise
