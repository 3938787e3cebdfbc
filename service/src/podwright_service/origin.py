"""Where a run comes from: the outermost component, the caller, and for whom it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote

from opentelemetry import baggage
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from starlette.requests import Request

from podwright.components import Component
from podwright.data.text import truncate
from podwright.functions.run_context import (
    MAX_IDENTITY,
    NO_ATTRIBUTES,
    RunAttributes,
    current_attributes,
)
from podwright.messages.headers import CALLER, ROOT
from podwright_service.settings import Settings

INLINE = "(inline)"
"""Stands for the components of inline blueprints, whose names are anything."""
USER = "user.id"
SESSION = "session.id"
"""What OpenTelemetry calls the user and the session, in spans and in the header `baggage`."""
_MAX_LENGTH = 200
"""Characters of a member of `baggage`."""
_MAX_ROOT = 100
_KEY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_propagator = W3CBaggagePropagator()


class Sender(Protocol):
    """The body of a request, as far as it says for whom it is."""

    def user_name(self) -> str:
        """The user; empty if it names none."""
        ...

    def session_name(self) -> str:
        """The session; empty if it names none."""
        ...

    def metadata_values(self, component: Component) -> Mapping[str, str]:
        """What else the functions of a run of the component are to know: few and short texts by name."""
        ...


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a run comes from."""

    root: str = ""
    """The outermost component, which is in another container; empty if it is the served one."""
    caller: str = ""
    """The name of the outermost caller's API key, perhaps in another container; empty if it has none."""
    via: str = ""
    """The name of the key of the component that calls for that caller; empty if the caller calls itself."""
    members: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further members of the header `baggage` that the operator trusts."""
    attributes: RunAttributes = NO_ATTRIBUTES
    """What the caller says of the outermost run."""

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], metadata: Mapping[str, str]
    ) -> Origin:
        """The origin that `to_dict` has returned, with the metadata beside it."""
        fields = dict(data)
        attributes = RunAttributes(
            fields.pop("user", ""), fields.pop("session", ""), metadata
        )
        return cls(**fields, attributes=attributes)

    def to_dict(self) -> dict[str, Any]:
        """What is known for whom the run is, as JSON-compatible data; a background run has the metadata beside it."""
        data = {
            "root": self.root,
            "caller": self.caller,
            "user": self.attributes.user,
            "session": self.attributes.session,
            "members": dict(self.members),
        }
        return {name: value for name, value in data.items() if value}


NOWHERE = Origin()
"""The origin of a run that no request has begun."""
current_origin: ContextVar[Origin] = ContextVar(
    "podwright_origin", default=NOWHERE
)
"""Where the current run comes from."""


def is_key_name(text: str) -> bool:
    """Whether a text can be the name of an API key."""
    return _KEY_NAME.fullmatch(text) is not None


def caller_of(request: Request) -> str:
    """The name of the API key of a request; empty if it has none."""
    return getattr(request.state, "caller", "")


def origin_of(
    request: Request, settings: Settings, sender: Sender, component: Component
) -> Origin:
    """Where the run of a component for a request comes from.

    What its body says counts most, then what `run_attributes` around a route says, then its headers.

    Raises:
        ConfigurationError: The metadata of both are too many together.
    """
    members = _members(request, settings.baggage)
    user = identity(members.pop(USER, ""))
    session = identity(members.pop(SESSION, ""))
    around = current_attributes()
    attributes = RunAttributes(
        user=sender.user_name() or around.user or user,
        session=sender.session_name() or around.session or session,
        metadata={**around.metadata, **sender.metadata_values(component)},
    )
    attributes.check()
    caller, via = _caller_and_via(request)
    return Origin(
        root=_root(request),
        caller=caller,
        via=via,
        members={
            name: truncate(value, _MAX_LENGTH)
            for name, value in members.items()
        },
        attributes=attributes,
    )


def _caller_and_via(request: Request) -> tuple[str, str]:
    """The outermost caller, and the component that calls for it.

    Only a key that may relay names another caller, or a caller could put its cost on somebody else's account.
    """
    own_name = caller_of(request)
    relayed = request.headers.get(CALLER)
    # without keys, each caller has all scopes
    if relayed is None or not getattr(request.state, "relays", True):
        return own_name, ""
    if relayed and not is_key_name(relayed):
        return own_name, ""
    return relayed, own_name


def _root(request: Request) -> str:
    root = unquote(request.headers.get(ROOT, ""))
    if root.isprintable() and len(root) <= _MAX_ROOT:
        return root
    return ""


def _members(request: Request, trusted: list[str]) -> dict[str, str]:
    """The trusted members of the header `baggage`."""
    if not trusted:
        return {}
    header = ",".join(request.headers.getlist("baggage"))
    members = baggage.get_all(
        _propagator.extract({"baggage": header}, Context())
    )
    return {name: str(members[name]) for name in trusted if name in members}


def identity(text: str) -> str:
    """A user or session; empty if it is too long, because one that is cut may be another's."""
    if len(text) > MAX_IDENTITY:
        return ""
    return text
