"""A server that is reached only after a moment, as by a pod that starts before the network knows it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.library.upstream import reply, upstream
from tests.ports import free_port

from podwright import Agent, Remote, errors
from podwright.client import AsyncClient
from podwright.models.protocols.http_model import HTTPModel
from podwright.models.retries import Retries

SOON = Retries(tries=2, first_wait=0.001)
"""Both attempts fail within milliseconds."""
LATE = 0.2
"""Seconds until the server listens; the attempt after those is later."""


async def ask_a_remote(port: int, retries: Retries) -> None:
    remote = Remote("writer", f"http://127.0.0.1:{port}")
    remote.retries = retries
    await remote.arun("x")


async def ask_a_model(port: int, retries: Retries) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HTTPModel, "retries", retries)
        url = f"http://127.0.0.1:{port}/v1"
        agent = Agent("a", "", "openai/gpt-4o", api_key="k", base_url=url)
        await agent.arun("x")


async def ask_a_service(port: int, retries: Retries) -> None:
    client = AsyncClient(f"http://127.0.0.1:{port}", retries=retries)
    await client.run("x")


@pytest.fixture(
    params=[ask_a_remote, ask_a_model, ask_a_service],
    ids=lambda ask: ask.__name__,
)
def ask(
    request: pytest.FixtureRequest,
) -> Callable[[int, Retries], Awaitable[None]]:
    return request.param


async def test_a_server_that_listens_later_is_reached(ask: Any) -> None:
    """However many attempts there were, a refused connection is tried again for a while."""
    port = free_port()
    asking = asyncio.create_task(ask(port, SOON))
    await asyncio.sleep(LATE)
    async with upstream(port=port) as server:
        server.answers([reply({}, 400)])
        with pytest.raises(errors.PodwrightError) as caught:
            await asking
    assert len(server.requests) == 1
    assert "400" in str(caught.value)


async def test_another_model_is_asked_soon(recorder: Any) -> None:
    """A model that is not reached has its `tries` only if there is another one."""
    agent = Agent(
        "a",
        "",
        "openai/gpt-4o",
        api_key="k",
        base_url=f"http://127.0.0.1:{free_port()}/v1",
        fallback=["offline/echo"],
        event_manager=recorder.manager,
    )
    assert await agent.arun("x") == "Echo: x"
    assert len(recorder.of("model_call_retried")) == 2


@pytest.mark.parametrize(
    ("retries", "has_connected", "passed", "wait"),
    [
        pytest.param(Retries(), False, 0.0, 0.5, id="at once"),
        pytest.param(Retries(), False, 4.5, 0.5, id="in time"),
        pytest.param(Retries(), False, 4.6, None, id="too late"),
        pytest.param(Retries(), True, 0.0, None, id="perhaps sent"),
        pytest.param(Retries(connect_time=0.0), False, 0.0, None, id="no time"),
        pytest.param(Retries(tries=1), False, 0.0, None, id="one attempt"),
    ],
)
def test_only_connecting_is_tried_again(
    retries: Retries, has_connected: bool, passed: float, wait: float | None
) -> None:
    """After the last of `tries`, a request that reached nobody is sent again while the time to connect lasts."""
    error = errors.RemoteConnectionError("No.")
    error.transient = True
    error.has_connected = has_connected
    assert retries.next_wait(error, retries.tries, passed) == wait
