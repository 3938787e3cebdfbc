"""The kinds of workflow steps, a module each, and what is asked of them; see `podwright.steps.base`."""

from podwright.steps.agent_step import AgentStep
from podwright.steps.approval_step import ApprovalStep
from podwright.steps.base import Step
from podwright.steps.condition_step import ConditionStep
from podwright.steps.function_step import FunctionStep
from podwright.steps.loop_step import LoopStep
from podwright.steps.map_step import MapStep
from podwright.steps.parallel_step import ParallelStep
from podwright.steps.registry import register
from podwright.steps.try_step import TryStep
from podwright.steps.workflow_step import WorkflowStep

__all__ = [
    "AgentStep",
    "ApprovalStep",
    "ConditionStep",
    "FunctionStep",
    "LoopStep",
    "MapStep",
    "ParallelStep",
    "Step",
    "TryStep",
    "WorkflowStep",
]

# in the order of the published schema
for kind in (
    AgentStep,
    FunctionStep,
    TryStep,
    ConditionStep,
    ParallelStep,
    LoopStep,
    MapStep,
    WorkflowStep,
    ApprovalStep,
):
    register(kind)
