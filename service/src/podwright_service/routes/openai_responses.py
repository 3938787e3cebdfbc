"""What `/openapi.json` says of the responses of the OpenAI-compatible routes."""

from __future__ import annotations

from podwright_service.routes.responses import (
    FAILED,
    REFUSED,
    RUN_HEADERS,
    SERVER_SENT_EVENT,
    Responses,
)

_NULLABLE_TEXT = {"type": ["string", "null"]}
_OPENAI_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "code": _NULLABLE_TEXT,
                "param": _NULLABLE_TEXT,
                "suggestion": {"type": "string"},
                "help_url": {"type": "string"},
                "run_id": {"type": "string"},
                "usage": {"type": "object"},
                "limit": {"type": "string"},
                "errors": {"type": "array", "items": {"type": "object"}},
            },
            "required": ["message", "type", "code", "param"],
        }
    },
    "required": ["error"],
}


def openai_errors(descriptions: dict[int, str]) -> Responses:
    """The error responses with these descriptions by status, in OpenAI's shape."""
    return {
        status: {
            "description": text,
            "content": {"application/json": {"schema": _OPENAI_ERROR}},
        }
        for status, text in sorted(descriptions.items())
        if status != 422  # it is a 400 there
    }


OPENAI_RESPONSES: Responses = {
    200: {
        "description": "The answer, or with `stream` its events.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/event-stream": {"itemSchema": SERVER_SENT_EVENT},
        },
        "headers": RUN_HEADERS,
    },
    **openai_errors(
        {
            **REFUSED,
            **FAILED,
            400: f"{REFUSED[400]} {REFUSED[422]}",
            404: "There is no model of this name here.",
        }
    ),
}
"""The responses of a route that answers in one of OpenAI's protocols."""
NO_MODEL = openai_errors({404: "There is no model of this name here."})
"""The error response of the route of a model."""
