"""An assistant of LangChain with a tool."""

from collections.abc import AsyncIterator
from time import perf_counter

from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI

from podwright import FunctionAgent, RunContext

MODEL = "gpt-5-mini"


def price(product: str) -> str:
    """The price of a product."""
    return f"{product}: 3 EUR"


class Reports(BaseCallbackHandler):
    """Reports each model call to the run."""

    raise_error = True  # a limit of the run is no accident

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._started = {}

    def on_chat_model_start(self, model, messages, *, run_id, **_) -> None:
        self._started[run_id] = perf_counter()

    def on_llm_end(self, response, *, run_id, **_) -> None:
        usage = response.generations[0][0].message.usage_metadata
        sent = usage.get("input_token_details", {})
        received = usage.get("output_token_details", {})
        self._context.report_usage(
            f"openai/{MODEL}",
            input_tokens=usage["input_tokens"],
            output_tokens=usage["output_tokens"],
            cached_input_tokens=sent.get("cache_read", 0),
            cache_write_tokens=sent.get("cache_creation", 0),
            reasoning_tokens=received.get("reasoning", 0),
            seconds=perf_counter() - self._started.pop(run_id),
        )


async def answer(task: str, context: RunContext) -> AsyncIterator[str]:
    # other servers than OpenAI's own are not asked for the usage otherwise
    model = ChatOpenAI(model=MODEL, stream_usage=True)
    agent = create_agent(model, tools=[price], system_prompt="Look prices up.")
    messages = [*context.messages, {"role": "user", "content": task}]
    async for chunk, _ in agent.astream(
        {"messages": messages},
        config={"callbacks": [Reports(context)]},
        stream_mode="messages",
    ):
        if isinstance(chunk, AIMessageChunk):
            yield chunk.text


assistant = FunctionAgent("assistant", answer, models=[f"openai/{MODEL}"])
