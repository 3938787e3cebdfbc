"""The Anthropic client: Claude over its own Messages protocol."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from podwright import errors
from podwright.data.json_data import as_array
from podwright.messages.messages import ModelRequest, ModelResponse
from podwright.messages.usage import NO_USAGE, Usage
from podwright.models.base import TokenCallback, note_attempt, noted_attempt
from podwright.models.http.error_body import ErrorBody
from podwright.models.protocols.http_model import HTTPModel
from podwright.models.protocols.messages_answer import PAUSED, MessageAnswer
from podwright.models.protocols.messages_request import (
    max_output_tokens,
    request_body,
)

_MAX_PAUSES = 10
"""How often a paused answer is continued."""
_THOUGHTS_REFUSED = re.compile(
    r"thinking.{0,40}block|thinking\.signature", re.IGNORECASE
)
"""In a refusal of thoughts that another model, or this one in another conversation, has signed."""


class _ThoughtsRefusedError(Exception):
    """The provider does not take the thoughts of the conversation."""

    def __init__(self, failure: errors.ModelError) -> None:
        super().__init__()
        self.failure = failure


class MessagesModel(HTTPModel):
    """A model behind a Messages endpoint: Claude at Anthropic, or what speaks its protocol elsewhere.

    Args:
        name: "<provider>/<model_name>".
        connection: API key and base URL; what is missing is read from the provider's variables at the first call.
        endpoint: What is known of the provider.
    """

    path = "/messages"
    headers = MappingProxyType({"anthropic-version": "2023-06-01"})

    def body(self, request: ModelRequest, *, stream: bool) -> dict[str, Any]:
        """See `HTTPModel.body`."""
        return request_body(
            request, self._model, source=self.name, stream=stream
        )

    def new_answer(self) -> MessageAnswer:
        """See `HTTPModel.new_answer`."""
        return MessageAnswer(self.name)

    def raise_for_refusal(
        self, error: ErrorBody, failure: errors.ModelError
    ) -> None:
        """See `HTTPModel.raise_for_refusal`."""
        if type(failure) is not errors.ModelRequestError:
            return
        if _THOUGHTS_REFUSED.search(error.message):
            raise _ThoughtsRefusedError(failure)

    def max_output_tokens(self) -> int:
        """See `Model.max_output_tokens`."""
        return max_output_tokens(self._model)

    async def attempt(
        self,
        request: ModelRequest,
        on_token: TokenCallback | None,
        on_reasoning: TokenCallback | None,
    ) -> ModelResponse:
        """Send one request; a further one while the answer is paused, and one without the thoughts that are refused."""
        paused: list[ModelResponse] = []
        try:
            request, response = await self._complete_without_refused_thoughts(
                request, on_token, on_reasoning
            )
            while response.finish_reason == PAUSED:
                paused.append(response)
                if len(paused) > _MAX_PAUSES:
                    raise errors.ModelResponseError(
                        f"'{self.name}': the answer was paused too often."
                    )
                request = replace(
                    request, messages=(*request.messages, response.message())
                )
                response = await self._ask_once(request, on_token, on_reasoning)
        except errors.ModelError as error:
            if paused:
                failed = error.attempt_usage or NO_USAGE
                error.attempt_usage = _sum([failed, *_usages(paused)])
            raise
        except asyncio.CancelledError as error:
            if paused:
                cancelled = noted_attempt(error) or NO_USAGE
                note_attempt(error, _sum([cancelled, *_usages(paused)]))
            raise
        if not paused:
            return response
        return _joined([*paused, response])

    async def _complete_without_refused_thoughts(
        self,
        request: ModelRequest,
        on_token: TokenCallback | None,
        on_reasoning: TokenCallback | None,
    ) -> tuple[ModelRequest, ModelResponse]:
        """The request that was answered, and its response."""
        try:
            response = await super().attempt(request, on_token, on_reasoning)
            return request, response
        except _ThoughtsRefusedError as error:
            failure = error.failure
        plain = _without_provider_fields(request)
        if plain == request:
            raise failure
        response = await self._ask_once(plain, on_token, on_reasoning)
        return plain, response

    async def _ask_once(
        self,
        request: ModelRequest,
        on_token: TokenCallback | None,
        on_reasoning: TokenCallback | None,
    ) -> ModelResponse:
        """Send one request; refused thoughts are an error like others."""
        try:
            return await super().attempt(request, on_token, on_reasoning)
        except _ThoughtsRefusedError as error:
            raise error.failure from None


def _without_provider_fields(request: ModelRequest) -> ModelRequest:
    messages = tuple(
        replace(message, provider_fields={}) for message in request.messages
    )
    return replace(request, messages=messages)


def _joined(responses: Sequence[ModelResponse]) -> ModelResponse:
    """One response of the parts of a paused answer."""
    content: list[Any] = []
    for response in responses:
        blocks = as_array(response.provider_fields.get("content"))
        if blocks:
            content += blocks
        elif response.text:
            content.append({"type": "text", "text": response.text})
    thoughts = [
        response.reasoning for response in responses if response.reasoning
    ]
    return replace(
        responses[-1],
        text="".join(response.text for response in responses),
        usage=_sum(_usages(responses)),
        reasoning="\n\n".join(thoughts),
        provider_fields={"content": content},
    )


def _usages(responses: Sequence[ModelResponse]) -> list[Usage]:
    return [response.usage for response in responses]


def _sum(usages: Sequence[Usage]) -> Usage:
    total = usages[0]
    for usage in usages[1:]:
        total += usage
    return total
