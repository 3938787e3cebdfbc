"""Idempotency keys of calls: a call with a key is performed once, however often its client sends it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from fastapi import Request
from starlette.responses import Response

from podwright.data.json_data import JsonMapping
from podwright.messages.headers import IDEMPOTENCY_KEY, RUN_ID
from podwright_service.http.errors.problems import (
    MEDIA_TYPE,
    RequestError,
)
from podwright_service.http.idempotency import (
    RequestKey,
    digest_of_key,
    key_of,
)
from podwright_service.mcp_api.problems import error_result

META_KEY = "podwright/idempotency-key"
"""The name of the idempotency key in the `_meta` of a call."""


def key_of_call(
    request: Request, meta: Mapping[str, Any] | None, arguments: JsonMapping
) -> RequestKey | None:
    """Return the idempotency key of a call, from `_meta` or the header `Idempotency-Key`; None if it has none.

    Raises:
        RequestError: 400: it is invalid, or the two differ.
    """
    digests: set[str] = set()
    if meta and META_KEY in meta:
        key = meta[META_KEY]
        if not isinstance(key, str):
            key = ""
        digests.add(digest_of_key(request, key, f"text '{META_KEY}'"))
    if IDEMPOTENCY_KEY in request.headers:
        digests.add(key_of(request))
    if len(digests) > 1:
        raise RequestError(
            400,
            "idempotency_key_invalid",
            f"The header '{IDEMPOTENCY_KEY}' is another key than '{META_KEY}'.",
            "Send one of them.",
        )
    if not digests:
        return None
    # neither the id of the message nor its metadata are the same when a call is repeated
    call = json.dumps(arguments, sort_keys=True)
    fingerprint = hashlib.sha256(f"tools/call\n{call}".encode()).hexdigest()
    return RequestKey(digests.pop(), fingerprint)


def to_response(
    result: types.CallToolResult, status: int, run_id: str | None
) -> Response:
    """Return the result of a call as a response that can be stored.

    Args:
        result: The result.
        status: The HTTP status of the same run as a `POST /run`.
        run_id: The run; None if none began.
    """
    headers = {RUN_ID: run_id} if run_id else None
    body = result.model_dump_json(by_alias=True, exclude_none=True)
    return Response(body, status, headers, "application/json")


def from_response(response: Response) -> types.CallToolResult:
    """Return the result of a call from a stored response."""
    content = bytes(response.body)
    # a run that had gone on from a saved state, and whose caller left
    if response.headers.get("content-type", "").startswith(MEDIA_TYPE):
        return error_result(json.loads(content))
    return types.CallToolResult.model_validate_json(content)
