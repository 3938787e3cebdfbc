"""A component in another container, which is worked with like one that is here.

It speaks to the `/run/stream` of a Podwright service. What the remote tells becomes part of this run: its events
stand in the trace under their step, its usage adds upward, and what is left of the limits travels down to it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from typing_extensions import Unpack

from podwright import headers
from podwright._version import __version__
from podwright.blueprints.schema import Name
from podwright.budget import borrow
from podwright.components.base import PromptComponent
from podwright.components.chat import to_context
from podwright.components.options import DescribedOptions, apply_options
from podwright.components.relay import Context, Relay, told
from podwright.deadlines import Deadline
from podwright.errors import (
    ConfigurationError,
    InputError,
    PodwrightError,
    RemoteHopsError,
    RemoteTimeoutError,
)
from podwright.events import Kind
from podwright.json_data import to_json_data, to_text
from podwright.models.retries import Retries, Timeouts, with_retries
from podwright.models.target import Target
from podwright.run import Run, Task
from podwright.usage import RunLimits

PROPAGATORS: list[Callable[[Run], Mapping[str, str]]] = []
"""Functions of a remote's run here, each giving headers for its request, such as `traceparent`."""

_log = logging.getLogger("podwright")


class Remote(PromptComponent):
    """A component that runs in another container.

    Args:
        name: Its name here, which blueprints and steps use; its output in a workflow is `<name>_output`.
        url: Where its service is, such as "http://writer:8000". A blueprint never has it.
        kind: What kind of component it is, as the events of its run here say.
        timeout: Seconds that a run there may take; by default what is left of the run around it.
        **options: A `description`, its `api_key`, `limits`, `verbose`; see `DescribedOptions`.

    Raises:
        ConfigurationError: The name, the URL or the key cannot be one.
    """

    __slots__ = ("_headers", "_target", "_timeout", "kind")

    timeouts: Timeouts = Timeouts(connect=5.0, first_byte=60.0, idle=45.0)
    """Seconds to connect, to the first byte, and between two bytes: three missed heartbeats. Set on the class."""
    retries: Retries = Retries()
    """How often a request is sent again that began no run, or was lost before any answer. Set on the class."""

    def __init__(
        self,
        name: str,
        url: str,
        kind: Kind = "agent",
        timeout: float | None = None,
        **options: Unpack[DescribedOptions],
    ) -> None:
        try:
            blueprint: dict[str, Any] = {"type": "Agent", "name": TypeAdapter(Name).validate_python(name)}
        except ValidationError as error:
            said = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise ConfigurationError(f"A remote component cannot be called {name!r}: {said}.") from error
        kept = apply_options(blueprint, options, settings=False)
        if "base_url" in options:
            raise ConfigurationError(f"The remote component '{name}' has a url, and no base_url.")
        super().__init__(blueprint, kept)
        self.kind = kind  # pyright: ignore[reportAttributeAccessIssue] - of all kinds, only this one is known by instance
        if timeout is not None and not timeout >= 0:
            raise ConfigurationError(
                f"The time-out of the remote component '{name}' is a number of seconds, 0 or more."
            )
        self._timeout = timeout
        self._target = _address(name, url)
        self._headers = {
            "Accept": "text/event-stream",
            "Content-Type": "application/json",
            "User-Agent": f"podwright/{__version__}",
        }
        key = (options.get("api_key") or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise ConfigurationError(f"The key for the remote component '{name}' has characters that no key has.")
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def text(self, value: Any) -> str:
        """What a remote workflow wrote last, and what any other component answered."""
        if isinstance(value, Context) and value:
            return to_text(next(reversed(value.values())))
        return to_text(value)

    async def perform(self, run: Run, task: Task) -> Any:
        """Have the remote do it, and relay what it tells."""
        if task.response_model not in (None, str):
            raise InputError(
                f"'{self.name}' runs in another container, which is not given a response model.",
                suggestion="Give the answer to an agent that runs here, and that one the response model.",
            )
        if run.hops < 1:
            raise told(
                self.name, RemoteHopsError(f"'{self.name}' was not called: the run may pass no further container.")
            )
        context = to_context(task.input)
        body = {"input": task.input} if isinstance(task.input, str) else {"inputs": to_json_data(context)}
        data = json.dumps(body).encode()
        deadline = Deadline(self._timeout)
        try:
            with deadline:
                return await self._within_limits(run, data)
        except TimeoutError as error:
            if not deadline.expired:
                raise
            late = RemoteTimeoutError(f"The remote '{self.name}' took longer than {self._timeout:g} s.")
            raise told(self.name, late) from error

    async def _within_limits(self, run: Run, data: bytes) -> Any:
        from podwright.components.exchange import Exchange  # an HTTP client, which takes a while to import

        exchange = Exchange(self.name, self._target, self.timeouts)
        loan = await borrow(run.budgets)
        relay = Relay(run, self.name)
        headers = {**self._headers, "Idempotency-Key": os.urandom(16).hex()}

        async def attempt() -> Any:
            granted = _granted(run, loan.limits, self._timeout)
            return await exchange.attempt(data, headers | self._propagated(run) | granted, relay)

        known = False
        try:
            value = await with_retries(attempt, math.inf, self.retries, left=lambda: run.time_left)
            known = True
            return value
        except asyncio.CancelledError:
            relay.abort(None)
            raise
        except PodwrightError as error:
            known = relay.ended or not relay.sent
            relay.abort(error)
            raise
        finally:
            if known:
                loan.settle(relay.usage, relay.calls)
            else:
                loan.settle(relay.usage, relay.calls)

    def _propagated(self, run: Run) -> dict[str, str]:
        headers: dict[str, str] = {}
        for propagate in PROPAGATORS:
            try:
                found = dict(propagate(run))
                self._target.head(found)
                headers |= found
            except Exception:  # noqa: BLE001 - the run does not depend on what is told of it
                _log.exception("A propagator of run %s raised.", run.id)
        return headers


def _address(name: str, url: object) -> Target:
    """Where the remote's runs begin.

    Raises:
        ConfigurationError: The URL is none that a service has; it is not repeated, for it may hold a secret.
    """
    try:
        if isinstance(url, str):
            return Target.below(url, "/run/stream")
    except ValueError:
        pass
    raise ConfigurationError(
        f"What is given for the remote component '{name}' is no http URL of a service.",
        suggestion="Write it as http://host:port, without user, key, query or fragment.",
    )


def _granted(run: Run, limits: RunLimits, timeout: float | None) -> dict[str, str]:
    """The headers that say what the remote may use, and how far it may go (RFC 9651)."""
    time_left = max(0.0, min(run.time_left, math.inf if timeout is None else timeout))
    wall_time = time_left if time_left < math.inf else None
    budget = headers.format_budget(RunLimits(wall_time, limits.model_calls, limits.tokens, limits.cost))
    return {"Podwright-Hops": str(run.hops - 1)} | ({"Podwright-Budget": budget} if budget else {})
