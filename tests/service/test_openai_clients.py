"""The OpenAI-compatible routes, called by the libraries that people have."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
import pytest
from pydantic import SecretStr
from tests.service.openai_support import KEY, City, Clerk, helper, search, user
from tests.service.support import Serve

from podwright import Agent


@pytest.fixture
def clerk() -> Clerk:
    return Clerk()


@pytest.fixture
def service(serve: Serve, clerk: Clerk) -> httpx.Client:
    """A service with an API key, whose model answers as a clerk."""
    return serve(helper(clerk), api_keys=[f"run:{KEY}"])


SAID = ("Let me look.\n\nYou said: search", "You said: search, And now?")
"""The answers of two turns, the first with a tool of the component, as a stream has them."""


@pytest.mark.parametrize("protocol", ["chat", "responses"])
def test_openais_client(
    service: httpx.Client, clerk: Clerk, protocol: str
) -> None:
    """OpenAI's client holds two turns, the first with a tool of the component, streamed and whole."""
    with openai.OpenAI(
        base_url=f"{service.base_url}/v1", api_key=KEY, max_retries=0
    ) as client:
        conversation: list[Any] = [user("search")]
        for said in SAID:
            if protocol == "chat":
                with client.chat.completions.stream(
                    model="helper", messages=conversation
                ) as stream:
                    message = stream.get_final_completion().choices[0].message
                assert message.content == said
                conversation += [message.model_dump(), user("And now?")]
            else:
                with client.responses.stream(
                    model="helper", input=conversation, store=False
                ) as events:
                    response = events.get_final_response()
                assert response.output_text == said
                conversation += [
                    *(item.model_dump() for item in response.output),
                    user("And now?"),
                ]
        if protocol == "chat":
            whole = client.chat.completions.create(
                model="helper", messages=conversation[:3]
            )
            assert whole.choices[0].message.content == SAID[1]
        else:
            assert (
                client.responses.create(
                    model="helper", input=conversation[:3]
                ).output_text
                == SAID[1]
            )
    assert [request.messages[-1].role for request in clerk.requests] == [
        "user",
        "tool",
        "user",
        "user",
    ]


def test_langchain(service: httpx.Client, clerk: Clerk) -> None:
    """LangChain's ChatOpenAI holds a conversation, streams, and gets structured output and usage."""
    # imported here, because each process of a test run imports this file, and these take seconds
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(
        model="helper",
        base_url=f"{service.base_url}/v1",
        api_key=SecretStr(KEY),
        max_retries=0,
    )
    conversation = [
        SystemMessage("Be brief."),
        HumanMessage("Hello"),
        AIMessage("Yes?"),
        HumanMessage("And?"),
    ]
    answer = chat.invoke(conversation)
    assert answer.content == "You said: Be brief., Hello, And?"
    assert answer.usage_metadata is not None
    assert (
        answer.usage_metadata["input_tokens"],
        answer.usage_metadata["output_tokens"],
    ) == (
        100,
        10,
    )
    chunks = list(chat.stream("search", stream_usage=True))
    assert (
        "".join(str(chunk.content) for chunk in chunks)
        == "Let me look.\n\nYou said: search"
    )
    assert chat.with_structured_output(City).invoke("?") == City(
        name="Bern", country="Switzerland"
    )
    with pytest.raises(openai.BadRequestError):
        chat.bind_tools([search]).invoke("x")


@pytest.mark.parametrize("protocol", ["chat", "responses"])
def test_two_turns_of_langchain(service: httpx.Client, protocol: str) -> None:
    """LangChain sends its own answers back, streamed or not, in both protocols."""
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(
        model="helper",
        base_url=f"{service.base_url}/v1",
        api_key=SecretStr(KEY),
        max_retries=0,
        use_responses_api=protocol == "responses",
    )
    conversation: list[Any] = [HumanMessage("search")]
    for said in SAID:
        chunks = list(chat.stream(conversation))
        answer = chunks[0]
        for chunk in chunks[1:]:
            answer += chunk
        assert answer.text == said
        conversation += [
            AIMessage(
                **answer.model_dump(
                    exclude={"type", "tool_call_chunks", "chunk_position"}
                )
            )
        ]
        conversation += [HumanMessage("And now?")]
    assert chat.invoke(conversation[:3]).text == SAID[1]


@pytest.mark.parametrize("protocol", ["chat", "responses"])
def test_the_agents_sdk(service: httpx.Client, protocol: str) -> None:
    """An agent of openai-agents has the service as its model, over several turns, streamed too."""
    import agents  # here, because it takes seconds

    async def talk() -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{service.base_url}/v1", api_key=KEY, max_retries=0
        ) as client:
            kind = (
                agents.OpenAIChatCompletionsModel
                if protocol == "chat"
                else agents.OpenAIResponsesModel
            )
            agent = agents.Agent(
                name="outer",
                instructions="Be brief.",
                model=kind("helper", client),
            )
            outer = agents.Agent(name="outer", model=agent.model)
            config = agents.RunConfig(tracing_disabled=True)
            first = await agents.Runner.run(agent, "Hello", run_config=config)
            assert first.final_output == "You said: Be brief., Hello"
            again = [*first.to_input_list(), user("And?")]
            second = await agents.Runner.run(agent, again, run_config=config)
            assert second.final_output == "You said: Be brief., Hello, And?"
            assert second.context_wrapper.usage.input_tokens == 100
            streamed = agents.Runner.run_streamed(
                agent, "Hello", run_config=config
            )
            deltas = [
                event.data.delta
                async for event in streamed.stream_events()
                if event.type == "raw_response_event"
                and event.data.type == "response.output_text.delta"
            ]
            assert (
                "".join(deltas)
                == streamed.final_output
                == "You said: Be brief., Hello"
            )
            items: list[Any] = [user("search")]
            for said in SAID:
                turn = agents.Runner.run_streamed(
                    outer, items, run_config=config
                )
                _ = [event async for event in turn.stream_events()]
                assert turn.final_output == said
                items = [*turn.to_input_list(), user("And now?")]
            with pytest.raises(openai.InternalServerError):
                await agents.Runner.run(agent, "fail", run_config=config)

    asyncio.run(talk())


def test_a_service_is_a_model_of_another(
    serve: Serve, service: httpx.Client, clerk: Clerk
) -> None:
    """`openai/NAME` with the base URL of a service works as the model of an agent, cached tokens and writes counted."""
    agent = Agent(
        "outer",
        "Ask.",
        "openai/helper",
        api_key=KEY,
        base_url=f"{service.base_url}/v1",
    )
    result = agent.run("Hello", trace=True)
    assert result.value == "You said: Ask., Hello"
    used = result.usage
    assert (
        used.input_tokens,
        used.cached_input_tokens,
        used.cache_write_tokens,
        used.reasoning_tokens,
    ) == (
        100,
        40,
        20,
        4,
    )
    assert (
        "".join(
            event.text
            for event in agent.stream("Hello")
            if event.type == "token"
        )
        == result.value
    )
