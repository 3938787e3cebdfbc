"""Public agents of other frameworks, rebuilt as the folders of tests/rebuilt, with each request that they send.

They are "agents_as_tools" of OpenAI's Agents SDK, "plan-and-execute" and "corrective RAG" of LangGraph, and
"game-builder" and "lead-score" of CrewAI. Roles, tools and flow are those of the originals; texts and code are our own.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import ROOT
from tests.library.upstream import reply, upstream
from tests.service.support import Shell

import podwright
from podwright import ApprovalRequired, Workflow, blueprints
from podwright.errors import Refusal, RunError
from podwright.models import registry
from podwright.testing import ToolCall
from podwright_service.testing import ModelStub

REBUILT = ROOT / "tests" / "rebuilt"
FOLDERS = sorted(path for path in REBUILT.iterdir() if path.is_dir())
Json = dict[str, Any]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelStub]:
    """The provider of all models; at the end, each of its requests has had an answer."""
    # models keep the address that they had at their first call
    monkeypatch.setattr(registry, "_resolved", {})
    with ModelStub() as stub:
        for name, value in stub.variables(stub.url).items():
            monkeypatch.setenv(name, value)
        for vendor in ("OPENAI", "GEMINI"):
            monkeypatch.setenv(f"{vendor}_API_KEY", "made-up")
        monkeypatch.setenv("TAVILY_API_KEY", "made-up")
        yield stub
        stub.verify()


def instructions(folder: Path, agent: str) -> str:
    """The instructions of an agent of a folder."""
    file = folder / "agents" / f"{agent}.yaml"
    return blueprints.read_file(file)["instructions"]


def asked(system: str, user: Any, *turn: Json) -> list[Json]:
    """The messages of a request."""
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": user},
        *turn,
    ]


def called(*calls: ToolCall) -> Json:
    """The message of a model that has called tools."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ],
    }


def returned(call: ToolCall, text: str) -> Json:
    """The message with the result of a tool."""
    return {"role": "tool", "content": text, "tool_call_id": call.id}


def skill(name: str, description: str) -> Json:
    """A member as its conductor's model sees it."""
    task = {
        "type": "string",
        "title": "Task",
        "description": "The task, with everything that it needs.",
    }
    return tool(name, description, {"task": task}, title="_SkillArguments")


