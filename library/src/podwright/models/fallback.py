"""The model of a chat, and the models that answer for it when it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from podwright.messages.messages import Message, ModelRequest
from podwright.models import Model

DEFAULT_FALLBACK_WAIT = 5.0
"""Seconds that a model may ask to wait before the next one is asked."""


@dataclass(frozen=True, slots=True)
class ChatModels:
    """The models of a chat, in the order in which they are asked."""

    first: Model
    fallback: Sequence[Model] = ()
    """Those that are asked if the ones before them cannot answer."""
    longest_wait: float = DEFAULT_FALLBACK_WAIT
    """Seconds that a model may ask to wait before the next one is asked."""

    @property
    def is_alone(self) -> bool:
        """Whether no other model can answer for the first one."""
        return not self.fallback

    def all(self) -> list[Model]:
        """All of them, each once: one model may stand for all, as in tests."""
        models = (self.first, *self.fallback)
        by_identity = {id(model): model for model in models}
        return list(by_identity.values())

    def request_to(self, model: Model, request: ModelRequest) -> ModelRequest:
        """A request for one of the models, from that for the first one.

        Messages of unknown origin count as the first one's, so that what they carry is not sent to another provider.
        Its parameters are not sent there either.
        """
        if model is self.first:
            return request
        provider = self.first.name.partition("/")[0]
        messages = [
            mark_provider(message, provider) for message in request.messages
        ]
        settings = request.settings
        if not model.name.startswith(f"{provider}/"):
            settings = {**settings}
            settings.pop("parameters", None)
        return replace(
            request,
            model=model.name,
            messages=tuple(messages),
            settings=settings,
        )


def mark_provider(message: Message, provider: str) -> Message:
    """Return a message with the provider that an answer of unknown origin counts as the one of."""
    if message.provider or message.role != "assistant":
        return message
    return replace(message, provider=provider)
