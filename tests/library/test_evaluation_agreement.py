"""How far a judge agrees with persons, and what cases and labels earlier runs give."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.evaluation_models import Provider, provider
from tests.helpers import write_files

from podwright import Agent, Workflow, load
from podwright.connection.schemas import BackgroundRun
from podwright.errors import (
    BlueprintValidationError,
    ConfigurationError,
    LimitExceededError,
    TraceError,
)
from podwright.evaluation import Report, Suite, evaluate
from podwright.evaluation.agreement import Agreement, compare, measure_agreement
from podwright.evaluation.past_runs.cases import (
    PastCase,
    case_of_run,
    case_of_trace,
    record_answers,
)
from podwright.evaluation.past_runs.labels import (
    Label,
    labels_of_run,
    read_labels,
)
from podwright.evaluation.past_runs.suite_files import add_case
from podwright.evaluation.reports.statistics import Rate
from podwright.evaluation.runs.answers import PaidAnswers
from podwright.evaluation.runs.judges import JudgeError, Judges, Opinion
from podwright.evaluation.runs.variants import load_judge
from podwright.events import Event, RunStarted, ToolCallStarted
from podwright.messages.messages import ModelRequest
from podwright.models.recorded_answers import RecordedAnswers

AGENT = {
    "type": "Agent",
    "version": "1",
    "name": "helper",
    "instructions": "Help.",
    "config": {"model": "offline/echo"},
}
JUDGE = {
    **AGENT,
    "name": "kind",
    "config": {
        "model": "fake/judge",
        "response_schema": {
            "type": "object",
            "properties": {
                "good": {"type": "boolean"},
                "why": {"type": "string"},
            },
            "required": ["good"],
        },
    },
}


async def agreement_of(
    folder: Path, labels: Sequence[Label], budget: float = 1.0
) -> Agreement:
    """Measure the agreement of a judge that is asked as the test's provider says."""
    answers = PaidAnswers(folder / "answers", budget)
    write_files(folder, {"kind.json": JUDGE})
    judge = load_judge(folder / "kind.json", answers.around)
    judges = Judges({"kind": judge})
    return await measure_agreement(judges, answers, "kind", labels)


def labelled(good: int, others: int, wrong: Sequence[int]) -> list[Label]:
    """Return labels whose outputs say what the judge finds: something else than the person at some numbers."""
    labels: list[Label] = []
    for number in range(good + others):
        is_good = number < good
        verdict = is_good != (number in wrong)
        labels.append(Label(f"letter {number}: {verdict}", good=is_good))
    return labels


def says_what_it_reads(request: ModelRequest, _: str, __: Random) -> Any:
    return {"good": "True" in request.messages[-1].text, "why": "So."}


async def test_a_planted_agreement(tmp_path: Path) -> None:
    """Of 50 labels, 6 of 30 good ones and 4 of 20 others are judged wrongly: the known kappa and Wilson's intervals."""
    labels = labelled(30, 20, [*range(6), *range(30, 34)])
    with provider(says_what_it_reads) as paid:
        found = await agreement_of(tmp_path, labels)
    assert found.labels == 50
    assert found.base_rate == 0.6
    assert found.kappa is not None
    # the two agree by chance in 51.2 of 100
    kappa = (found.kappa.value, found.kappa.low, found.kappa.high)
    assert kappa == pytest.approx((0.590, 0.323, 0.770), abs=0.002)
    rates = (found.agreed, found.sensitivity, found.specificity)
    expected = ((0.8, 0.670, 0.888), (0.8, 0.627, 0.905), (0.8, 0.584, 0.919))
    for rate, values in zip(rates, expected, strict=True):
        assert rate is not None
        shown = (rate.value, rate.low, rate.high)
        assert shown == pytest.approx(values, abs=0.0006)
    assert found.consistency.value == 1
    assert len(paid.log) == 100
    assert found.paid == pytest.approx(paid.paid)
    assert found.cost == pytest.approx(paid.paid / 100)
    assert len(found.disagreements) == 3
    assert "not good (So.) for the judge" in found.disagreements[0]


