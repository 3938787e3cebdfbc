"""The four kinds of components, and the steps of workflows."""

from podwright.components.agent import Agent as Agent
from podwright.components.conductor import Conductor as Conductor
from podwright.components.handoffs import Handoff as Handoff
from podwright.components.pipeline import Pipeline as Pipeline
from podwright.run.component import Component as Component
from podwright.run.component import PromptComponent as PromptComponent
from podwright.run.options import Options as Options
from podwright.run.options import own_blueprint as own_blueprint
from podwright.steps import AgentStep as AgentStep
from podwright.steps import ApprovalStep as ApprovalStep
from podwright.steps import ConditionStep as ConditionStep
from podwright.steps import FunctionStep as FunctionStep
from podwright.steps import LoopStep as LoopStep
from podwright.steps import MapStep as MapStep
from podwright.steps import ParallelStep as ParallelStep
from podwright.steps import Step as Step
from podwright.steps import TryStep as TryStep
from podwright.steps import WorkflowStep as WorkflowStep
from podwright.workflows.workflow import Workflow as Workflow