def tool(name: str, description: str, properties: Json, **more: Any) -> Json:
    """A tool as a model sees it."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }
    function = {
        "name": name,
        "description": description,
        "parameters": parameters,
    }
    return {"type": "function", "function": function}


def schema(properties: Json, **more: Any) -> Json:
    """The form of the answer that a request asks for."""
    answer = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        **more,
    }
    form = {"name": "answer", "schema": answer}
    return {"type": "json_schema", "json_schema": form}


CLOSED = {"additionalProperties": False}


def sent(provider: ModelStub) -> list[Json]:
    """The bodies of all requests, in order."""
    return [dict(received.body) for received in provider.received]


def test_agents_as_tools(provider: ModelStub) -> None:
    """A conductor has the languages translated that are asked for, and another agent finishes what it answers."""
    french = ToolCall.of("translate_to_french", "1", task="Hello!")
    spanish = ToolCall.of("translate_to_spanish", "2", task="Hello!")
    provider.respond_with([french, spanish], "Both.", "Bonjour ! ¡Hola!")
    provider.when("Translate the text to French", "Bonjour !")
    provider.when("Translate the text to Spanish", "Hola.")
    task = "Translate 'Hello!' to French and Spanish."
    folder = REBUILT / "agents_as_tools"
    result = podwright.load(folder).run(task, trace=True)
    first, *translations, second, last = sent(provider)
    conductor = instructions(folder, "orchestrator")
    tools = [
        skill(f"translate_to_{name.lower()}", f"Translates a text to {name}.")
        for name in ("Spanish", "French", "Italian")
    ]
    assert first == {
        "model": "gpt-5-mini",
        "messages": asked(conductor, task),
        "tools": tools,
    }
    assert sorted(translations, key=str) == [
        {
            "model": "gpt-5-mini",
            "messages": asked(f"Translate the text to {name}.", "Hello!"),
        }
        for name in ("French", "Spanish")
    ]
    turn = [
        called(french, spanish),
        returned(french, "Bonjour !"),
        returned(spanish, "Hola."),
    ]
    assert second == {**first, "messages": asked(conductor, task, *turn)}
    assert last == {
        "model": "gpt-5-mini",
        "messages": asked(
            instructions(folder, "synthesizer"),
            f"## request\n{task}\n\n## translations\nBoth.",
        ),
    }
    assert result.value["answer"] == "Bonjour ! ¡Hola!"
    assert (result.usage.model_calls, result.usage.tool_calls) == (5, 2)


def test_game_builder(provider: ModelStub) -> None:
    """Two engineers write and review a program in turn, and their chief may ask both again."""
    call = ToolCall.of("senior_engineer", "1", task="The snake cannot turn.")
    provider.respond_with("Draft", "Reviewed", call, "Turning", "Final")
    folder = REBUILT / "game_builder"
    result = podwright.load(folder).run({"game": "Snake."}, trace=True)
    senior, qa, chief = (
        instructions(folder, name)
        for name in ("senior_engineer", "qa_engineer", "chief_qa_engineer")
    )
    tools = [
        skill("senior_engineer", "Writes and corrects programs in Python."),
        skill("qa_engineer", "Finds the errors of a program."),
    ]
    reviewed = "## game\nSnake.\n\n## code\nReviewed"
    turn = [called(call), returned(call, "Turning")]
    requests = [
        (asked(senior, "Snake."), {}),
        (asked(qa, "## game\nSnake.\n\n## code\nDraft"), {}),
        (asked(chief, reviewed), {"tools": tools}),
        (asked(senior, "The snake cannot turn."), {}),
        (asked(chief, reviewed, *turn), {"tools": tools}),
    ]
    assert sent(provider) == [
        {"model": "gpt-4o", "messages": messages, **more}
        for messages, more in requests
    ]
    assert result.value["code"] == "Final"
    assert (result.usage.model_calls, result.usage.tool_calls) == (5, 1)


SCORE = schema(
    {
        "score": {"type": "integer", "minimum": 1, "maximum": 100},
        "reason": {"type": "string"},
    }
)


def shown_by(pause: ApprovalRequired) -> str:
    """What a person is asked."""
    assert pause.question is not None
    return pause.question.message


def test_lead_score(
    provider: ModelStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person sees the best three, has all scored again with advice, and lets the emails be written."""
    monkeypatch.setenv("EMAILS", str(tmp_path / "emails"))
    folder = REBUILT / "lead_score"
    flow = podwright.load(folder)
    assert isinstance(flow, Workflow)
    names = ("Ida Berg", "Omar Nasser", "Lin Zhao", "Eva O'Neil")
    rounds = ((71, 12, 64, 33), (68, 11, 93, 9))
    for name, *scores in zip(names, *rounds, strict=True):
        answers = [{"score": score, "reason": "So."} for score in scores]
        provider.when(f"## candidate\n{name}", *answers)
        provider.when(f"## name\n{name}", f"Dear {name}")
    with pytest.raises(ApprovalRequired) as first:
        flow.run({})
    best = "Ida Berg, 71: So.\nLin Zhao, 64: So.\nEva O'Neil, 33: So."
    assert shown_by(first.value).endswith(best)
    again = first.value.decide("score again", values={"feedback": "Know AI."})
    with pytest.raises(ApprovalRequired) as second:
        flow.run(again, resume_path=first.value.resume_path)
    best = "Lin Zhao, 93: So.\nIda Berg, 68: So.\nOmar Nasser, 11: So."
    assert shown_by(second.value).endswith(best)
    result = flow.run(
        second.value.decide("approve"),
        resume_path=second.value.resume_path,
        trace=True,
    )
    bios = {
        lead["name"]: lead["bio"] for lead in json.loads(result.value["leads"])
    }
    evaluator = instructions(folder, "evaluator")
    scored = [
        {
            "model": "gpt-4o-mini",
            "messages": asked(
                evaluator,
                f"## candidate\n{name}: {bios[name]}\n\n## feedback\n{feedback}",
            ),
            "response_format": SCORE,
        }
        for feedback in ("", "Know AI.")
        for name in names
    ]
    correspondent = instructions(folder, "correspondent")
    written = [
        {
            "model": "gpt-4o-mini",
            "messages": asked(
                correspondent,
                f"## name\n{name}\n\n## bio\n{bios[name]}\n\n## invited\n{invited}",
            ),
        }
        for name, invited in zip(
            names, ("true", "true", "true", "false"), strict=True
        )
    ]
    assert sorted(sent(provider), key=str) == sorted(scored + written, key=str)
    emails = {
        file.stem: file.read_text() for file in (tmp_path / "emails").iterdir()
    }
    assert emails == {name.replace("'", ""): f"Dear {name}" for name in names}
    assert (result.usage.model_calls, result.usage.tool_calls) == (4, 4)