async def test_verdicts_are_paid_once(tmp_path: Path) -> None:
    """The two verdicts on a label are two answers, and both are the same at the next start."""
    asked = Counter[str]()

    def changes_its_mind(request: ModelRequest, _: str, __: Random) -> Any:
        text = request.messages[-1].text
        asked[text] += 1
        is_other = "letter 1:" in text and asked[text] == 2
        return {"good": ("True" in text) != is_other}

    labels = labelled(3, 1, [])
    with provider(changes_its_mind) as paid:
        first = await agreement_of(tmp_path, labels)
        assert len(paid.log) == 8
        second = await agreement_of(tmp_path, labels)
        assert len(paid.log) == 8
    assert first.consistency.value == second.consistency.value == 0.75
    assert (first.paid > 0, second.paid) == (True, 0)
    assert first.cost == second.cost
    assert first.agreed.value == 1


@pytest.mark.parametrize(
    ("good", "others", "wrong", "kappa"),
    [
        (4, 0, [], None),
        (0, 4, [], None),
        (2, 2, [], 1.0),
        (2, 2, [0, 1, 2, 3], -1.0),
        # a judge who always says yes agrees with three of four by chance
        (3, 1, [3], 0.0),
    ],
)
async def test_kappa_at_its_ends(
    good: int,
    others: int,
    wrong: list[int],
    kappa: float | None,
    tmp_path: Path,
) -> None:
    with provider(says_what_it_reads):
        found = await agreement_of(tmp_path, labelled(good, others, wrong))
    assert (found.kappa and found.kappa.value) == kappa
    assert found.kappa is None or found.kappa.low < found.kappa.high
    assert (found.sensitivity is None) == (good == 0)
    assert (found.specificity is None) == (others == 0)


@pytest.mark.parametrize(("base", "right"), [(0.5, 0.8), (0.7, 0.95)])
def test_intervals_of_kappa(base: float, right: float) -> None:
    """By simulation, they hold the true one in 93 of 100 samples or more."""
    chance = Random(7)
    said = base * right + (1 - base) * (1 - right)
    by_chance = base * said + (1 - base) * (1 - said)
    true = (right - by_chance) / (1 - by_chance)
    held = 0
    for _ in range(400):
        labels = [Label("", good=chance.random() < base) for _ in range(30)]
        opinions: list[tuple[Opinion, Opinion]] = []
        for label in labels:
            is_right = chance.random() < right
            opinion = Opinion(label.good == is_right)
            opinions.append((opinion, opinion))
        kappa = compare(labels, opinions).kappa
        held += kappa is not None and kappa.low <= true <= kappa.high
    assert held >= 0.93 * 400


async def test_labels_without_a_verdict(tmp_path: Path) -> None:
    """They are not counted as either, and say why; if there is no verdict at all, that is the error."""

    def fails_at_times(request: ModelRequest, _: str, __: Random) -> Any:
        text = " ".join(message.text for message in request.messages)
        return "neither" if "letter 0" in text else {"good": True}

    with provider(fails_at_times):
        found = await agreement_of(tmp_path / "a", labelled(3, 0, []))
        assert (found.labels, found.agreed.value) == (2, 1.0)
        assert len(found.without_verdict) == 1
        with pytest.raises(JudgeError):
            await agreement_of(tmp_path / "b", labelled(1, 0, []))
        with pytest.raises(JudgeError) as info:
            await agreement_of(tmp_path / "c", labelled(2, 0, []), budget=0.0)
    assert isinstance(info.value.error, LimitExceededError)


# --- Labels


