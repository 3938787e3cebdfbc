"""An assistant that is a graph of LangGraph: a draft, a person's decision on some of them, and its revision."""

from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any, TypedDict

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from podwright import ApprovalStep, FunctionAgent, RunContext, Workflow

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


async def check(state: State) -> State:
    if "refund" not in state["task"]:
        return {}
    reply = interrupt({"question": "Promise this?", "draft": state["draft"]})
    if reply["decision"] == "reject":
        return {"draft": f"No refund: {reply['comment']}"}
    return {"draft": reply["value"]["draft"]}


async def revise(state: State) -> State:
    shorter = await model().ainvoke(f"Shorten this: {state['draft']}")
    return {"answer": shorter.text}


builder = StateGraph(State)
builder.add_node(write)
builder.add_node(check)
builder.add_node(revise)
builder.add_edge(START, "write")
builder.add_edge("write", "check")
builder.add_edge("check", "revise")
builder.add_edge("revise", END)
# with several processes, a checkpointer that keeps the graphs in a database
checkpoints = InMemorySaver()
graph = builder.compile(checkpointer=checkpoints)

asking = Workflow(
    "asking",
    [ApprovalStep("{value}", "check", edit={"value": {}}, on_reject=[])],
)


async def ask(value: Any) -> dict[str, Any]:
    """What a person has decided about a value of `interrupt`; the run pauses here until one has."""
    result = await asking.arun({"value": value}, trace=True)
    return {**result.data["check"], "value": result.data["value"]}


async def next_input(
    task: str, config: RunnableConfig, replies: dict[str, Any]
) -> Command | State | None:
    """What the graph goes on with: all questions so far are asked in their order, of which most are answered."""
    states = [state async for state in graph.aget_state_history(config)]
    for state in reversed(states):
        for question in state.interrupts:
            if str(question) not in replies:
                replies[str(question)] = await ask(question.value)
    if not states:
        return {"task": task}
    pending = states[0].interrupts
    if not pending:
        return None
    return Command(
        resume={question.id: replies[str(question)] for question in pending}
    )


async def answer(task: str, context: RunContext) -> AsyncIterator[str]:
    # the key is the same when the function is called again after a decision
    thread = str(context.call_key)
    config = RunnableConfig(
        configurable={"thread_id": thread}, callbacks=[Reports(context)]
    )
    replies: dict[str, Any] = {}
    while True:
        async for chunk, metadata in graph.astream(
            await next_input(task, config, replies),
            config,
            stream_mode="messages",
        ):
            # the draft is not for the reader
            if metadata["langgraph_node"] == "revise":
                yield chunk.text
        if not (await graph.aget_state(config)).next:
            break
    await checkpoints.adelete_thread(thread)


assistant = FunctionAgent("assistant", answer, models=[f"openai/{MODEL}"])
