"""The kinds of components, and the traits of each that do not need a component to be known.

A new kind is a value of `Kind` and an entry of `TRAITS` here, a shape in `podwright.blueprints.schema`, a module with
its class, and an entry of `podwright.folders.loader.KINDS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["agent", "workflow", "conductor", "pipeline"]
"""The kinds of components, as events, routes and metrics name them."""


@dataclass(frozen=True, slots=True)
class Traits:
    """The traits of a kind."""

    chats: bool = False
    """Whether its runs are chats with a model of its own, which a caller may give settings and instructions."""
    has_steps: bool = False
    """Whether its runs do the `steps` of its blueprint one after the other."""
    member_key: str = ""
    """The key of its blueprints that defines its members, or names them; empty if it does not define any."""


TRAITS: Final[dict[Kind, Traits]] = {
    "agent": Traits(chats=True),
    "workflow": Traits(has_steps=True),
    "conductor": Traits(chats=True, member_key="skills"),
    "pipeline": Traits(has_steps=True, member_key="steps"),
}
"""The traits of each kind."""
