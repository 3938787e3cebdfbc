"""The answers of Responses: whole, or as the events of the Open Responses specification."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter

from podwright.usage import Usage
from podwright_service.openai_api.answer import Answer, usage_data
from podwright_service.openai_api.responses_request import ResponsesRequest
from podwright_service.problems import ProblemDetails

_usage = TypeAdapter(Usage)


class ResponseObject:
    """The response object in its states.

    Args:
        answer: The answer.
        request: The request, which the response repeats.
    """

    def __init__(self, answer: Answer, request: ResponsesRequest) -> None:
        self._answer, self._request = answer, request
        self._created = int(time.time())

    @property
    def item_id(self) -> str:
        """Id of the only item of the output."""
        return f"msg_{self._answer.run_id}"

    def finished(self, text: str, usage: Usage) -> dict[str, Any]:
        """The response at its end."""
        status = "incomplete" if self._answer.cut_off else "completed"
        details = {"reason": "max_output_tokens"} if self._answer.cut_off else None
        item = self.item(status, [text_part(text)])
        return self.response(
            status=status,
            completed_at=int(time.time()),
            incomplete_details=details,
            output=[item],
            usage=usage_data(usage, "input", "output"),
        )

    def failed(self, problem: ProblemDetails) -> dict[str, Any]:
        """The response of a run that failed."""
        usage = usage_data(_usage.validate_python(problem.usage), "input", "output") if problem.usage else None
        return self.response(status="failed", error={"code": problem.code, "message": problem.detail}, usage=usage)

    def item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        """The message in the output."""
        return {"type": "message", "id": self.item_id, "status": status, "role": "assistant", "content": content}

    def response(self, **changes: Any) -> dict[str, Any]:
        """The response in progress, with changes."""
        request = self._request
        form = request.text.format if request.text else None
        response: dict[str, Any] = {
            "id": f"resp_{self._answer.run_id}",
            "object": "response",
            "created_at": self._created,
            "completed_at": None,
            "status": "in_progress",
            "incomplete_details": None,
            "model": request.model,
            "previous_response_id": None,
            "instructions": request.instructions,
            "output": [],
            "error": None,
            "tools": [],
            "tool_choice": request.tool_choice or "auto",
            "truncation": "disabled",
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "text": {"format": {"type": "text"} if form is None else _format(form)},
            "top_p": 1 if request.top_p is None else request.top_p,
            "presence_penalty": request.presence_penalty or 0,
            "frequency_penalty": request.frequency_penalty or 0,
            "top_logprobs": 0,
            "temperature": 1 if request.temperature is None else request.temperature,
            "reasoning": {"effort": request.reasoning.effort if request.reasoning else None, "summary": None},
            "usage": None,
            "max_output_tokens": request.max_output_tokens,
            "max_tool_calls": None,
            "store": False,
            "background": False,
            "service_tier": "default",
            "metadata": request.metadata or {},
            "safety_identifier": request.safety_identifier,
            "prompt_cache_key": request.prompt_cache_key,
            "user": request.user,
        }
        return response | changes


def _format(form: Any) -> dict[str, Any]:
    if form.type != "json_schema":
        return {"type": form.type}
    # the specification has no schema here
    return {
        "type": "json_schema",
        "name": form.name,
        "description": form.description,
        "schema": None,
        "strict": bool(form.strict),
    }


def text_part(text: str) -> dict[str, Any]:
    """A text of the output."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class ResponseEvents:
    """The events of a streamed response, numbered from 0."""

    end = b"data: [DONE]\n\n"

    def __init__(self, state: ResponseObject) -> None:
        self._state, self._number, self._text = state, 0, ""

    @property
    def _at(self) -> dict[str, Any]:
        return {"item_id": self._state.item_id, "output_index": 0, "content_index": 0}

    def first(self) -> Iterator[dict[str, Any]]:
        """The events that begin the response."""
        for name in ("response.created", "response.in_progress"):
            yield self._event(name, response=self._state.response())
        yield self._event("response.output_item.added", output_index=0, item=self._state.item("in_progress", []))
        yield self._event("response.content_part.added", **self._at, part=text_part(""))

    def piece(self, text: str) -> dict[str, Any]:
        """The event with a piece of the answer."""
        self._text += text
        return self._event("response.output_text.delta", **self._at, delta=text, logprobs=[])

    def last(self, usage: Usage) -> Iterator[dict[str, Any]]:
        """The events that end the response."""
        response = self._state.finished(self._text, usage)
        yield self._event("response.output_text.done", **self._at, text=self._text, logprobs=[])
        yield self._event("response.content_part.done", **self._at, part=text_part(self._text))
        yield self._event("response.output_item.done", output_index=0, item=response["output"][0])
        yield self._event(f"response.{response['status']}", response=response)

    def failed(self, problem: ProblemDetails) -> dict[str, Any]:
        """The event that ends the response of a run that failed."""
        return self._event("response.failed", response=self._state.failed(problem))

    def _event(self, name: str, **fields: Any) -> dict[str, Any]:
        number = self._number
        self._number += 1
        return {"type": name, "sequence_number": number, **fields}
