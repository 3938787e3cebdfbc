"""`RecordedAnswers` keep what a model has answered by what it was asked, and ask it only for what is missing."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import stat
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podwright import Agent, AgentStep, LoopStep, Workflow
from podwright.errors import (
    ConfigurationError,
    ModelError,
    ModelRateLimitError,
    RunCancelledError,
    TraceError,
)
from podwright.events import ModelCallFinished, Reasoning, Token
from podwright.messages.messages import ModelSettings, OutputSchema
from podwright.models.base import TokenCallback
from podwright.models.retries import Retries
from podwright.testing import (
    EchoModel,
    FunctionModel,
    Message,
    Model,
    ModelRequest,
    ModelResponse,
    RecordedAnswers,
    RecordingModel,
    ScriptedModel,
    ToolCall,
    Usage,
    use_model,
)

USAGE = Usage(input_tokens=10, output_tokens=2, cost=0.25)
REQUEST = ModelRequest("me/it", (Message("user", "Hello"),))


class CountingModel(FunctionModel):
    """Gives another answer each time, and says how many it has given."""

    def __init__(self, name: str = "me/it", usage: Usage = USAGE) -> None:
        self.calls = 0
        self._usage = usage
        super().__init__(self._next, name=name)

    def _next(self, request: ModelRequest) -> ModelResponse:
        self.calls += 1
        return ModelResponse(f"Answer {self.calls}", usage=self._usage)


class FailingModel(Model):
    """Raises errors, and then answers."""

    name = "me/failing"
    retries = Retries(tries=1)

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        if self.errors:
            raise self.errors.pop(0)
        return ModelResponse("At last", usage=USAGE)


def never(context: Any) -> bool:
    return False


def guide(model: Model, **options: Any) -> Agent:
    return Agent("guide", "Help.", model, **options)


def test_what_was_asked_before_is_not_asked_again(tmp_path: Path) -> None:
    """The answer, its usage and its cost are the recorded ones, in another process too, which may have no model."""
    folder = tmp_path / "answers"
    model = CountingModel()
    first = guide(RecordedAnswers(folder, model)).run("Hello", trace=True)
    again = guide(RecordedAnswers(str(folder), model)).run("Hello", trace=True)
    assert (first.value, again.value) == ("Answer 1", "Answer 1")
    assert first.usage == again.usage
    assert again.usage.cost == 0.25
    assert model.calls == 1
    guide(RecordedAnswers(folder, model)).run("Good morning")
    assert model.calls == 2


def test_only_its_user_may_read_the_folder(tmp_path: Path) -> None:
    """The folder is made when an answer is recorded, one file an answer."""
    folder = tmp_path / "new" / "answers"
    answers = RecordedAnswers(folder, CountingModel())
    assert not folder.exists()
    guide(answers).run("Hello")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    [file] = folder.iterdir()
    data = json.loads(file.read_text())
    assert data["format"] == "podwright.answer/1"
    assert data["at"] == pytest.approx(time.time(), abs=60)
    assert data["response"]["text"] == "Answer 1"


def test_each_repetition_has_its_own_answers(tmp_path: Path) -> None:
    """Three repetitions are three answers, and the same three the second time."""
    model = CountingModel()

    def answers_of_all() -> list[str]:
        answers = RecordedAnswers(tmp_path, model)
        values: list[str] = []
        for repeat in range(3):
            with answers.sample(repeat=repeat):
                values.append(guide(answers).run("Hello"))
        return values

    assert answers_of_all() == ["Answer 1", "Answer 2", "Answer 3"]
    assert answers_of_all() == ["Answer 1", "Answer 2", "Answer 3"]
    assert model.calls == 3


def test_a_loop_asks_the_same_again(tmp_path: Path) -> None:
    """Equal requests of one run have answers of their own, which the next run gets in the same order."""
    model = CountingModel()

    def outputs() -> list[str]:
        answers = RecordedAnswers(tmp_path, model)
        agent = guide(answers)
        step = AgentStep(agent, input="Hello")
        loop = LoopStep([step], until=never, max_iterations=3)
        result = Workflow("loop", [loop]).run("Hello", trace=True)
        return [
            event.response.text
            for event in result.events
            if isinstance(event, ModelCallFinished)
        ]

    assert outputs() == ["Answer 1", "Answer 2", "Answer 3"]
    assert outputs() == ["Answer 1", "Answer 2", "Answer 3"]


async def test_requests_at_the_same_time_share_no_number(
    tmp_path: Path,
) -> None:
    """Equal requests in one sample are as many calls, though they are made before the first answer."""
    model = CountingModel()
    answers = RecordedAnswers(tmp_path, model)
    with answers.sample() as sample:
        texts = await asyncio.gather(
            *(guide(answers).arun("Hello") for _ in range(8))
        )
    assert sorted(texts) == [f"Answer {number}" for number in range(1, 9)]
    assert sample.live == model.calls == 8
    with answers.sample() as sample:
        again = await asyncio.gather(
            *(guide(answers).arun("Hello") for _ in range(8))
        )
    assert sorted(again) == sorted(texts)
    assert (sample.live, sample.replayed) == (0, 8)


async def test_samples_at_the_same_time_pay_once(tmp_path: Path) -> None:
    """Two samples that ask the same share the answer, though the second one asks before it was given."""
    model = CountingModel()
    started = asyncio.Event()

    class Slow(RecordedAnswers):
        async def ask(
            self,
            model: Model,
            request: ModelRequest,
            on_token: TokenCallback | None,
            on_reasoning: TokenCallback | None,
        ) -> ModelResponse:
            started.set()
            for _ in range(20):
                await asyncio.sleep(0)
            return await super().ask(model, request, on_token, on_reasoning)

    answers = Slow(tmp_path, model)

    async def run() -> tuple[str, int, int, float]:
        with answers.sample() as sample:
            text = await guide(answers).arun("Hello")
        return text, sample.live, sample.replayed, sample.paid

    first = asyncio.create_task(run())
    await started.wait()
    second = await run()
    assert await first == ("Answer 1", 1, 0, 0.25)
    assert second == ("Answer 1", 0, 1, 0.0)


def test_samples_in_threads(tmp_path: Path) -> None:
    """Runs on several event loops at once record all their answers."""
    answers = RecordedAnswers(tmp_path, CountingModel())
    counts: list[int] = []

    def work(number: int) -> None:
        with answers.sample(number % 2) as sample:
            guide(answers).run(f"Hello {number}")
        counts.append(sample.live)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1] * 6
    assert len(list(tmp_path.iterdir())) == 6


def test_a_sample_counts_its_calls(tmp_path: Path) -> None:
    """It says what was live, replayed and paid, and how old the oldest answer is; samples inside are apart."""
    answers = RecordedAnswers(tmp_path, CountingModel())
    before = time.time()
    with answers.sample() as outer:
        guide(answers).run("Hello")
        with answers.sample() as inner:
            guide(answers).run("Hello")
            guide(answers).run("Good morning")
    assert (outer.live, outer.replayed, outer.paid) == (1, 0, 0.25)
    assert (inner.live, inner.replayed, inner.paid) == (1, 1, 0.25)
    assert outer.oldest is None
    assert inner.oldest is not None
    assert before <= inner.oldest <= time.time()


class UnpricedModel(CountingModel):
    """Has no price."""

    def cost(self, usage: Usage) -> float | None:
        return None


class PricedModel(CountingModel):
    """Has a price that changes."""

    price = 0.5

    def cost(self, usage: Usage) -> float | None:
        return self.price


UNPRICED = Usage(input_tokens=10, output_tokens=2, cost=None)


def test_an_unknown_price_is_not_zero(tmp_path: Path) -> None:
    """A live call without a price is counted; the answer stays without one."""
    answers = RecordedAnswers(tmp_path, UnpricedModel(usage=UNPRICED))
    for unpriced in (1, 0):
        with answers.sample() as sample:
            result = guide(answers).run("Hello", trace=True)
        assert (sample.unpriced, sample.paid) == (unpriced, 0.0)
        assert result.usage.cost is None


def test_an_answer_costs_what_it_cost_at_the_time(tmp_path: Path) -> None:
    """An answer that does not say what it costs has the price of its model when it was given."""
    model = PricedModel(usage=UNPRICED)
    answers = RecordedAnswers(tmp_path, model)
    with answers.sample() as sample:
        guide(answers).run("Hello")
    assert sample.paid == 0.5
    model.price = 2.0
    assert guide(answers).run("Hello", trace=True).usage.cost == 0.5


# --- failures


def test_a_failed_call_is_not_recorded(tmp_path: Path) -> None:
    """What it cost is counted, and the next call with the same request takes its place."""
    failed = ModelError("Busy.")
    failed.attempt_usage = Usage(input_tokens=10, cost=0.125)
    answers = RecordedAnswers(tmp_path, FailingModel(failed))
    with answers.sample() as sample:
        with pytest.raises(ModelError, match="Busy"):
            guide(answers).run("Hello")
        assert not list(tmp_path.iterdir())
        assert (sample.live, sample.paid) == (0, 0.125)
        assert guide(answers).run("Hello") == "At last"
    assert sample.live == 1
    [file] = tmp_path.iterdir()
    assert file.stem.endswith("-0-0")


def test_a_call_that_is_repeated_is_recorded_once(tmp_path: Path) -> None:
    """It is replayed without the attempt that failed."""
    limited = ModelRateLimitError("Slow down.")
    limited.retry_after = 0.0
    model = FailingModel(limited)
    model.retries = Retries(tries=2)
    answers = RecordedAnswers(tmp_path, model)
    for calls in ((1, 0), (0, 1)):
        with answers.sample() as sample:
            result = guide(answers).run("Hello", trace=True)
        assert (sample.live, sample.replayed) == calls
        retries = [e for e in result.events if e.type == "model_call_retried"]
        assert len(retries) == sample.live


async def test_a_cancelled_call_is_not_recorded(tmp_path: Path) -> None:
    """A call that waits for the same answer asks itself."""
    asked = asyncio.Event()
    calls = itertools.count()

    async def answer(request: ModelRequest) -> str:
        number = next(calls)
        if number == 0:
            asked.set()
            await asyncio.Event().wait()
        return f"Answer {number}"

    answers = RecordedAnswers(tmp_path, FunctionModel(answer))

    async def run() -> str:
        with answers.sample():
            return await guide(answers).arun("Hello")

    first = asyncio.create_task(run())
    await asked.wait()
    second = asyncio.create_task(run())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises((asyncio.CancelledError, RunCancelledError)):
        await first
    assert await second == "Answer 1"
    assert await run() == "Answer 1"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"format": "podwright.answer/2", "at": 1}'],
    ids=["empty", "cut", "array", "object", "newer"],
)
def test_a_damaged_answer_is_an_error(text: str, tmp_path: Path) -> None:
    """It names the file, and nothing is paid; without the file, the model is asked again."""
    model = CountingModel()
    answers = RecordedAnswers(tmp_path, model)
    guide(answers).run("Hello")
    [file] = tmp_path.iterdir()
    file.write_text(text)
    with pytest.raises(TraceError, match=file.name) as caught:
        guide(answers).run("Hello")
    assert "Delete the file" in str(caught.value)
    assert caught.value.ends_run
    assert model.calls == 1
    file.unlink()
    assert guide(answers).run("Hello") == "Answer 2"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """It is checked before a call is paid."""
    (tmp_path / "file").write_text("")
    model = CountingModel()
    for folder in (tmp_path / "file", tmp_path / "file" / "answers"):
        with pytest.raises(ConfigurationError, match="Cannot record"):
            guide(RecordedAnswers(folder, model)).run("Hello")
    assert model.calls == 0


def test_old_answers_are_asked_again(tmp_path: Path) -> None:
    """An answer that is too old is replaced, and those of a fresh sample are all new."""
    model = CountingModel()
    answers = RecordedAnswers(tmp_path, model)
    assert guide(answers).run("Hello") == "Answer 1"
    [file] = tmp_path.iterdir()
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "at": data["at"] - 100}))
    with answers.sample(max_age=3600) as sample:
        assert guide(answers).run("Hello") == "Answer 1"
    assert sample.oldest == data["at"] - 100
    with answers.sample(max_age=50):
        assert guide(answers).run("Hello") == "Answer 2"
    with answers.sample(fresh=True) as sample:
        assert guide(answers).run("Hello") == "Answer 3"
    assert (sample.live, sample.replayed) == (1, 0)
    assert guide(answers).run("Hello") == "Answer 3"


# --- one store for several models


def test_one_store_for_several_models(tmp_path: Path) -> None:
    """Models have their own answers, in one folder and one sample, whichever component asks."""
    answers = RecordedAnswers(tmp_path)
    small, large = CountingModel("me/small"), CountingModel("me/large")
    with answers.sample() as sample:
        guide(answers.around(small)).run("Hello")
        guide(answers.around(large)).run("Hello")
    assert (sample.live, small.calls, large.calls) == (2, 1, 1)
    with answers.sample() as sample:
        other = Agent("other", "Help.", answers.around(small))
        assert other.run("Hello") == "Answer 1"
        # the second such request of the sample
        assert guide(answers.around(small)).run("Hello") == "Answer 2"
    assert (sample.live, sample.replayed) == (1, 1)
    again = answers.around(small)
    assert answers.around(again) is again
    assert answers.around("offline/echo").name == "offline/echo"


def test_a_store_has_no_model(tmp_path: Path) -> None:
    """A store alone answers nothing."""
    with pytest.raises(ConfigurationError, match="no model to ask"):
        guide(RecordedAnswers(tmp_path)).run("Hello")
    assert RecordedAnswers(tmp_path, "offline/echo").name == "offline/echo"


def test_a_subclass_surrounds_live_calls_only(tmp_path: Path) -> None:
    """Its `ask` is called for what is missing, around other models too, and may refuse a call."""
    asked: list[str] = []

    class Limited(RecordedAnswers):
        async def ask(
            self,
            model: Model,
            request: ModelRequest,
            on_token: TokenCallback | None,
            on_reasoning: TokenCallback | None,
        ) -> ModelResponse:
            if len(asked) == 1:
                raise ConfigurationError("No more.")
            asked.append(model.name)
            return await super().ask(model, request, on_token, on_reasoning)

    answers = Limited(tmp_path).around(CountingModel())
    for _ in range(2):
        assert guide(answers).run("Hello") == "Answer 1"
    assert asked == ["me/it"]
    with answers.sample() as sample, pytest.raises(ConfigurationError):
        guide(answers).run("Good morning")
    assert (sample.live, sample.paid) == (0, 0.0)


# --- what counts as the same request


def setting(**settings: Any) -> ModelRequest:
    return replace(REQUEST, settings=ModelSettings(**settings))


def answered(message: Message) -> ModelRequest:
    return replace(REQUEST, messages=(message, *REQUEST.messages))


def shaped(*keys: str) -> ModelRequest:
    schema = {"properties": {key: {} for key in keys}}
    return replace(REQUEST, output=OutputSchema("answer", schema))


CALL = (ToolCall.of("look_up", "1"),)
SAME = {
    "component": (REQUEST, replace(REQUEST, component="other")),
    "path": (REQUEST, replace(REQUEST, path=(1, 2))),
    "turn": (REQUEST, replace(REQUEST, history=1)),
    "name of the request": (REQUEST, replace(REQUEST, model="me/alias")),
    "number": (setting(temperature=1), setting(temperature=1.0)),
    "order of settings": (
        setting(temperature=1, top_p=1),
        setting(top_p=1, temperature=1),
    ),
    "time-out": (setting(timeout=5), setting(timeout=6)),
    "provider of a text": (
        answered(Message("assistant", "Hi", provider="me")),
        answered(Message("assistant", "Hi")),
    ),
}
OTHER = {
    "message": (REQUEST, answered(Message("assistant", "Hi"))),
    "setting": (REQUEST, setting(temperature=1)),
    "tool choice": (REQUEST, replace(REQUEST, tool_choice="none")),
    "order of a schema": (shaped("reason", "good"), shaped("good", "reason")),
    "provider of tool calls": (
        answered(Message("assistant", "", CALL, provider="me")),
        answered(Message("assistant", "", CALL, provider="you")),
    ),
}


async def count_calls(folder: Path, requests: Sequence[ModelRequest]) -> int:
    """Make requests, each in a sample of its own, and return how often the model was asked."""
    model = CountingModel()
    answers = RecordedAnswers(folder, model)
    for request in requests:
        with answers.sample():
            await answers.complete(request)
    return model.calls


@pytest.mark.parametrize("change", SAME)
async def test_the_same_request(change: str, tmp_path: Path) -> None:
    """What a model is not sent makes no other request."""
    assert await count_calls(tmp_path, SAME[change]) == 1


@pytest.mark.parametrize("change", OTHER)
async def test_another_request(change: str, tmp_path: Path) -> None:
    """What changes what a model is sent makes another request."""
    assert await count_calls(tmp_path, OTHER[change]) == 2


async def test_calls_outside_of_runs(tmp_path: Path) -> None:
    """Without a run and a sample, the store counts."""
    answers = RecordedAnswers(tmp_path, CountingModel())
    texts = [(await answers.complete(REQUEST)).text for _ in range(2)]
    assert texts == ["Answer 1", "Answer 2"]
    again = RecordedAnswers(tmp_path, CountingModel())
    assert (await again.complete(REQUEST)).text == "Answer 1"


# --- as a model


def test_a_whole_answer_is_recorded(tmp_path: Path) -> None:
    """Tool calls, thoughts and what a provider has added come back as they were, and the run goes on from them."""
    calls: list[int] = []

    def double(number: int) -> int:
        """Double a number."""
        calls.append(number)
        return 2 * number

    response = ModelResponse(
        "",
        (ToolCall.of("double", "call-1", number=2),),
        usage=replace(USAGE, reasoning_tokens=1),
        finish_reason="tool_calls",
        model="it-2",
        id="7",
        reasoning="Hm.",
        provider_fields={"signature": "ü/1"},
        provider="me",
    )
    results = [
        guide(RecordedAnswers(tmp_path, model), tools=[double]).run(
            "2?", trace=True
        )
        for model in (
            ScriptedModel(response, "Four.", name="me/it"),
            ScriptedModel(name="me/it"),
        )
    ]
    assert [result.value for result in results] == ["Four."] * 2
    assert results[0].usage == results[1].usage
    assert results[0].messages == results[1].messages
    assert calls == [2, 2]


def test_an_answer_is_streamed_in_one_piece(tmp_path: Path) -> None:
    """A live answer is streamed as the model does it, a recorded one in one piece, thoughts first."""
    response = ModelResponse("One two.", reasoning="Well, hm.", usage=USAGE)
    answers = RecordedAnswers(tmp_path, ScriptedModel(response))
    live, replayed = (
        [
            event.text
            for event in guide(answers).stream("Hello")
            if isinstance(event, Token | Reasoning)
        ]
        for _ in range(2)
    )
    assert len(live) == 4
    assert replayed == ["Well, hm.", "One two."]


QUESTIONS = sorted(
    name
    for name, _ in inspect.getmembers(Model, inspect.isfunction)
    if not name.startswith("_") and name not in ("complete", "stream")
)
ARGUMENTS: dict[str, list[Any]] = {
    "cost": [USAGE],
    "with_cost": [USAGE],
    "recorded_start": ["guide"],
}


class OddModel(EchoModel):
    """Notes what it is asked, apart from requests."""

    name = "me/odd"
    retries = Retries(tries=7)
    reports_cost = True

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in QUESTIONS:
            self.asked.append(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("wrapper", ["answers", "recording"])
@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_wrapping_model_is_its_model(
    question: str, wrapper: str, tmp_path: Path
) -> None:
    """Whatever is asked of it, the model answers that it asks."""
    model = OddModel()
    wrapping: Model = RecordedAnswers(tmp_path, model)
    if wrapper == "recording":
        wrapping = RecordingModel(model, tmp_path / "recording.json")
    assert (wrapping.name, wrapping.reports_cost) == ("me/odd", True)
    assert wrapping.retries == Retries(tries=7)
    assert wrapping.timeouts == EchoModel.timeouts
    answer = getattr(wrapping, question)(*ARGUMENTS.get(question, []))
    if inspect.isawaitable(answer):
        await answer
    assert model.asked[:1] == [question]


def test_all_models_of_a_block_of_code(tmp_path: Path) -> None:
    """In `use_model` it answers for every component."""
    model = CountingModel()
    answers = RecordedAnswers(tmp_path, model)
    for _ in range(2):
        with use_model(answers):
            agent = Agent("guide", "Help.", "openai/gpt-4o-mini")
            assert agent.run("Hello") == "Answer 1"
    assert model.calls == 1


async def test_an_answer_that_was_given_elsewhere(tmp_path: Path) -> None:
    """It is given as if it had been asked for; one that is there stays; equal requests of a sample have their own."""
    model = CountingModel()
    answers = RecordedAnswers(tmp_path / "answers")
    given = [ModelResponse(text, usage=USAGE) for text in ("First", "Second")]
    with answers.sample():
        for response in given:
            assert answers.record(model, REQUEST, response, at=1000.0)
    with answers.sample():
        assert not answers.record("me/it", REQUEST, ModelResponse("Third"))
    wrapped = answers.around(model)
    with answers.sample() as sample:
        texts = [(await wrapped.complete(REQUEST)).text for _ in range(3)]
    assert texts == ["First", "Second", "Answer 1"]
    assert (sample.live, sample.replayed, sample.oldest) == (1, 2, 1000.0)
    other = replace(REQUEST, messages=(Message("user", "Bye"),))
    assert (await wrapped.complete(other)).text == "Answer 2"
