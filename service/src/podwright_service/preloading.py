"""Loads at the start what the first requests would load otherwise, for which the event loop would wait."""

from __future__ import annotations

from contextlib import suppress

from podwright.components import Agent, Component
from podwright.components.function_agent import FunctionAgent
from podwright.components.walks import own_tools_of, walk
from podwright.errors import PodwrightError
from podwright.events import adapter
from podwright.models import pricing, resolve
from podwright.run_context import context_parameters
from podwright_service.inline.policy import InlinePolicy
from podwright_service.settings import Settings


def preload(
    component: Component, policy: InlinePolicy, settings: Settings
) -> None:
    """Load what runs of a component and of inline blueprints may need.

    Args:
        component: The served component.
        policy: What inline blueprints may name.
        settings: Whether there are background runs and remote components.

    Raises:
        ConfigurationError: The price file is invalid.
    """
    for model in policy.models:
        # imports its client; the error of one that does not exist is that of the blueprint which names it
        with suppress(PodwrightError):
            resolve(model)
    if any(map(_may_report_usage, walk(component))):
        pricing.load()
    if _reads_events(component, settings):
        adapter()


def _may_report_usage(part: Component) -> bool:
    """Whether functions of a component may report what they use, which has a price."""
    if isinstance(part, FunctionAgent):
        return True
    tools = own_tools_of(part).values()
    return any(context_parameters(tool.function) for tool in tools)


def _reads_events(component: Component, settings: Settings) -> bool:
    """Whether runs read events: of remote components, or of earlier attempts."""
    if settings.agents or settings.runs_database is not None:
        return True
    return not isinstance(component, Agent)
