"""Asks for data with agents of pydantic-ai, and prints what it got as JSON. ARGUMENTS: the URL of the service."""

import asyncio
import json
import sys
from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Contact(BaseModel):
    """A contact."""

    name: str
    email: Annotated[str, Field(pattern="^[^@]+@[^@]+$")]


async def ask(kind: Any, url: str) -> list[str]:
    """The names of two turns, of a stream, and of an answer that is taken at the second attempt."""
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
    model = kind("helper", provider=provider)
    agent = Agent(model, output_type=Contact)
    first = await agent.run("x")
    second = await agent.run("again", message_history=first.all_messages())
    async with agent.run_stream("x") as stream:
        streamed = await stream.get_output()
    strict = Agent(model, output_type=Contact)

    @strict.output_validator
    def check(contact: Contact) -> Contact:
        if contact.name == "first":
            raise ModelRetry("Another one.")
        return contact

    corrected = await strict.run("which?")
    outputs = [first.output, second.output, streamed, corrected.output]
    return [output.name for output in outputs]


async def main() -> None:
    """Ask by both protocols."""
    kinds = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}
    got = {name: await ask(kind, sys.argv[1]) for name, kind in kinds.items()}
    print(json.dumps(got))


asyncio.run(main())
