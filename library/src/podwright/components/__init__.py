"""The four kinds of components, the steps of workflows, and `load`."""

from podwright.components.agent import Agent as Agent
from podwright.components.base import Component as Component
from podwright.components.base import PromptComponent as PromptComponent
from podwright.components.conductor import Conductor as Conductor
from podwright.components.loader import KINDS as KINDS
from podwright.components.loader import load as load
from podwright.components.options import Options as Options
from podwright.components.options import own_blueprint as own_blueprint
from podwright.components.pipeline import Pipeline as Pipeline
from podwright.components.steps import AgentStep as AgentStep
from podwright.components.steps import ApprovalStep as ApprovalStep
from podwright.components.steps import ConditionStep as ConditionStep
from podwright.components.steps import FunctionStep as FunctionStep
from podwright.components.steps import LoopStep as LoopStep
from podwright.components.steps import MapStep as MapStep
from podwright.components.steps import ParallelStep as ParallelStep
from podwright.components.steps import Step as Step
from podwright.components.steps import TryStep as TryStep
from podwright.components.steps import WorkflowStep as WorkflowStep
from podwright.components.workflow import Workflow as Workflow
