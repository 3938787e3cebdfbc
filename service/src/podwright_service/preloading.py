"""Loads at the start what the first requests would load otherwise, for which the event loop would wait."""

from __future__ import annotations

from contextlib import suppress

from podwright.components import Agent, Component
from podwright.errors import PodwrightError
from podwright.events import adapter
from podwright.folders.walks import walk
from podwright.models import resolve
from podwright.models.prices import pricing
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
    if any(part.may_report_usage for part in walk(component)):
        pricing.load()
    if _reads_events(component, settings):
        adapter()


def _reads_events(component: Component, settings: Settings) -> bool:
    """Whether runs read events: of remote components, or of earlier attempts."""
    if settings.agents or settings.runs_database is not None:
        return True
    return not isinstance(component, Agent)
