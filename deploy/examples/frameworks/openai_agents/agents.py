"""An assistant of the OpenAI Agents SDK with a tool."""

from collections.abc import AsyncIterator
from time import perf_counter

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunConfig,
    RunHooks,
    Runner,
    function_tool,
)
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent

from podwright import FunctionAgent, RunContext

MODEL = "gpt-5-mini"


@function_tool
def price(product: str) -> str:
    """The price of a product."""
    return f"{product}: 3 EUR"


class Reports(RunHooks[RunContext]):
    """Reports each model call to the run."""

    async def on_llm_start(self, context, agent, prompt, items) -> None:
        self._started = perf_counter()

    async def on_llm_end(self, context, agent, response) -> None:
        usage = response.usage
        context.context.report_usage(
            f"openai/{MODEL}",
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_input_tokens=usage.input_tokens_details.cached_tokens,
            reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
            seconds=perf_counter() - self._started,
        )


async def answer(task: str, context: RunContext) -> AsyncIterator[str]:
    async with AsyncOpenAI() as client:
        agent = Agent(
            "assistant",
            instructions="Look prices up.",
            model=OpenAIChatCompletionsModel(MODEL, client),
            # other servers than OpenAI's own are not asked for it otherwise
            model_settings=ModelSettings(include_usage=True),
            tools=[price],
        )
        result = Runner.run_streamed(
            agent,
            [*context.messages, {"role": "user", "content": task}],
            context=context,
            hooks=Reports(),
            # its traces go to OpenAI otherwise
            run_config=RunConfig(tracing_disabled=True),
        )
        async for event in result.stream_events():
            if event.type == "raw_response_event" and isinstance(
                event.data, ResponseTextDeltaEvent
            ):
                yield event.data.delta


assistant = FunctionAgent("assistant", answer, models=[f"openai/{MODEL}"])
