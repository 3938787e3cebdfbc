"""Podwright: agents, workflows, conductors and pipelines, from blueprint to pod.

Names are imported on first use, so that `import podwright` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from podwright._version import __version__

if TYPE_CHECKING:
    from podwright import blueprints, conditions, errors, events, models, testing
    from podwright.components import (
        Agent,
        AgentStep,
        ApprovalStep,
        Component,
        ConditionStep,
        Conductor,
        LoopStep,
        MapStep,
        ParallelStep,
        Pipeline,
        Workflow,
        WorkflowStep,
        load,
    )
    from podwright.components.remote import Remote
    from podwright.errors import (
        ApprovalRequired,
        BlueprintValidationError,
        LimitExceededError,
        PodwrightError,
        RunCancelledError,
    )
    from podwright.events import Event, EventManager
    from podwright.models import (
        EchoModel,
        FunctionModel,
        Model,
        ReplayModel,
        ScriptedModel,
        register_provider,
        use_model,
    )
    from podwright.result import ExecutionResult
    from podwright.usage import RunLimits, Usage

__all__ = [
    "Agent",
    "AgentStep",
    "ApprovalRequired",
    "ApprovalStep",
    "BlueprintValidationError",
    "Component",
    "ConditionStep",
    "Conductor",
    "EchoModel",
    "Event",
    "EventManager",
    "ExecutionResult",
    "FunctionModel",
    "LimitExceededError",
    "LoopStep",
    "MapStep",
    "Model",
    "ParallelStep",
    "Pipeline",
    "PodwrightError",
    "Remote",
    "ReplayModel",
    "RunCancelledError",
    "RunLimits",
    "ScriptedModel",
    "Usage",
    "Workflow",
    "WorkflowStep",
    "__version__",
    "blueprints",
    "conditions",
    "errors",
    "events",
    "load",
    "models",
    "register_provider",
    "testing",
    "use_model",
]

_HOMES = {
    "podwright.components": (
        "Agent AgentStep ApprovalStep Component ConditionStep Conductor LoopStep MapStep ParallelStep Pipeline "
        "Workflow WorkflowStep load"
    ),
    "podwright.components.remote": "Remote",
    "podwright.errors": "ApprovalRequired BlueprintValidationError LimitExceededError PodwrightError RunCancelledError",
    "podwright.events": "Event EventManager",
    "podwright.models": "EchoModel FunctionModel Model ReplayModel ScriptedModel register_provider use_model",
    "podwright.result": "ExecutionResult",
    "podwright.usage": "RunLimits Usage",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in __all__:
        value = importlib.import_module(f"podwright.{name}")
    else:
        raise AttributeError(f"module 'podwright' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
