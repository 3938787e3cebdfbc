"""Responses of the package `mcp` that get the status of a refusal, as the other routes have it.

The package answers a refused call with 200, and begins the stream of an older revision before the call is decided. Load
balancers, proxies and clients that try again look at the status. So nothing is sent before a response has content.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mcp_types as types
from mcp import MCPError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from podwright.data.json_data import JsonMapping
from podwright_service.mcp_api.problems import is_for_now, refusal


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A request that is refused for a moment."""

    status: int
    headers: Mapping[str, str] | None
    error: types.ErrorData


def refused(
    request: Request, problem: JsonMapping, error: Exception
) -> MCPError:
    """Return a problem as an error of JSON-RPC; if it is over in a moment, the response has its status too.

    Args:
        request: The request.
        problem: The problem.
        error: Its exception, which may have headers of the response.
    """
    answer = refusal(problem)
    if is_for_now(problem):
        request.state.mcp_refusal = _Refusal(
            problem["status"], getattr(error, "headers", None), answer.error
        )
    return answer


class RefusableResponse:
    """Sends the response of a request, or its refusal instead.

    Args:
        scope: The request.
        receive: Receives from its client.
        send: Sends to it.
        request_id: The id of the request in JSON-RPC.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        request_id: types.RequestId | None,
    ) -> None:
        self._request = Request(scope)
        self._receive = receive
        self._send = send
        self._request_id = request_id
        self._start: Message | None = None
        self._is_refused = False

    async def send(self, message: Message) -> None:
        """Send a message of the response; the application that makes it has this as `send`."""
        if self._is_refused:
            return
        if message["type"] == "http.response.start":
            self._start = message
            return
        if self._start is not None:
            answer: _Refusal | None = getattr(
                self._request.state, "mcp_refusal", None
            )
            if answer is not None:
                self._is_refused = True
                await self._refuse(answer)
                return
            await self._send(self._start)
            self._start = None
        await self._send(message)

    async def _refuse(self, answer: _Refusal) -> None:
        body = types.JSONRPCError(
            jsonrpc="2.0", id=self._request_id, error=answer.error
        )
        response = Response(
            body.model_dump_json(by_alias=True, exclude_unset=True),
            answer.status,
            answer.headers,
            "application/json",
        )
        await response(self._request.scope, self._receive, self._send)
