"""What `/openapi.json` says of headers and responses that several routes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from podwright.messages.headers import (
    BUDGET,
    FINISH_REASON,
    HOPS,
    RUN_ID,
    USAGE,
    format_usage,
)
from podwright.messages.usage import Usage
from podwright_service.http.errors.problems import ProblemDetails

Responses = dict[int | str, dict[str, Any]]

_DENIED = {
    401: "The API key is missing or unknown.",
    403: "The API key lacks the scope of this route.",
}
REFUSED = {
    400: "The body is not valid JSON, or a header is malformed.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The headers do not announce plain JSON in UTF-8.",
    422: "The request or the blueprint is invalid, the run reached a limit, or the model refused; `errors` lists the "
    "places.",
    500: "The service or the component is at fault.",
    503: "The service is at capacity; try again after the seconds in `Retry-After`. Or it stopped.",
}
_IN_PROGRESS = {
    409: "A request with this Idempotency-Key is in progress, or its response was too large to store."
}
FAILED = {
    409: f"The workflow waits for approval: send `context` as `inputs`, with `resume_path`. {_IN_PROGRESS[409]}",
    502: "A model, a tool or the component failed.",
    503: f"{REFUSED[503]} Or a model or a remote component cannot serve requests now, likewise with `Retry-After`.",
    504: "The run took too long.",
}


def _header(
    description: str, example: str = "", **schema: Any
) -> dict[str, Any]:
    header: dict[str, Any] = {
        "description": description,
        "schema": {"type": "string", **schema},
    }
    if example:
        header["example"] = example
    return header


AS_DATA = "Whether the context of a workflow has data where its outputs are data, instead of texts."
"""What the query parameter `data` means."""
RUN_HEADERS = {
    RUN_ID: _header("Id of the run."),
    USAGE: _header(
        "What the run used, as a dictionary of structured fields (RFC 9651). The cost is in USD, a string, and missing "
        "if a price is unknown.",
        'input_tokens=24, output_tokens=8, cost="0.0000084"',
    ),
    FINISH_REASON: _header(
        "How the answer of the model ended, if it is not `stop`: `refusal` if it is the words by which the model "
        "refused, `length` if it was cut off, `unknown` if it may not be whole.",
        "refusal",
    ),
    "Idempotency-Replayed": _header(
        "Present on the stored response to an earlier request.", const="true"
    ),
}
"""Response headers of a run."""
EXPOSED_HEADERS = (
    *RUN_HEADERS,
    "Allow",
    "Retry-After",
    "traceresponse",
    "WWW-Authenticate",
)
"""Response headers that web pages of other origins may read."""
SERVER_SENT_EVENT = {
    "type": "object",
    "properties": {
        name: {"type": "string"} for name in ("event", "id", "data")
    },
    "required": ["event", "data"],
}
_REQUEST_HEADERS = {
    "Idempotency-Key": _header(
        "A text such as a UUID. A request that is sent again with the same key gets the response to the first one.",
        minLength=1,
        maxLength=255,
        pattern='^([ !#-~]+|"[ !#-~]+")$',
    ),
    BUDGET: _header(
        "Seconds, tokens, model calls and USD that this run may use, each optional, as a dictionary of structured "
        'fields (RFC 9651): `wall_time=12.5, tokens=1000, model_calls=10, cost="0.5"`. They can only lower the limits '
        "of the service.",
    ),
    HOPS: _header(
        "How many more containers the run may pass through.",
        pattern="^[0-9]{1,15}$",
    ),
    "Podwright-Resumes": _header(
        "`traceresponse` of the stopped workflow's response: links the two runs in traces."
    ),
    "traceparent": _header(
        "The trace that the run becomes a part of (W3C Trace Context), such as "
        "`00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`.",
    ),
}
# without examples, which Swagger UI would send
RUN_PARAMETERS = {
    "parameters": [
        {"name": name, "in": "header", **text}
        for name, text in _REQUEST_HEADERS.items()
    ]
}
"""Request headers of a run, for `openapi_extra`."""


def problems(descriptions: dict[int, str]) -> Responses:
    """The error responses with these descriptions by status."""
    return {
        status: {"model": ProblemDetails, "description": text}
        for status, text in sorted(descriptions.items())
    }


BODY_PROBLEMS = problems(REFUSED)
"""The error responses of a route with a JSON body, for `responses`."""
RUN_PROBLEMS = problems(REFUSED | FAILED)
"""Those of a route that answers after a run."""
STREAM_RESPONSES: Responses = {
    200: {
        "description": "An event for each event of the run, with its `type` as name and its `seq` as id; then `result` "
        "with the response of `/run`, or `problem` with the problem.",
        "content": {"text/event-stream": {"itemSchema": SERVER_SENT_EVENT}},
        "headers": {RUN_ID: RUN_HEADERS[RUN_ID]},
    },
    **problems(REFUSED | _IN_PROGRESS),
}
"""The responses of a route that answers when a run begins."""
DATABASE_PROBLEMS = problems(
    {
        422: "The request is invalid; `errors` lists the places.",
        500: REFUSED[500],
        503: "The database cannot be reached; try again after the seconds in `Retry-After`.",
    }
)
"""The error responses of the routes of all background runs."""
READ_PROBLEMS = DATABASE_PROBLEMS | problems({404: "There is no such run."})
"""Those of a route that reads a background run."""
CONVERSATION_PROBLEMS = DATABASE_PROBLEMS | problems(
    {404: "There is no such conversation."}
)
"""Those of a route of one conversation."""
CHANGE_PROBLEMS = READ_PROBLEMS | problems(
    {409: "The run is in another state, or waits in another attempt."}
)
"""Those of a route that changes a background run."""
BACKGROUND_PARAMETERS = {
    "parameters": [
        entry
        for entry in RUN_PARAMETERS["parameters"]
        if entry["name"] != "Podwright-Resumes"
    ]
}
"""Request headers of a background run."""
EVENT_STREAM: Responses = {
    200: {key: STREAM_RESPONSES[200][key] for key in ("description", "content")}
}
"""The response with the events of a background run."""
_WRONG_HOST = {
    400: "The header `Host` is missing or repeated, or its name is not allowed."
}


def common_responses(
    *,
    has_keys: bool,
    describe: Callable[[dict[int, str]], Responses] = problems,
) -> Responses:
    """The error responses of all routes: for an invalid header `Host`, and if there are API keys, for a wrong one."""
    descriptions = dict(_WRONG_HOST)
    if has_keys:
        descriptions |= _DENIED
    return describe(descriptions)


def run_headers(
    run_id: str, usage: Usage, finish_reason: str
) -> dict[str, str]:
    """The response headers of a run that has finished."""
    headers = {RUN_ID: run_id, USAGE: format_usage(usage)}
    if finish_reason != "stop":
        headers[FINISH_REASON] = finish_reason
    return headers