def test_a_lead_flow_is_quit(provider: ModelStub) -> None:
    """Who rejects the ranking ends the run, and no email is written."""
    provider.respond_with(*[{"score": 5, "reason": "So."}] * 4)
    flow = podwright.load(REBUILT / "lead_score")
    assert isinstance(flow, Workflow)
    with pytest.raises(ApprovalRequired) as paused:
        flow.run({})
    with pytest.raises(RunError) as ended:
        flow.run(
            paused.value.decide("reject"), resume_path=paused.value.resume_path
        )
    assert ended.value.code == "approval_rejected"
    assert len(provider.received) == 4


TEXT = {"type": "string"}
STEP_LIST = {"type": "array", "items": TEXT}
PLAN = schema(
    {"steps": {**STEP_LIST, "description": "The steps in their order."}},
    **CLOSED,
)
ACT = schema(
    {
        "response": {
            "type": ["string", "null"],
            "description": "The answer for the user.",
        },
        "steps": {**STEP_LIST, "description": "The steps that are left."},
    },
    **CLOSED,
)
SEARCH = tool(
    "search_web",
    "Search the web, and return what the best pages say.",
    {"query": TEXT},
)


def objective(question: str, plan: str, done: str) -> str:
    """The message for the replanner."""
    return f"## objective\n{question}\n\n## plan\n{plan}\n\n## done\n{done}"


