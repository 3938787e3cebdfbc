"""The OpenAI-compatible client: Chat Completions over HTTP, for providers that offer the protocol themselves."""

from __future__ import annotations

from dataclasses import replace

from podwright.data.json_data import JsonObject
from podwright.messages.messages import ModelRequest
from podwright.models.base import Connection
from podwright.models.protocols.chat_completions import (
    CompletionAnswer,
    request_body,
)
from podwright.models.protocols.http_model import HTTPModel
from podwright.models.providers import ANY, Endpoint


class ChatModel(HTTPModel):
    """A model behind a Chat Completions endpoint.

    Args:
        name: "<provider>/<model_name>".
        connection: API key and base URL; what is missing is read from the provider's variables at the first call.
        endpoint: What is known of the provider.
    """

    path = "/chat/completions"

    def __init__(
        self, name: str, connection: Connection, endpoint: Endpoint = ANY
    ) -> None:
        super().__init__(name, connection, endpoint)

    def body(self, request: ModelRequest, *, stream: bool) -> JsonObject:
        """See `HTTPModel.body`."""
        media = self._endpoint.media_at(is_at_vendor=self.is_at_vendor)
        return request_body(
            request,
            self._model,
            replace(self._endpoint, media=media),
            provider=self._provider,
            stream=stream,
        )

    def new_answer(self) -> CompletionAnswer:
        """See `HTTPModel.new_answer`."""
        return CompletionAnswer(self.name)
