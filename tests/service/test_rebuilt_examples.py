"""Public examples of other frameworks as component folders: the same calls are made, and no answer is lost.

They are the examples "parallelization", "input_guardrails" and "output_guardrails" of OpenAI's Agents SDK, and CrewAI's
"game-builder-crew". LangGraph's `interrupt()` is in tests/frameworks, with the graph itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.service.support import Serve, write

import podwright
from podwright import BlueprintValidationError
from podwright.testing import FunctionModel, ModelRequest, ToolCall

MODEL = "openai/gpt-4o-mini"
Json = dict[str, Any]


def agent(name: str, instructions: str, **more: Any) -> Json:
    return {
        "type": "Agent",
        "name": name,
        "instructions": instructions,
        "config": {"model": MODEL},
        "tools": [],
        **more,
    }


def folder(
    path: Path, blueprint: Json, *agents: Json, functions: str = ""
) -> Path:
    """A component folder with its agents as files."""
    write(path / "blueprint.json", blueprint)
    for member in agents:
        write(path / "agents" / f"{member['name']}.json", member)
    if functions:
        write(path / "functions.py", functions)
    return path


def step(agent: str, **more: Any) -> Json:
    return {"type": "agent_step", "name": agent, "agent": agent, **more}


# --- OpenAI: parallelization

SPANISH = agent("spanish_agent", "You translate the user's message to Spanish")
PICKER = agent(
    "translation_picker",
    "You pick the best Spanish translation from the given options.",
)


def translation(**parallel: Any) -> Json:
    return {
        "type": "Workflow",
        "name": "parallel_translation",
        "steps": [
            {
                "type": "parallel_step",
                "name": "translate",
                "branches": [[step("spanish_agent")] for _ in range(3)],
                **parallel,
            },
            step(
                "translation_picker",
                input="Input: {input}\n\nTranslations:\n\n{spanish_agent_output}",
            ),
        ],
    }


def test_three_translations_reach_the_picker(
    tmp_path: Path, serve: Serve
) -> None:
    """Three calls of one agent run in parallel, and the next agent is given all three answers."""
    answers = iter(["Hola.", "Buenas.", "Buenos días."])
    seen: list[str] = []

    def answer(request: ModelRequest) -> str:
        if request.component == "spanish_agent":
            return next(answers)
        seen.append(request.messages[-1].text)
        return "Buenos días."

    path = folder(tmp_path / "game", translation(collect=True), SPANISH, PICKER)
    client = serve(podwright.load(path, model=FunctionModel(answer)))
    body = {"input": "Good morning."}
    result = client.post("/run?data=true", json=body).json()
    three = {"Hola.", "Buenas.", "Buenos días."}
    assert set(result["spanish_agent_output"]) == three
    assert result["translation_picker_output"] == "Buenos días."
    assert all(translation in seen[0] for translation in three)


def test_three_translations_with_one_name_are_refused(tmp_path: Path) -> None:
    """Without `collect`, two of three answers would be lost; the problem names the later writers and the way out."""
    path = folder(tmp_path / "flow", translation(), SPANISH, PICKER)
    with pytest.raises(BlueprintValidationError) as caught:
        podwright.load(path)
    assert {problem.pointer for problem in caught.value.problems} == {
        f"/steps/0/branches/{branch}/0" for branch in (1, 2)
    }
    assert all("collect" in str(each) for each in caught.value.problems)


# --- OpenAI: guardrails

SUPPORT = agent("support", "You help customers with their questions.")
GUARD = agent(
    "guardrail", "Check if the user is asking you to do their math homework."
)
VERDICT: Json = {
    "type": "object",
    "properties": {
        "reasoning": {"type": "string"},
        "is_math_homework": {"type": "boolean"},
    },
    "required": ["reasoning", "is_math_homework"],
}
INPUT_GUARD: Json = {
    "type": "Workflow",
    "name": "guarded_support",
    "steps": [
        {
            "type": "parallel_step",
            "name": "check",
            "branches": [
                [step("guardrail", response_schema=VERDICT)],
                [step("support")],
            ],
        },
        {
            "type": "condition_step",
            "name": "tripwire",
            "condition": {
                "name": "equals",
                "args": {
                    "value": "{guardrail_output.is_math_homework}",
                    "to": True,
                },
            },
            "then": [
                {
                    "type": "function_step",
                    "name": "refuse",
                    "function": "refuse",
                    "arguments": {"reasoning": "{guardrail_output.reasoning}"},
                }
            ],
        },
    ],
}
REFUSE = '''
from podwright.errors import RunError


def refuse(reasoning: str) -> str:
    """End the run."""
    raise RunError(f"Sorry, no homework: {reasoning}", code="homework_refused")
'''


def test_an_input_guard_ends_the_run(tmp_path: Path, serve: Serve) -> None:
    """A guard beside the agent decides about its answer, and its refusal has a code and words of its own."""

    def answer(request: ModelRequest) -> Any:
        text = request.messages[-1].text
        if request.component == "guardrail":
            is_math = "2x" in text
            return {"reasoning": "An equation.", "is_math_homework": is_math}
        return "California."

    path = folder(
        tmp_path / "flow", INPUT_GUARD, SUPPORT, GUARD, functions=REFUSE
    )
    client = serve(podwright.load(path, model=FunctionModel(answer)))
    honest = client.post("/run", json={"input": "Which state is LA in?"})
    homework = client.post("/run", json={"input": "Solve 2x + 5 = 11."})
    assert honest.json()["support_output"] == "California."
    problem = homework.json()
    assert (homework.status_code, problem["code"]) == (502, "homework_refused")
    assert "An equation." in problem["detail"]


ANSWER: Json = {
    "type": "object",
    "properties": {
        "reasoning": {"type": "string"},
        "response": {"type": "string"},
        "user_name": {"type": ["string", "null"]},
    },
    "required": ["reasoning", "response", "user_name"],
}
OUTPUT_GUARD: Json = {
    "type": "Workflow",
    "name": "guarded_answer",
    "steps": [
        step("assistant", response_schema=ANSWER),
        {
            "type": "try_step",
            "name": "guard",
            "steps": [
                {
                    "type": "function_step",
                    "name": "check",
                    "function": "without_number",
                    "arguments": {"answer": "{assistant_output.response}"},
                    "output": "answer",
                }
            ],
            "on": ["sensitive_data"],
            "catch": [
                {
                    "type": "function_step",
                    "name": "withhold",
                    "function": "withhold",
                    "output": "answer",
                }
            ],
        },
    ],
}
ASSISTANT = agent("assistant", "You are a helpful assistant.")
WITHHOLD = '''
from podwright.errors import RunError


def without_number(answer: str) -> str:
    """Return an answer without a telephone number."""
    if "650" in answer:
        raise RunError("The answer has a number.", code="sensitive_data")
    return answer


def withhold() -> str:
    """Return what is said instead of an answer."""
    return "I may not say that."
'''


def test_an_output_guard_replaces_the_answer(
    tmp_path: Path, serve: Serve
) -> None:
    """A guard after the agent catches its own error alone, and the answer that it has refused is not the result."""

    def answer(request: ModelRequest) -> Any:
        response = "Your number is 650-123-4567."
        if "capital" in request.messages[-1].text:
            response = "Sacramento."
        return {"reasoning": "", "response": response, "user_name": None}

    path = folder(
        tmp_path / "flow", OUTPUT_GUARD, ASSISTANT, functions=WITHHOLD
    )
    client = serve(podwright.load(path, model=FunctionModel(answer)))
    answers = [
        client.post("/run", json={"input": text}).json()["answer"]
        for text in ("What is the capital?", "What is my number?")
    ]
    assert answers == ["Sacramento.", "I may not say that."]


# --- CrewAI: game-builder-crew

SENIOR = agent("senior_engineer", "You write the game in Python.")
QUALITY = agent("qa_engineer", "You check code for errors.")
CHIEF: Json = {
    "type": "Conductor",
    "name": "chief_qa_engineer",
    "instructions": "See to it that the code does what it has to do.",
    "config": {"model": MODEL},
    "skills": [
        {"type": "Agent", "name": "senior_engineer"},
        {"type": "Agent", "name": "qa_engineer"},
    ],
}
CREW: Json = {
    "type": "Workflow",
    "name": "game_builder",
    "steps": [step("chief_qa_engineer", output="game")],
}


@pytest.mark.parametrize("at_top", [True, False])
def test_a_crew_of_files(tmp_path: Path, serve: Serve, at_top: bool) -> None:
    """A conductor delegates to members that are files beside it, or in the `agents/` of its folder."""
    if at_top:
        path = folder(tmp_path / "chief", CHIEF, SENIOR, QUALITY)
    else:
        path = folder(tmp_path / "crew", CREW, CHIEF, SENIOR, QUALITY)
    tasks: list[tuple[str, str]] = []

    def answer(request: ModelRequest) -> Any:
        name = request.component
        if name != "chief_qa_engineer":
            tasks.append((name, request.messages[-1].text))
            return "print('snake')" if name == "senior_engineer" else "Good."
        delegated = [m for m in request.messages if m.role == "tool"]
        names = {tool["function"]["name"] for tool in request.tools}
        if not request.tools or len(delegated) == 2:
            return "print('snake')"
        member = ("senior_engineer", "qa_engineer")[len(delegated)]
        (skill,) = [name for name in names if member in name]
        return ToolCall.of(skill, task=f"Snake, {member}.")

    client = serve(podwright.load(path, model=FunctionModel(answer)))
    response = client.post("/run", json={"input": "Build Snake."})
    result = response.json()
    assert response.status_code == 200, result
    assert result["output" if at_top else "game"] == "print('snake')"
    assert tasks == [
        ("senior_engineer", "Snake, senior_engineer."),
        ("qa_engineer", "Snake, qa_engineer."),
    ]
