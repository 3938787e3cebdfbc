"""Agents that hand their conversation over, as they are served."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.library.handing_over import PAID, desk, route
from tests.service.background_support import begin
from tests.service.openai_support import events_of, post, user
from tests.service.support import Serve, check_problem, pointers
from tests.service.test_decisions import decide, resumed, waiting

from podwright import (
    Agent,
    FunctionModel,
    Handoff,
    Remote,
    Workflow,
    register_provider,
)
from podwright.testing import ModelRequest, ModelResponse, ToolCall

MODEL = "routes/route"
register_provider("routes", lambda name, _: FunctionModel(route, name=name))
KEY = "a-key-of-a-caller-0123456789"


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


def run(client: httpx.Client, text: str, messages: Any = ()) -> Any:
    body = {"input": text, "messages": list(messages)}
    response = client.post("/run?trace=true", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def stream(client: httpx.Client, text: str, messages: Any = ()) -> list[Any]:
    body = {"input": text, "messages": list(messages)}
    response = client.post("/run/stream", json=body)
    lines = response.text.splitlines()
    return [
        json.loads(line.removeprefix("data:"))
        for line in lines
        if line.startswith("data:")
    ]


def test_who_speaks_is_in_the_stream(serve: Serve) -> None:
    """Also without the scope to read: the tokens of the agent that goes on, and the handoff, have its name."""
    for client in (
        serve(desk()),
        serve(desk(), api_keys=f"run:{KEY}"),
    ):
        client.headers["Authorization"] = f"Bearer {KEY}"
        events = stream(client, "billing faq")
        moves = [
            (event["from_agent"], event["to_agent"])
            for event in events
            if event.get("type") == "handoff"
        ]
        assert moves == [("triage", "billing"), ("billing", "faq")]
        said = [
            event
            for event in events
            if event.get("type") == "token" and event["component"] == "faq"
        ]
        assert "".join(event["text"] for event in said) == "faq answers"


def test_a_conversation_that_a_client_keeps(serve: Serve) -> None:
    client = serve(desk())
    talk = run(client, "billing")["messages"]
    again = stream(client, "", talk)
    assert again[-1]["output"] == "billing answers"
    assert "handoff" not in [event.get("type") for event in again]
    assert run(client, "faq", talk)["value"] == "faq answers"


class Talker:
    """A model that says something before it hands over, and thinks."""

    async def __call__(self, request: ModelRequest) -> ModelResponse:
        if request.messages[-1].role == "user":
            return ModelResponse(
                "One moment.", (ToolCall.of("transfer_to_billing"),)
            )
        return ModelResponse("It costs 5.")


def test_answers_on_the_openai_routes(serve: Serve) -> None:
    """What the first agent says and what the other one does are paragraphs; the usage is that of both."""
    model = FunctionModel(Talker(), name=MODEL)
    billing = Agent("billing", "You bill.", model)
    client = serve(Agent("triage", "Sort.", model, handoffs=[billing]))
    for protocol in ("chat", "responses"):
        body: dict[str, Any] = {"stream": True, "model": "triage"}
        body["messages" if protocol == "chat" else "input"] = [user("price?")]
        chunks = events_of(post(client, protocol, body))
        if protocol == "chat":
            texts = [
                choice["delta"].get("content") or ""
                for chunk in chunks
                for choice in chunk["choices"]
            ]
        else:
            texts = [
                chunk["delta"]
                for chunk in chunks
                if chunk["type"] == "response.output_text.delta"
            ]
        assert "".join(texts) == "One moment.\n\nIt costs 5."
    whole = post(
        client, "chat", {"model": "triage", "messages": [user("price?")]}
    ).json()
    assert whole["choices"][0]["message"]["content"] == "It costs 5."


def test_settings_and_instructions_of_a_caller_go_on(serve: Serve) -> None:
    requests: list[ModelRequest] = []

    def note(request: ModelRequest) -> Any:
        requests.append(request)
        if request.component == "triage":
            return [ToolCall.of("transfer_to_billing")]
        return "done"

    model = FunctionModel(note, name=MODEL)
    billing = Agent("billing", "You bill.", model, temperature=0.9)
    client = serve(Agent("triage", "Sort.", model, handoffs=[billing]))
    body = {
        "messages": [{"role": "system", "content": "Be brief."}, user("?")],
        "temperature": 0.1,
        "model": "triage",
    }
    post(client, "chat", body)
    second = requests[1]
    assert second.settings.get("temperature") == 0.1
    assert [message.text for message in second.messages[:3]] == [
        "You bill.",
        "Be brief.",
        "?",
    ]


def test_a_call_that_waits_in_a_run_that_nobody_stores(serve: Serve) -> None:
    client = serve(desk())
    response = client.post("/run", json={"input": "billing refund faq"})
    problem = check_problem(response, 409, "approval_required")
    assert problem["question"]["component"] == "billing"
    wrong = resumed(problem, decision={"values": {"amount": "much"}})
    refused = check_problem(client.post("/run", json=wrong), 422, "inputs_invalid")  # fmt: skip
    assert pointers(refused) == ["/decision/values/amount"]
    done = client.post("/run", json=resumed(problem))
    assert done.json() == {"output": "faq answers"}
    assert PAID == [5]


def test_a_call_that_waits_in_a_background_run(
    serve: Serve, sqlite_database: str
) -> None:
    client = serve(desk(), runs_database=sqlite_database)
    url = begin(client, "billing refund faq")
    assert waiting(client, url)["approval"]["tool"] == "refund"
    ended = decide(client, url, values={"amount": 3})
    assert ended["result"] == {"output": "faq answers"}
    assert ended["usage"]["model_calls"] == 4
    assert PAID == [3]


def test_the_limit_is_a_problem(serve: Serve) -> None:
    client = serve(desk(max_handoffs=1))
    problem = check_problem(
        client.post("/run", json={"input": "billing faq"}),
        422,
        "loop_limit_reached",
    )
    assert "after 1 handoffs" in problem["detail"]
    assert "max_handoffs" in problem["suggestion"]


def test_a_service_names_the_agents(serve: Serve) -> None:
    """Their models and tools are those of the component, and each has its metrics."""
    client = serve(desk())
    info = client.get("/info").json()
    assert info["blueprint"]["handoffs"] == [
        {"agent": "billing", "when": "About money."},
        "faq",
    ]
    assert info["tools"] == ["look", "refund"]
    assert set(info["accepts"]["agents"]) == {"triage", "billing", "faq"}
    run(client, "billing")
    metrics = client.get("/metrics").text
    (transfers,) = [
        line
        for line in metrics.splitlines()
        if line.startswith("podwright_tool_calls_total")
        and 'tool="transfer_to_billing"' in line
        and not line.endswith(" 0.0")
    ]
    assert 'component="triage"' in transfers
    assert 'component="billing"' in metrics


def test_an_agent_in_another_container_goes_on(serve: Serve) -> None:
    """With what was said and the input; the conversation stays with it."""
    model = FunctionModel(
        lambda request: f"{len(request.messages)} messages", name=MODEL
    )
    far = serve(Agent("billing", "You bill.", model))
    billing = Remote("billing", str(far.base_url))
    first = FunctionModel(
        lambda _: [ToolCall.of("transfer_to_billing")], name="offline/first"
    )
    client = serve(Agent("triage", "Sort.", first, handoffs=[billing]))
    result = run(client, "price?")
    assert result["value"] == "5 messages"
    talk = result["messages"]
    assert run(client, "and?", talk)["value"] == "6 messages"


# --- Inline blueprints ------------------------------------------------------------------------------------------------


def inline(name: str, *handoffs: Any, **config: Any) -> dict[str, Any]:
    return {
        "name": name,
        "instructions": "Go.",
        "config": {"model": MODEL, "max_loops": 3, **config},
        "handoffs": list(handoffs),
    }


def post_inline(client: httpx.Client, blueprint: Any, **more: Any) -> Any:
    body = {"type": "agent", "blueprint": blueprint, "input": "b c a", **more}
    return client.post("/run-blueprint", json=body)


def test_inline_agents_hand_off_in_circles(serve: Serve) -> None:
    client = serve(desk(), allowed_models=MODEL)
    agents = {"b": inline("b", "a", "c"), "c": inline("c", "a", "b")}
    done = post_inline(client, inline("a", "b"), agents=agents)
    assert done.json()["output"] == "a answers"
    step = {"type": "agent_step", "agent": "b", "name": "s"}
    flow = {"type": "Workflow", "name": "w", "steps": [step]}
    agents["a"] = inline("a", "b")
    whole = client.post(
        "/run-blueprint",
        json={"type": "workflow", "blueprint": flow, "agents": agents, "input": "c a b"},
    )  # fmt: skip
    assert whole.json()["b_output"] == "b answers"
    del agents["a"]
    refused = check_problem(
        client.post(
            "/run-blueprint",
            json={"type": "workflow", "blueprint": flow, "agents": agents, "input": "c"},
        ),
        422,
        "blueprint_invalid",
    )  # fmt: skip
    assert pointers(refused) == ["/agents/b/handoffs/0"]


def test_inline_agents_hand_off_to_those_of_the_service(serve: Serve) -> None:
    """Which hand off to their own, whatever a caller calls his."""
    client = serve(desk(), allowed_models=MODEL)
    body = {"blueprint": inline("a", "billing"), "type": "agent"}
    done = client.post("/run-blueprint", json={**body, "input": "billing faq triage"})  # fmt: skip
    assert done.json()["output"] == "triage answers"
    refused = post_inline(
        client,
        inline("a", "billing", "faq"),
        agents={"faq": inline("faq")},
    )
    assert "Two agents are called 'faq'" in refused.text
    missing = post_inline(client, inline("a", "billing", "fax"))
    assert pointers(check_problem(missing, 422, "blueprint_invalid")) == [
        "/blueprint/handoffs/1"
    ]
    # one of them by itself has all its agents, too
    step = {"type": "agent_step", "agent": "faq", "name": "s"}
    flow = {"type": "Workflow", "name": "w", "steps": [step]}
    whole = client.post(
        "/run-blueprint",
        json={"type": "workflow", "blueprint": flow, "input": "billing triage"},
    )
    assert whole.json()["faq_output"] == "triage answers"


@pytest.mark.parametrize(
    ("blueprint", "agents", "places"),
    [
        (inline("a", "b", max_handoffs=6), {}, ["/blueprint/config/max_handoffs"]),
        (inline("a", "b"), {}, ["/blueprint/config/max_handoffs"]),
        (inline("a", max_handoffs=3), {"b": inline("b", "a", max_handoffs=6)}, ["/agents/b/config/max_handoffs"]),
        (inline("a", *[f"b{number}" for number in range(33)], max_handoffs=3), {}, ["/blueprint/handoffs"]),
        (
            inline("a", "b", max_handoffs=3),
            {"b": inline("b", max_handoffs=3, model="openai/gpt-5")},
            ["/agents/b/config/model"],
        ),
        (
            {"type": "Pipeline", "name": "p", "steps": [{"type": "Agent", **inline("a", "b", max_handoffs=6)}]},
            {},
            ["/blueprint/steps/0/config/max_handoffs"],
        ),
        (
            inline("a", "b", max_handoffs=3),
            {
                "b": {"type": "Conductor", **inline("b"), "skills": [{"type": "Agent", "name": "c"}]},
                "c": inline("c", "b", max_handoffs=3),
            },
            ["/agents/b"],
        ),
    ],
    ids=["max", "default", "of another", "number", "model", "member", "circle"],
)  # fmt: skip
def test_limits_of_inline_blueprints_hold_for_all_agents(
    serve: Serve, blueprint: Any, agents: Any, places: list[str]
) -> None:
    client = serve(desk(), allowed_models=MODEL, max_loops=5, max_steps=32)
    for agent in (blueprint, *agents.values()):
        if not agent.get("handoffs", True):
            del agent["handoffs"]
    kind = blueprint.get("type", "agent").lower()
    response = client.post(
        "/run-blueprint",
        json={"type": kind, "blueprint": blueprint, "agents": agents, "input": "x"},
    )  # fmt: skip
    problem = check_problem(response, 422, "blueprint_invalid")
    assert set(places) <= set(pointers(problem))


def test_a_member_of_a_workflow_hands_off(serve: Serve) -> None:
    """Its agents are parts of the component."""
    client = serve(Workflow("flow", [desk()]))
    result = client.post("/run", json={"input": "billing faq"}).json()
    assert result["triage_output"] == "faq answers"
    assert client.get("/info").json()["tools"] == ["look", "refund"]


def test_when_is_kept(serve: Serve) -> None:
    other = Agent("b", "", "offline/echo")
    client = serve(
        Agent("a", "", "offline/echo", handoffs=[Handoff(other, "x")])
    )
    assert client.get("/info").json()["blueprint"]["handoffs"] == [
        {"agent": "b", "when": "x"}
    ]
