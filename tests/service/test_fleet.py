"""A caller and two remote agents, each a process of its own: linked traces, and limits that hold under load."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers import NO_AUTHORITIES, plain_http
from tests.service.support import (
    Address,
    Command,
    check_problem,
    discard_output,
)

import podwright
from podwright.messages.usage import Usage
from podwright_service.testing import (
    ModelRequest,
    ModelResponse,
    ModelStub,
    Span,
    SpanCollector,
    ToolCall,
)

MODEL = "openai/gpt-4o-mini"
RUNS = 100
CLIENT = 3
SERVER = 2
"""Kinds of spans, as OTLP numbers them."""
MEMBERS = [
    {"type": "Agent", "name": "writer"},
    {"type": "Agent", "name": "editor"},
]
CALLERS: dict[str, dict[str, Any]] = {
    "flow": {
        "type": "Workflow",
        "name": "flow",
        "steps": [
            {
                "type": "parallel_step",
                "name": "both",
                "branches": [
                    [
                        {
                            "type": "agent_step",
                            "agent": "writer",
                            "name": "write",
                        }
                    ],
                    [{"type": "agent_step", "agent": "editor", "name": "edit"}],
                ],
            },
            {"type": "agent_step", "agent": "writer", "name": "last"},
        ],
    },
    "line": {"type": "Pipeline", "name": "line", "steps": MEMBERS},
    "lead": {
        "type": "Conductor",
        "name": "lead",
        "instructions": "Lead.",
        "skills": MEMBERS,
        "config": {"model": MODEL, "max_loops": 4, "max_tokens": 60},
    },
}
AGENT = {
    "instructions": "Write.",
    "config": {"model": MODEL, "max_loops": 2, "max_tokens": 60},
    "tools": [],
}
PAUSING = {
    "type": "Workflow",
    "name": "pausing",
    "steps": [
        {"type": "agent_step", "agent": "writer", "name": "write"},
        {"type": "approval_step", "name": "ok", "message": "Go on?"},
        {"type": "agent_step", "agent": "editor", "name": "edit"},
    ],
}


class Vendor:
    """A vendor's endpoint that hands out all the tokens that it may, and keeps account of them by run."""

    def __init__(self) -> None:
        self.tokens = Counter[str]()
        self.calls = Counter[str]()
        self._lock = threading.Lock()

    def answer(self, request: ModelRequest) -> ModelResponse:
        """Have a conductor call both of its skills, and give anyone else as much text as is allowed."""
        usage = Usage(4, min(60, request.settings.get("max_tokens", 60)))
        run = re.findall(
            r"run-(\w+)", " ".join(message.text for message in request.messages)
        )[0]
        with self._lock:
            self.tokens[run] += usage.total_tokens
            self.calls[run] += 1
        if request.tools and not any(
            message.role == "tool" for message in request.messages
        ):
            skills = [tool["function"]["name"] for tool in request.tools]
            calls = [
                ToolCall.of(skill, id=f"c{number}", task=f"go, run-{run}")
                for number, skill in enumerate(skills)
            ]
            return ModelResponse(tool_calls=tuple(calls), usage=usage)
        return ModelResponse(f"run-{run}", usage=usage)


class Fleet:
    """A vendor, a collector, two agents, and the callers that are asked for."""

    def __init__(
        self,
        folder: Path,
        start: Callable[..., str],
        spans: SpanCollector,
        vendor: Vendor,
    ) -> None:
        self.vendor = vendor
        self.spans = spans
        self._folder = folder
        self._start = start
        self._callers: dict[tuple[str, str], str] = {}
        self.agents = {
            name: self._serve({"type": "Agent", "name": name, **AGENT})
            for name in ("writer", "editor")
        }

    def _serve(self, blueprint: dict[str, Any], **variables: str) -> str:
        file = self._folder / f"{blueprint['name']}.json"
        file.write_text(
            json.dumps({"version": podwright.blueprints.VERSION, **blueprint})
        )
        return self._start("serve", str(file), "--port", "0", **variables)

    def caller(self, kind: str, workers: str) -> str:
        """Where a component of a kind is served that works with the agents."""
        if (kind, workers) not in self._callers:
            agents = json.dumps(self.agents)
            self._callers[kind, workers] = self._serve(
                CALLERS[kind], PODWRIGHT_AGENTS=agents, WEB_CONCURRENCY=workers
            )
        return self._callers[kind, workers]

    def traces(self, *wanted: str) -> list[Span]:
        """The spans of some traces, once they are whole: each has one root, and both ends of every remote run."""

        def chosen() -> list[Span]:
            return [
                span for span in list(self.spans.spans) if span.trace in wanted
            ]

        def are_whole(_: object) -> bool:
            spans = chosen()
            ids = {span.id for span in spans}
            roots = [span for span in spans if not span.parent]
            called = {
                span.id
                for span in spans
                if span.kind == CLIENT and span.name.startswith("invoke_agent")
            }
            served = {span.parent for span in spans if span.kind == SERVER}
            parents = {span.parent for span in spans if span.parent}
            return (
                len(roots) == len(wanted)
                and parents <= ids
                and called <= served
            )

        self.spans.wait(are_whole, 60)
        return chosen()


