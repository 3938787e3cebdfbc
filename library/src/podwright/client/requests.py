"""The requests of a client to one service: its key, the bodies, the errors of refusals."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from podwright.client.errors import ProblemError
from podwright.connection.problems import parse_problem
from podwright.connection.service_connection import (
    Request,
    ServiceConnection,
    service_url,
)
from podwright.data.json_data import JsonObject, to_request_bytes
from podwright.data.text import short_repr
from podwright.errors import ConfigurationError, InputError
from podwright.messages import headers as header_names
from podwright.messages.usage import RunLimits
from podwright.models.http.client import Response
from podwright.models.http.urls import is_header_value
from podwright.models.retries import Retries, Timeouts

Input = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""The input of a run: a text, named inputs, or for agents and conductors texts, images and files."""

_TIMEOUTS = Timeouts(connect=10.0, idle=60.0)
"""Seconds; a stream has a heartbeat every 15 seconds."""
_LONGEST_WAIT = 60.0
"""Seconds: a service that asks for more before the next request is not asked again."""
_IDEMPOTENCY_KEY = header_names.IDEMPOTENCY_KEY.lower()


class RunOptions(TypedDict, total=False):
    """The options of a run."""

    messages: Sequence[Mapping[str, Any]]
    """Earlier turns, as `ExecutionResult.messages` has them."""
    start_step: int
    """Workflows: index of the step to start from."""
    resume_path: Sequence[int] | None
    """Workflows: where to resume, with the context of the stopped run as input."""
    decision: Mapping[str, Any]
    """What a person has decided about the question of the stopped run: `{"decision": …, "comment": …, "values": {…}}`,
    each optional; by default it is approved."""
    user: str
    """For whom the run is."""
    session: str
    """The session that the run is a part of."""
    metadata: Mapping[str, str]
    """What else the functions of the run are to know."""
    limits: RunLimits
    """What the run may use; the service's own limits hold too."""
    idempotency_key: str
    """By default a new one: a request that is lost is sent again with it, and runs once."""
    headers: Mapping[str, str]
    """Further request headers, such as `traceparent`."""


class ClientConnection(ServiceConnection):
    """The connection of a client to its service.

    Args:
        url: Address of the service, such as "http://localhost:8000".
        api_key: An API key that it accepts.
        timeout: Seconds from a request to its response; for a run, that is the time of the run.
        retries: How often a request is repeated that was lost or came at a bad time.

    Raises:
        ConfigurationError: The address, the key or the time-out is invalid.
    """

    def __init__(
        self, url: str, api_key: str | None, timeout: float, retries: Retries
    ) -> None:
        url = service_url(url, "the service")
        self._key = (api_key or "").strip()
        if not is_header_value(self._key):
            raise ConfigurationError("The API key has invalid characters.")
        if not timeout > 0:
            raise ConfigurationError(
                f"Invalid timeout {short_repr(timeout)}.",
                suggestion="Pass a number of seconds above 0, or leave it out.",
            )
        super().__init__(
            url=url,
            timeouts=replace(_TIMEOUTS, first_byte=timeout),
            retries=retries,
        )

    def time_left(self) -> float:
        """Return the seconds that a service may ask to wait before the next attempt."""
        return _LONGEST_WAIT

    async def refusal(self, response: Response) -> ProblemError:
        """Make the error with the problem document of a response."""
        data = await response.read()
        if self._key:
            data = data.replace(self._key.encode(), b"***")
        problem = parse_problem(data)
        return ProblemError(problem, response.status, response.via)

    async def json(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[JsonObject, Mapping[str, str]]:
        """Send a request, and return the JSON object of its response, and the headers.

        Raises:
            ProblemError: The service refused the request, or the run failed.
            RemoteError: The service could not be reached, or what answered is not one.
        """
        request = self.request(method, path, body, headers)
        async with self.open(request) as response:
            data = await response.read()
        return self.json_object(data), response.headers

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Request:
        """Make a request, which is repeated only if it reads something or has an idempotency key.

        Raises:
            InputError: The path, the body or a header is invalid.
        """
        if not path.startswith("/"):
            raise InputError(
                f"The path {short_repr(path)} does not begin with '/'."
            )
        own_headers = dict(headers or {})
        may_repeat = method == "GET" or _IDEMPOTENCY_KEY in own_headers
        if self._key:
            own_headers["Authorization"] = f"Bearer {self._key}"
        data = b""
        if body is not None:
            own_headers["Content-Type"] = "application/json"
            data = _to_json(body)
        for name, value in own_headers.items():
            if not is_header_value(value):
                raise InputError(f"The header '{name}' has invalid characters.")
        return Request(method, path, data, lambda: own_headers, may_repeat)


def run_request(
    run_input: Input, options: RunOptions
) -> tuple[dict[str, Any], dict[str, str]]:
    """The body and the headers of the request for a run."""
    body: dict[str, Any] = dict(options)
    limits = options.get("limits")
    for name in ("limits", "idempotency_key", "headers"):
        body.pop(name, None)
    key = "inputs" if isinstance(run_input, Mapping) else "input"
    body[key] = run_input
    headers = {
        name.lower(): value
        for name, value in options.get("headers", {}).items()
    }
    headers.setdefault(
        _IDEMPOTENCY_KEY, options.get("idempotency_key") or uuid.uuid4().hex
    )
    if limits is not None:
        headers[header_names.BUDGET] = header_names.format_budget(limits)
    return body, headers


def _to_json(body: Any) -> bytes:
    try:
        return to_request_bytes(body)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The input is not JSON data: {error}.",
            suggestion="Pass texts, numbers, lists and dictionaries of such.",
        ) from error
