"""An assistant that is a graph of LangGraph: a draft, and its revision."""

from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any, TypedDict

from langchain_core.callbacks import BaseCallbackHandler
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

from podwright import FunctionAgent, RunContext

MODEL = "gpt-5-mini"


class State(TypedDict, total=False):
    task: str
    draft: str
    answer: str


class Reports(BaseCallbackHandler):
    """Reports each model call to the run."""

    raise_error = True  # a limit of the run is no accident

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._started: dict[Any, float] = {}

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


def model() -> ChatOpenAI:
    # other servers than OpenAI's own are not asked for the usage otherwise
    return ChatOpenAI(model=MODEL, stream_usage=True)


async def write(state: State) -> State:
    draft = await model().ainvoke(state["task"])
    return {"draft": draft.text}


async def revise(state: State) -> State:
    shorter = await model().ainvoke(f"Shorten this: {state['draft']}")
    return {"answer": shorter.text}


builder = StateGraph(State)
builder.add_node(write)
builder.add_node(revise)
builder.add_edge(START, "write")
builder.add_edge("write", "revise")
builder.add_edge("revise", END)
graph = builder.compile()


async def answer(task: str, context: RunContext) -> AsyncIterator[str]:
    async for chunk, metadata in graph.astream(
        {"task": task},
        config={"callbacks": [Reports(context)]},
        stream_mode="messages",
    ):
        # the draft is not for the reader
        if metadata["langgraph_node"] == "revise":
            yield chunk.text


assistant = FunctionAgent("assistant", answer, models=[f"openai/{MODEL}"])