@pytest.fixture(scope="module")
def fleet(
    lasting_command: Command,
    address: Address,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    vendor = Vendor()
    with SpanCollector() as spans, ModelStub(vendor.answer) as stub:
        shared = {
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": f"{stub.url}/v1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": spans.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "PODWRIGHT_MAX_RUNS": "1000",
        }

        def start(*arguments: str, **variables: str) -> str:
            process = lasting_command(*arguments, **shared, **variables)
            url = address(process)
            discard_output(process)
            return url

        yield Fleet(tmp_path_factory.mktemp("fleet"), start, spans, vendor)


def test_a_resumed_run_is_linked(fleet: Fleet) -> None:
    """A run that goes on after an approval has a trace of its own, with its remote, and a link to the stopped one."""
    url = fleet.caller("flow", "1")
    body = {"type": "workflow", "blueprint": PAUSING}
    paused = plain_http.post(
        f"{url}/run-blueprint", json={**body, "input": "run-paused"}
    )
    problem = paused.json()
    assert problem["code"] == "approval_required", problem
    rest = {
        **body,
        "inputs": problem["context"],
        "resume_path": problem["resume_path"],
    }
    headers = {"Podwright-Resumes": paused.headers["traceresponse"]}
    resumed = plain_http.post(
        f"{url}/run-blueprint", json=rest, headers=headers
    )
    assert resumed.status_code == 200, resumed.text
    _, first, request, _ = paused.headers["traceresponse"].split("-")
    _, second, _, _ = resumed.headers["traceresponse"].split("-")
    spans = fleet.traces(first, second)
    links = {
        span.name: (span.trace, span.links) for span in spans if span.links
    }
    assert links == {"invoke_workflow pausing": (second, [(first, request)])}
    served = {
        (span.trace, span.resource["service.name"])
        for span in spans
        if span.name == "POST /run/stream"
    }
    assert served == {(first, "writer"), (second, "editor")}
    assert fleet.vendor.calls["paused"] == 2


@pytest.mark.parametrize(
    ("kind", "workers"), [("line", "1"), ("lead", "1"), ("flow", "2")]
)
def test_limits_hold_under_load(fleet: Fleet, kind: str, workers: str) -> None:
    """Of 100 runs at once, the vendor gives none more tokens or calls than it may have, and complete ones are exact."""
    url = fleet.caller(kind, workers)

    def name(number: int) -> str:
        return f"{kind}{workers}x{number}"

    def limits(number: int) -> tuple[int, int]:
        return (70, 150, 5000)[number % 3], (20, 2)[number % 2]

    async def run_all() -> list[httpx.Response]:
        pool = httpx.Limits(max_connections=RUNS)
        async with httpx.AsyncClient(
            verify=NO_AUTHORITIES, base_url=url, timeout=120, limits=pool
        ) as client:

            async def run(number: int) -> httpx.Response:
                tokens, calls = limits(number)
                budget = {
                    "Podwright-Budget": f"tokens={tokens}, model_calls={calls}"
                }
                return await client.post(
                    "/run?trace=true",
                    json={"input": f"run-{name(number)}"},
                    headers=budget,
                )

            return await asyncio.gather(
                *(run(number) for number in range(RUNS))
            )

    responses = asyncio.run(run_all())
    for number, response in enumerate(responses):
        tokens, calls = limits(number)
        used_tokens = fleet.vendor.tokens[name(number)]
        used_calls = fleet.vendor.calls[name(number)]
        assert used_tokens <= tokens
        assert used_calls <= calls
        if response.status_code == 200:
            usage = response.json()["usage"]
            assert usage["input_tokens"] + usage["output_tokens"] == used_tokens
            assert usage["model_calls"] == used_calls
        else:
            check_problem(response, 422, "limit_exceeded")
            assert (tokens, calls) != (5000, 20), "this is enough for a run"
    assert {response.status_code for response in responses} == {200, 422}