def test_labels_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text(
        '{"output": "Dear Ann", "good": true}\n\n'
        '{"output": {"a": 1}, "good": false, "inputs": {"x": 1}, "input": {"about": "tone"}, "comment": "Cold."}\n'
    )
    first, second = read_labels(file)
    assert first.judge_inputs() == {"output": "Dear Ann", "inputs": ""}
    assert second.judge_inputs()["about"] == "tone"
    assert (second.good, second.comment) == (False, "Cold.")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"output": "x"}',
        '{"output": "x", "good": "yes"}',
        '{"output": "x", "good": true, "god": 1}',
    ],
)
def test_files_that_have_no_labels(text: str, tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text(text)
    with pytest.raises(ConfigurationError):
        read_labels(file)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        read_labels(tmp_path / "labels.jsonl")


def stored_run(*decisions: dict[str, Any], **fields: Any) -> BackgroundRun:
    """Return a background run as a service shows it."""
    common = {"message": "Send?", "run_id": "1", "path": [0], "at": 1.0}
    facts: dict[str, Any] = {
        "id": "0123456789abcdef",
        "component": "desk",
        "status": "succeeded",
        "attempt": 1,
        "created_at": datetime.now(UTC),
        "usage": {},
        "input": {"input": "A cup", "customer": "Ann"},
        **fields,
    }
    listed = [{"comment": "", **common, **each} for each in decisions]
    return BackgroundRun.model_validate({**facts, "decisions": listed})


def draft(text: str) -> dict[str, Any]:
    return {"draft": {"schema": {"type": "string"}, "value": text}}


def test_labels_of_approvals() -> None:
    """Approval is good; a rejection is not, nor is something else than what was shown; other options say nothing."""
    run = stored_run(
        {"approved": False, "decision": "reject", "comment": "Too cold.", "edit": draft("Hello")},
        {"approved": True, "edit": draft("Dear Ann"), "values": {"draft": "Dear Ann"}},
        {"approved": True, "edit": draft("Dear Bob"), "values": {"draft": "Dear Ann"}},
        {"approved": True, "decision": "ask a colleague"},
        {"approved": True},
        {"approved": True, "tool": "send", "edit": {"to": {"schema": {}, "value": "Ann"}}},
    )  # fmt: skip
    labels = list(labels_of_run(run))
    assert [(label.output, label.good) for label in labels] == [
        ("Hello", False),
        ("Dear Ann", True),
        ("Dear Bob", False),
        ("Send?", True),
        ({"tool": "send", "arguments": {"to": "Ann"}}, True),
    ]
    assert labels[0].comment == "Too cold."
    assert labels[0].inputs == {"input": "A cup", "customer": "Ann"}


# --- Cases


def component_in(folder: Path, suite: str = "") -> Path:
    """Return a folder with a component, and with a suite if there is one."""
    write_files(folder, {"blueprint.json": AGENT})
    if suite:
        write_files(folder, {"evals/evals.yaml": suite})
    return folder


def test_a_case_of_a_stored_run() -> None:
    """Its inputs, earlier turns and decisions as they were; a run that a rejection has ended is expected to end so."""
    turns = [{"role": "user", "content": "Hello."}]
    run = stored_run(
        {"approved": True, "edit": draft("a"), "values": {"draft": "b"}},
        {"approved": False, "decision": "reject", "comment": "No."},
        status="cancelled",
        input_messages=turns,
    )
    case = case_of_run(run, ())
    assert case.component == "desk"
    assert case.data == {
        "name": "run 01234567",
        "inputs": {"input": "A cup", "customer": "Ann"},
        "messages": turns,
        "decisions": [
            {"decision": "approve", "values": {"draft": "b"}},
            {"decision": "reject", "comment": "No."},
        ],
        "expect_error": "approval_rejected",
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"input_cut": True},
        {"input": None},
        {"input": [{"type": "text", "text": "What is it?"}]},
        {"status": "waiting_for_approval"},
        {"status": "running"},
    ],
)
def test_stored_runs_that_are_no_case(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        case_of_run(stored_run(**fields), ())


def test_calls_are_checked_as_they_were() -> None:
    """In their order, each once, without arguments that a check would take for templates, or that are not shown."""
    events: list[Event] = [
        RunStarted(run_id="0123456789", input="x"),
        ToolCallStarted(run_id="a", call=0, tool="find", arguments={"q": "cup", "n": 2}),
        ToolCallStarted(run_id="a", call=0, tool="find", arguments={"q": "cup", "n": 2}),
        ToolCallStarted(run_id="a", call=1, tool="send", arguments={"text": "{draft}", "to": "A{B"}),
        ToolCallStarted(run_id="a", call=2, tool="note", arguments=None),
    ]  # fmt: skip
    case = case_of_trace(events)
    assert case.data["checks"] == [
        {
            "called": [
                {"tool": "find", "arguments": {"q": "cup", "n": 2}},
                {"tool": "send", "arguments": {"to": "A{B"}},
                "note",
            ],
            "order": "in order",
        }
    ]


def test_a_trace_without_a_run() -> None:
    with pytest.raises(TraceError):
        case_of_trace([])


def desk_trace(folder: Path, paid: Provider) -> Any:
    """Return the trace of a conversation's second turn, of an agent with a provider's model."""
    blueprint = {**AGENT, "config": {"model": "fake/small"}}
    (folder / "blueprint.json").write_text(json.dumps(blueprint))
    turns = [
        {"role": "user", "content": "I am Ann."},
        {"role": "assistant", "content": "Hello Ann."},
    ]
    result = load(folder).run("Who am I?", messages=turns, trace=True)
    assert len(paid.log) == 1
    return result, turns


def test_a_traced_run_is_replayed(tmp_path: Path) -> None:
    """The case of a trace has its earlier turns, and its first evaluation asks no model."""
    folder = component_in(tmp_path / "helper")
    with provider(lambda *_: "You are Ann.") as paid:
        result, turns = desk_trace(folder, paid)
        case = case_of_trace(result.events)
        assert case.data["inputs"] == "Who am I?"
        assert case.data["messages"] == turns
        added = add_case(folder, case)
        assert added.is_begun
        answers = RecordedAnswers(folder / "evals" / ".recorded" / "answers")
        assert record_answers(answers, result.events) == 1
        assert record_answers(answers, result.events) == 0
        report = evaluate(Suite.load(folder))
        assert len(paid.log) == 1
    (row,) = report.rows
    assert (row.case, row.output) == (added.name, "You are Ann.")
    assert (row.live_calls, row.replayed_calls, row.paid) == (0, 1, 0)
    assert row.oldest_answer == pytest.approx(result.events[-2].at)


def test_equal_requests_of_a_trace_have_answers_of_their_own(
    tmp_path: Path,
) -> None:
    with provider(lambda _, __, chance: str(chance.random())) as paid:
        agent = Agent("dice", "Roll.", "fake/small")
        flow = Workflow("flow", [agent, agent])
        flow_input = {"input": "x"}
        result = flow.run(flow_input, trace=True)
        answers = RecordedAnswers(tmp_path / "answers")
        new = record_answers(answers, result.events)
        agent.wrap_models(answers.around)
        again = flow.run(flow_input, trace=True)
        assert len(paid.log) == new == 2
    assert again.value == result.value


CASE = PastCase("helper", {"name": "run 1", "inputs": "Hi"})
WRONG = replace(CASE, data={**CASE.data, "must": 1})
COMMENTED = """# what the desk must do
repeat: 2
cases:  # the oldest first
  # of March
  - name: "one"   # kept
    inputs: hello
gates: {pass_rate: {at_least: 0.5}}
"""


def test_comments_of_a_suite_stay(tmp_path: Path) -> None:
    """One line is added, and the others are what they were."""
    folder = component_in(tmp_path / "helper", COMMENTED)
    added = add_case(folder, CASE)
    text = (folder / "evals" / "evals.yaml").read_text()
    line = "  - file: cases.jsonl\n"
    assert line in text
    assert text.replace(line, "") == COMMENTED
    assert [case.name for case in Suite.load(folder).cases] == ["run 1", "one"]
    again = add_case(folder / "evals" / "evals.yaml", CASE)
    assert (folder / "evals" / "evals.yaml").read_text() == text
    assert (added.name, again.name) == ("run 1", "run 1-2")
    assert not added.missing_line


@pytest.mark.parametrize(
    ("name", "suite", "is_changed"),
    [
        ("evals.yaml", "cases:\n- {name: a, inputs: x}\n", True),
        ("evals.yaml", "cases:\r\n  - {name: a, inputs: x}\r\n", True),
        ("evals.yaml", "cases: [{name: a, inputs: x}]  # short\n", False),
        ("evals.yaml", "cases:\n  [{name: a, inputs: x}]\n", False),
        (
            "evals.json",
            '{\n  "cases": [\n    {\n      "name": "a",\n      "inputs": "x"\n    }\n  ]\n}\n',
            True,
        ),
        ("evals.json", '{"cases": [{"name": "a", "inputs": "x"}]}', False),
    ],
)
def test_a_suite_that_cannot_be_changed_safely(
    name: str, suite: str, is_changed: bool, tmp_path: Path
) -> None:
    """It stays as it is, and the line that it lacks is named; the case is written in any case."""
    folder = component_in(tmp_path / "helper")
    (folder / "evals").mkdir()
    file = folder / "evals" / name
    file.write_bytes(suite.encode())
    added = add_case(folder, CASE)
    assert (file.read_bytes() != suite.encode()) == is_changed
    assert bool(added.missing_line) == (not is_changed)
    names = {case.name for case in Suite.load(folder).cases}
    assert names == ({"a", "run 1"} if is_changed else {"a"})
    assert json.loads(added.cases_file.read_text()) == CASE.data
    assert add_case(folder, CASE).name == "run 1-2"


def test_what_is_there_stays(tmp_path: Path) -> None:
    """A case that does not fit, or whose name is taken, changes no file; a last line without an end gets one."""
    folder = component_in(tmp_path / "helper", COMMENTED)
    with pytest.raises(ConfigurationError):
        add_case(folder, CASE, "one")
    with pytest.raises(BlueprintValidationError):
        add_case(folder, WRONG)
    with pytest.raises(ConfigurationError, match="is of 'other'"):
        add_case(folder, replace(CASE, component="other"))
    assert (folder / "evals" / "evals.yaml").read_text() == COMMENTED
    assert not (folder / "evals" / "cases.jsonl").exists()
    line = json.dumps({"name": "old", "inputs": "x"})
    (folder / "evals" / "cases.jsonl").write_text(line)
    added = add_case(folder, CASE, "new")
    assert added.cases_file.read_text().startswith(f"{line}\n{{")


def test_a_suite_that_would_begin_wrongly(tmp_path: Path) -> None:
    """A case that does not fit begins no suite."""
    folder = component_in(tmp_path / "helper")
    with pytest.raises(BlueprintValidationError):
        add_case(folder, WRONG)
    assert not (folder / "evals").exists()


def test_no_component(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no component folder"):
        add_case(tmp_path, CASE)
    assert not list(tmp_path.iterdir())


# --- A blessed report


def passed(report: Report) -> Rate:
    """Return the rate of the only variant."""
    rate = report["as it is"].passed
    assert rate is not None
    return rate


def compared_cases(report: Report) -> int:
    """Return how many cases the only variant has in common with the baseline."""
    difference = report.compare("as it is").passed
    return 0 if difference is None else difference.cases


def test_a_blessed_report(tmp_path: Path) -> None:
    """It has no words of models; cases that ask or check something else by now are not compared."""
    checks = "[{name: contains, args: {value: '{output}', text: %s}}]"
    suite = (
        "cases:\n- {name: a, inputs: x, checks: %s}\n- {name: b, inputs: y}\n"
    )
    folder = component_in(tmp_path / "helper", suite % (checks % "secret"))
    blessed = evaluate(Suite.load(folder)).blessed()
    assert passed(blessed).value == 0.5
    assert "Echo" not in json.dumps(blessed.to_dict())
    same = evaluate(Suite.load(folder), against=blessed)
    assert compared_cases(same) == 2
    write_files(folder, {"evals/evals.yaml": suite % (checks % "Echo")})
    report = evaluate(Suite.load(folder), against=blessed)
    assert passed(report).value == 1
    assert compared_cases(report) == 1
