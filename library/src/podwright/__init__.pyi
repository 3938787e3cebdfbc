"""The public names of the package; `__init__.py` imports each of them on first use."""

from . import blueprints, conditions, errors, events, models, testing
from ._version import __version__
from .components import (
    Agent,
    AgentStep,
    ApprovalStep,
    Component,
    ConditionStep,
    Conductor,
    FunctionStep,
    LoopStep,
    MapStep,
    ParallelStep,
    Pipeline,
    TryStep,
    Workflow,
    WorkflowStep,
    load,
)
from .components.function_agent import FunctionAgent
from .errors import (
    ApprovalRequired,
    BlueprintValidationError,
    LimitExceededError,
    PodwrightError,
    RunCancelledError,
)
from .events import Event, EventManager, subscribe
from .functions.run_context import RunContext, run_attributes
from .location import call_key
from .messages.usage import RunLimits, Usage
from .models import (
    EchoModel,
    FunctionModel,
    Model,
    RecordingModel,
    ReplayModel,
    ScriptedModel,
    register_provider,
    use_model,
)
from .remote.remote import Remote
from .run.result import ExecutionResult
from .tools.tool import tool

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
    "FunctionAgent",
    "FunctionModel",
    "FunctionStep",
    "LimitExceededError",
    "LoopStep",
    "MapStep",
    "Model",
    "ParallelStep",
    "Pipeline",
    "PodwrightError",
    "RecordingModel",
    "Remote",
    "ReplayModel",
    "RunCancelledError",
    "RunContext",
    "RunLimits",
    "ScriptedModel",
    "TryStep",
    "Usage",
    "Workflow",
    "WorkflowStep",
    "__version__",
    "blueprints",
    "call_key",
    "conditions",
    "errors",
    "events",
    "load",
    "models",
    "register_provider",
    "run_attributes",
    "subscribe",
    "testing",
    "tool",
    "use_model",
]
