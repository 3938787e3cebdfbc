"""The public names of the package; `__init__.py` imports each of them on first use."""

from . import blueprints, conditions, errors, events, models, testing
from ._version import __version__
from .components import Agent, Component, Conductor, Handoff, Pipeline
from .components.function_agent import FunctionAgent
from .errors import (
    ApprovalRequired,
    BlueprintValidationError,
    LimitExceededError,
    PodwrightError,
    RunCancelledError,
)
from .estimates.estimate import Estimate, estimate
from .events import Event, EventManager, subscribe
from .folders.loader import load
from .functions.run_context import RunContext, run_attributes
from .location import call_key
from .mcp.server import MCPServer
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
from .steps.agent_step import AgentStep
from .steps.approval_step import ApprovalStep
from .steps.condition_step import ConditionStep
from .steps.function_step import FunctionStep
from .steps.loop_step import LoopStep
from .steps.map_step import MapStep
from .steps.parallel_step import ParallelStep
from .steps.try_step import TryStep
from .steps.workflow_step import WorkflowStep
from .tools.decorator import tool
from .tools.tool import Tool
from .workflows.workflow import Workflow

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
    "Estimate",
    "Event",
    "EventManager",
    "ExecutionResult",
    "FunctionAgent",
    "FunctionModel",
    "FunctionStep",
    "Handoff",
    "LimitExceededError",
    "LoopStep",
    "MCPServer",
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
    "Tool",
    "TryStep",
    "Usage",
    "Workflow",
    "WorkflowStep",
    "__version__",
    "blueprints",
    "call_key",
    "conditions",
    "errors",
    "estimate",
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