async def test_plan_and_execute(
    provider: ModelStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is made, its first step is done with a search, and the rest is planned again until there is an answer."""
    search = ToolCall.of("search_web", "1", query="winner 2024")
    provider.respond_with(
        *({"steps": ["Find him.", "Find his town."]}, search, "Sinner."),
        {"response": None, "steps": ["Find the town of Sinner."]},
        "Sexten.",
        {"response": "He is from Sexten.", "steps": []},
    )
    folder = REBUILT / "plan_and_execute"
    question = "Where is the winner of the Australian Open 2024 from?"
    async with upstream() as tavily:
        page = {"results": [{"content": "Sinner has won.", "score": 0.9}]}
        tavily.answers([reply(page)])
        monkeypatch.setenv("TAVILY_URL", tavily.url.removesuffix("/v1"))
        flow = podwright.load(folder)
        result = await flow.arun(question, trace=True)
    assert tavily.requests == [{"query": "winner 2024", "max_results": 3}]
    plans = (
        '["Find him.", "Find his town."]',
        '["Find the town of Sinner."]',
    )
    tasks = (
        f"The plan:\n{plans[0]}\n\nDo its first step: Find him.",
        f"The plan:\n{plans[1]}\n\nDo its first step: Find the town of Sinner.",
    )
    found = '{"step": "Find him.", "result": "Sinner."}'
    town = '{"step": "Find the town of Sinner.", "result": "Sexten."}'
    turn = [called(search), returned(search, '["Sinner has won."]')]
    planner, executor, replanner = (
        instructions(folder, name)
        for name in ("planner", "executor", "replanner")
    )
    planned = asked(planner, question)
    first = asked(replanner, objective(question, plans[0], f"[{found}]"))
    last = asked(replanner, objective(question, plans[1], f"[{found}, {town}]"))
    planning = {"model": "gpt-4o", "temperature": 0}
    executing = {"model": "gpt-4-turbo", "tools": [SEARCH]}
    assert sent(provider) == [
        {**planning, "messages": planned, "response_format": PLAN},
        {**executing, "messages": asked(executor, tasks[0])},
        {**executing, "messages": asked(executor, tasks[0], *turn)},
        {**planning, "messages": first, "response_format": ACT},
        {**executing, "messages": asked(executor, tasks[1])},
        {**planning, "messages": last, "response_format": ACT},
    ]
    assert result.data["plan"]["response"] == "He is from Sexten."
    assert (result.usage.model_calls, result.usage.tool_calls) == (6, 3)


def pdf(name: str) -> Json:
    """A paper as OpenAI takes a file."""
    paper = REBUILT / "corrective_rag" / "papers" / name
    data = base64.b64encode(paper.read_bytes()).decode()
    file = {
        "filename": name,
        "file_data": f"data:application/pdf;base64,{data}",
    }
    return {"type": "file", "file": file}


QUESTION = "What memory have agents?"
ATTACKS, MEMORY = "attacks-on-agents.pdf", "memory-of-agents.pdf"
GRADE = schema({"relevant": {"type": "boolean"}}, **CLOSED)


def with_files(text: str, *files: Json) -> list[Json]:
    """What the user says: a section about files, the question, and the files."""
    asked = f"{text}\n\n## question\n{QUESTION}"
    return [{"type": "text", "text": asked}, *files]


def user_text(body: Json) -> str:
    """The text of a message with files."""
    return body["messages"][1]["content"][0]["text"]


@pytest.mark.parametrize("all_relevant", [True, False])
async def test_corrective_rag(
    provider: ModelStub, monkeypatch: pytest.MonkeyPatch, all_relevant: bool
) -> None:
    """Each PDF is graded; the web is searched if one is not relevant, and the answer is from what is left."""
    folder = REBUILT / "corrective_rag"
    provider.when(f"[file: {MEMORY}]\n\n", {"relevant": True})
    provider.when(f"[file: {ATTACKS}]\n\n", {"relevant": all_relevant})
    provider.when(instructions(folder, "rewriter"), "memory of LLM agents")
    provider.when(instructions(folder, "writer"), "Two kinds.")
    async with upstream() as tavily:
        page = {"results": [{"content": "A page.", "score": 0.9}]}
        tavily.answers([reply(page)])
        monkeypatch.setenv("TAVILY_URL", tavily.url.removesuffix("/v1"))
        flow = podwright.load(folder)
        result = await flow.arun(QUESTION, trace=True)
    searches = [{"query": "memory of LLM agents", "max_results": 3}]
    assert tavily.requests == ([] if all_relevant else searches)
    settings = {"model": "gpt-4o-mini", "temperature": 0}
    grader, rewriter, writer = (
        instructions(folder, name) for name in ("grader", "rewriter", "writer")
    )
    graded = [
        {
            **settings,
            "messages": asked(
                grader,
                with_files(f"## document\n[file: {name}]", pdf(name)),
            ),
            "response_format": GRADE,
        }
        for name in (ATTACKS, MEMORY)
    ]
    *grades, answer = sent(provider)
    if all_relevant:
        shown = f"[file: {ATTACKS}]\n[file: {MEMORY}]"
        files = [pdf(ATTACKS), pdf(MEMORY)]
    else:
        shown = f"[file: {MEMORY}]\nA page."
        files = [pdf(MEMORY)]
        assert grades.pop() == {
            **settings,
            "messages": asked(rewriter, QUESTION),
        }
    assert sorted(grades, key=user_text) == graded
    assert answer == {
        **settings,
        "messages": asked(writer, with_files(f"## documents\n{shown}", *files)),
    }
    assert result.value["answer"] == "Two kinds."
    assert result.usage.model_calls == (3 if all_relevant else 4)


STEPS = {
    "agents_as_tools": ("orchestrator", "synthesizer"),
    "corrective_rag": ("retrieve", "grader", "rewriter", "search", "writer"),
    "customer_service": ("faq", "seat_booking"),
    "game_builder": ("senior", "qa", "chief"),
    "garden_service": ("load_customer", "update_crm"),
    "guardrails": ("no_homework", "no_phone_number"),
    "lead_score": ("load", "evaluator", "rank", "review", "save"),
    "plan_and_execute": ("planner", "executor", "note", "replanner"),
}
"""Steps of each folder, what an agent calls, or whom it hands off to."""


def code_lines(file: Path) -> int:
    """The lines of a file that are not blank and, except in Markdown, no comments."""
    lines = [line.strip() for line in file.read_text().splitlines()]
    comment = "\0" if file.suffix == ".md" else "#"
    return sum(bool(line) and not line.startswith(comment) for line in lines)


def test_the_page_counts_the_lines() -> None:
    """docs/frameworks.md names each folder, with the lines of its blueprints, prompts and Python."""
    page = (ROOT / "docs" / "frameworks.md").read_text()
    stated = re.findall(r"\[(\d+)\]\(\.\./tests/rebuilt/(\w+)/blueprint", page)
    counted = {
        folder.name: sum(
            code_lines(file)
            for file in folder.rglob("*")
            if file.suffix in {".md", ".py", ".yaml"}
        )
        for folder in FOLDERS
    }
    assert {name: int(lines) for lines, name in stated} == counted


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_folder_is_whole(folder: Path, shell: Shell) -> None:
    """Each is valid and up to date with its code, its graph has all steps, and its export is the same component."""
    keys = {"OPENAI_API_KEY": "made-up", "GEMINI_API_KEY": "made-up"}
    done = shell("validate", str(folder), **keys)
    assert done.returncode == 0, done.stdout + done.stderr
    digest = re.search(r"sha256:\w+", done.stdout)
    assert digest
    done = shell("sync", str(folder), "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    exported = shell("export", str(folder), "--output", "copy")
    assert digest[0] in exported.stdout, exported.stderr
    graph = shell("graph", "copy").stdout
    names = graph.replace("#95;", "_")
    assert [step for step in STEPS[folder.name] if step not in names] == []


GUARD = schema(
    {"reasoning": TEXT, "is_math_homework": {"type": "boolean"}}, **CLOSED
)
ANSWER = schema(
    {
        "reasoning": {**TEXT, "description": "How the answer was found."},
        "response": {**TEXT, "description": "What the customer is told."},
        "user_name": {
            "type": ["string", "null"],
            "description": "The customer's name, if it is known.",
        },
    },
    **CLOSED,
)


@pytest.mark.parametrize(
    ("is_homework", "response", "code"),
    [
        (False, "Sacramento.", ""),
        (True, "", "math_homework"),
        (False, "Call 650-123-4567.", "phone_number"),
    ],
)
def test_guardrails(
    provider: ModelStub, is_homework: bool, response: str, code: str
) -> None:
    """Another agent guards the input, and a function the answer; each refuses with a code of its own."""
    answer = {"reasoning": "", "response": response, "user_name": None}
    provider.respond_with(
        {"reasoning": "", "is_math_homework": is_homework}, answer
    )
    folder = REBUILT / "guardrails"
    agent = podwright.load(folder)
    if code:
        with pytest.raises(Refusal) as refused:
            agent.run("Please help me.")
        assert refused.value.code == code
    else:
        assert agent.run("Please help me.") == answer
    own = blueprints.read_file(folder / "blueprint.yaml")["instructions"]
    requests = [
        {
            "model": "gpt-4o-mini",
            "messages": asked(instructions(folder, "guard"), "Please help me."),
            "response_format": GUARD,
        },
        {
            "model": "gpt-4o-mini",
            "messages": asked(own, "Please help me."),
            "response_format": ANSWER,
        },
    ]
    assert sent(provider) == requests[: 1 if is_homework else 2]


def test_garden_service(provider: ModelStub) -> None:
    """The profile is loaded before the model is asked, tools have the customer of the run, and a manager approves."""
    discount = ToolCall.of(
        *("ask_manager_for_discount", "1"),
        kind="percentage",
        value=15,
        reason="Loyal.",
    )
    record = ToolCall.of("update_crm", "2", details={"discount": "15 %"})
    provider.respond_with(discount, record, "You have 15 % off, Alex.")
    folder = REBUILT / "garden_service"
    agent = podwright.load(folder)
    with pytest.raises(ApprovalRequired) as paused:
        agent.run("Is there a discount for me?")
    assert '"value": 15' in shown_by(paused.value)
    result = agent.run(paused.value.decide("approve"), trace=True)
    assert result.value == "You have 15 % off, Alex."
    blueprint = blueprints.read_file(folder / "blueprint.yaml")
    profile = json.loads((folder / "profiles" / "123.json").read_text())
    system = blueprint["instructions"].replace(
        "{profile}", json.dumps(profile, ensure_ascii=False)
    )
    question = asked(system, "Is there a discount for me?")
    first = [called(discount), returned(discount, "Approved.")]
    second = [called(record), returned(record, "Recorded for customer 123.")]
    assert sent(provider) == [
        {
            "model": "gemini-2.0-flash-001",
            "messages": messages,
            "tools": [entry["schema"] for entry in blueprint["tools"]],
        }
        for messages in (
            question,
            [*question, *first],
            [*question, *first, *second],
        )
    ]
    assert len(blueprint["tools"]) == 12


def test_a_small_discount_needs_no_manager(provider: ModelStub) -> None:
    """Only a discount above 10 is shown to a person."""
    discount = ToolCall.of(
        *("ask_manager_for_discount", "1"),
        kind="flat",
        value=10,
        reason="Loyal.",
    )
    provider.respond_with(discount, "Done.")
    assert podwright.load(REBUILT / "garden_service").run("10?") == "Done."


def transfer(to: str, when: str) -> Json:
    """The tool by which a model hands the conversation over."""
    return {
        "type": "function",
        "function": {
            "name": f"transfer_to_{to}",
            "description": f"Hand the conversation over to '{to}', who answers. {when}",
            "parameters": {
                "type": "object",
                "properties": {},
                "additionalProperties": False,
            },
        },
    }


def test_customer_service(provider: ModelStub) -> None:
    """The agent to whom the conversation was handed over answers the next turn too, and hands it back."""
    to_faq = ToolCall.of("transfer_to_faq", "1")
    look_up = ToolCall.of("look_up_faq", "2", question="Is there wifi?")
    provider.respond_with(to_faq, look_up, "Yes, Airline-Wifi.")
    folder = REBUILT / "customer_service"
    airline = podwright.load(folder)
    first = airline.run("Is there wifi?", trace=True)
    assert first.value == "Yes, Airline-Wifi."
    blueprint = blueprints.read_file(folder / "blueprint.yaml")
    triage = blueprint["instructions"]
    faq, booking = (
        instructions(folder, name) for name in ("faq", "seat_booking")
    )
    transfers = [
        transfer(entry["agent"], entry["when"])
        for entry in blueprint["handoffs"]
    ]
    question = {"role": "user", "content": "Is there wifi?"}
    wifi = "There is free wifi on board, called Airline-Wifi."
    moved = returned(to_faq, '{"transferred_to": "faq"}')
    turn = [
        *(question, called(to_faq), moved),
        *(called(look_up), returned(look_up, wifi)),
        {"role": "assistant", "content": "Yes, Airline-Wifi."},
    ]
    own = [
        tool(
            "look_up_faq",
            "Look up the answer to a frequent question.",
            {"question": TEXT},
        ),
        transfer("triage", "The lookup does not answer the question."),
    ]
    system = {"role": "system", "content": faq}
    assert sent(provider) == [
        {
            "model": "gpt-4o-mini",
            "messages": [{"role": "system", "content": triage}, question],
            "tools": transfers,
        },
        {
            "model": "gpt-4o-mini",
            "messages": [system, *turn[:3]],
            "tools": own,
        },
        {
            "model": "gpt-4o-mini",
            "messages": [system, *turn[:5]],
            "tools": own,
        },
    ]
    assert first.messages == turn
    back = ToolCall.of("transfer_to_triage", "3")
    on = ToolCall.of("transfer_to_seat_booking", "4")
    update = ToolCall.of(
        "update_seat", "5", confirmation_number="A1", new_seat="4C"
    )
    provider.respond_with(back, on, update, "You have seat 4C.")
    second = airline.run(
        "Seat 4C for A1, please.", trace=True, messages=first.messages
    )
    assert second.value == "You have seat 4C."
    systems = [body["messages"][0]["content"] for body in sent(provider)]
    assert systems == [faq, triage, booking, booking]
    result = sent(provider)[-1]["messages"][-1]["content"]
    assert re.fullmatch(r"A1 has seat 4C on FLT-\d{3}\.", result)
