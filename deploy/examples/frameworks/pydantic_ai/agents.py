"""An assistant of Pydantic AI with a tool."""

from collections.abc import AsyncIterator
from time import perf_counter

from pydantic_ai import (
    Agent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from pydantic_ai import RunContext as AgentContext
from pydantic_ai.capabilities import Hooks

from podwright import FunctionAgent, RunContext

MODEL = "gpt-5-mini"
hooks = Hooks()
agent = Agent(
    f"openai-chat:{MODEL}",
    deps_type=RunContext,
    instructions="Look prices up.",
    capabilities=[hooks],
    defer_model_check=True,
)


@agent.tool
def price(context: AgentContext[RunContext], product: str) -> str:
    """The price of a product."""
    context.deps.log.info("looking up %s", product)
    return f"{product}: 3 EUR"


@hooks.on.model_request
async def report(context, *, request_context, handler) -> ModelResponse:
    started = perf_counter()
    response = await handler(request_context)
    usage = response.usage
    context.deps.report_usage(
        f"openai/{MODEL}",
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_input_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.details.get("reasoning_tokens", 0),
        seconds=perf_counter() - started,
    )
    return response


def history(context: RunContext) -> list[ModelMessage]:
    """The earlier turns of the conversation."""
    messages: list[ModelMessage] = []
    for message in context.messages:
        text = message["content"]
        if message["role"] == "user":
            messages.append(ModelRequest([UserPromptPart(text)]))
        else:
            messages.append(ModelResponse([TextPart(text)]))
    return messages


async def answer(task: str, context: RunContext) -> AsyncIterator[str]:
    async with agent.run_stream(
        task, deps=context, message_history=history(context)
    ) as result:
        async for piece in result.stream_text(delta=True, debounce_by=None):
            yield piece


assistant = FunctionAgent("assistant", answer, models=[f"openai/{MODEL}"])
