"""An assistant that calls a model with the OpenAI SDK."""

from collections.abc import AsyncIterator
from time import perf_counter

from openai import AsyncOpenAI

from podwright import FunctionAgent, RunContext

MODEL = "gpt-5-mini"


async def answer(task: str, context: RunContext) -> AsyncIterator[str]:
    started = perf_counter()
    async with AsyncOpenAI() as client:
        chunks = await client.chat.completions.create(
            model=MODEL,
            messages=[*context.messages, {"role": "user", "content": task}],
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in chunks:
            for choice in chunk.choices:
                yield choice.delta.content or ""
            if chunk.usage:
                usage = chunk.usage
    context.report_usage(
        f"openai/{MODEL}",
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_input_tokens=usage.prompt_tokens_details.cached_tokens,
        reasoning_tokens=usage.completion_tokens_details.reasoning_tokens,
        seconds=perf_counter() - started,
    )


assistant = FunctionAgent("assistant", answer, models=[f"openai/{MODEL}"])
