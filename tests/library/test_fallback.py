"""Fallback models: who answers, after what, what it costs, what the events say, and when the first is asked again."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.library.model_clients import NO_LIMITS, SOON
from tests.library.upstream import (
    HOUR,
    STREAM,
    Script,
    Upstream,
    call,
    chunk,
    completion,
    delta,
    pass_time,
    reply,
    sse,
    streamed,
    upstream,
)

from podwright import (
    Agent,
    Conductor,
    ExecutionResult,
    errors,
    register_provider,
)
from podwright.chats import model_call
from podwright.messages.messages import ModelRequest, ModelResponse
from podwright.messages.usage import RunLimits
from podwright.models import Model, registry
from podwright.models.circuit_breaker import CircuitBreaker
from podwright.models.retries import Timeouts
from podwright.testing import ReplayModel, ScriptedModel, ToolCall

FIRST = "hosted_vllm/first"
SECOND = "lm_studio/second"
PRICES = {
    FIRST: {"input": 1.0, "output": 2.0},
    SECOND: {"input": 10.0, "output": 20.0},
}
"""USD for a million tokens."""


@dataclass
class Providers:
    """Two providers, and the clock of the circuits."""

    first: Upstream
    second: Upstream
    now: float = 0.0
    circuits: CircuitBreaker = field(init=False)

    def __post_init__(self) -> None:
        self.circuits = CircuitBreaker(clock=lambda: self.now)

    def agent(self, **options: Any) -> Agent:
        return Agent("guide", "Help.", FIRST, fallback=[SECOND], **options)


@pytest.fixture
async def providers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> AsyncGenerator[Providers]:
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps(PRICES))
    monkeypatch.setenv("PODWRIGHT_PRICES", str(prices))
    monkeypatch.setattr(Model, "timeouts", NO_LIMITS)
    monkeypatch.setattr(Model, "retries", SOON)
    # each test has other addresses
    monkeypatch.setattr(registry, "_resolved", {})
    async with upstream() as first, upstream() as second:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", first.url)
        monkeypatch.setenv("LM_STUDIO_API_BASE", second.url)
        second.answers([reply(completion("From the second."))])
        both = Providers(first, second)
        monkeypatch.setattr(model_call, "circuits", both.circuits)
        yield both


def refused(status: int, code: str = "", **headers: Any) -> list[Any]:
    return [
        reply({"error": {"code": code, "message": "No."}}, status, **headers)
    ]


DEAD: Script = ["close"]
SLOW: Script = [pass_time, "hang"]
CUT = streamed(sse(delta(role="assistant", content=""), done=False))
CUT_CALL = streamed(
    sse(delta(tool_calls=[call(index=0, id="c", name="f", arguments="{}")]))
)
UNAVAILABLE: dict[str, tuple[Script, int, str]] = {
    "down": (DEAD, 3, "model_unreachable"),
    "overloaded": (refused(503), 3, "model_unavailable"),
    "slow": (SLOW, 1, "model_timeout"),
    "limited for a minute": (
        refused(429, Retry_After="60"),
        1,
        "model_rate_limited",
    ),
    "limited for a moment": (
        refused(429, Retry_After="0.001"),
        3,
        "model_rate_limited",
    ),
    "without credit": (refused(402), 1, "model_rate_limited"),
    "no credit in the code": (
        refused(429, "insufficient_quota"),
        1,
        "model_rate_limited",
    ),
    "a wrong key": (refused(401), 1, "model_authentication"),
    "cut off before the first token": (CUT, 3, "model_response_invalid"),
    "cut off between two tool calls": (CUT_CALL, 3, "model_response_invalid"),
}
"""What the first provider does, how often it is asked, and why the second is asked."""


@pytest.mark.parametrize("name", UNAVAILABLE)
@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
async def test_the_next_model_answers(
    name: str,
    streaming: bool,
    providers: Providers,
    recorder: Any,
    assert_sound: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is one model call: its events name each model that was asked; cost and tokens are those of who answered."""
    script, attempts, code = UNAVAILABLE[name]
    monkeypatch.setattr(
        Model,
        "timeouts",
        Timeouts(first_byte=1800.0, idle=1800.0, total=3600.0 * 9),
    )
    providers.first.answers(script)
    providers.second.answers(
        streamed(
            sse(
                delta(content="From the second."),
                {**delta("stop"), "usage": USAGE},
            )
        )
    )
    agent = providers.agent(event_manager=recorder.manager)
    result: ExecutionResult = await agent.arun(
        "?", stream=streaming, trace=True
    )
    assert result.value == "From the second."
    assert (len(providers.first.requests), len(providers.second.requests)) == (
        attempts,
        1,
    )
    (fell_back,) = recorder.of("model_call_fell_back")
    assert (fell_back.model, fell_back.error["code"]) == (FIRST, code)
    (started,) = recorder.of("model_call_started")
    (finished,) = recorder.of("model_call_finished")
    assert (
        started.request.model,
        finished.model,
        finished.response.provider,
    ) == (
        FIRST,
        SECOND,
        "lm_studio",
    )
    assert finished.response.usage.cost == pytest.approx(20 * 10e-6 + 4 * 20e-6)
    used = result.usage.by_model[SECOND]
    assert (used.input_tokens, used.output_tokens, used.model_calls) == (
        20,
        4,
        1,
    )
    assert result.usage.model_calls == 1
    assert_sound(recorder.events)


USAGE = {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24}
TOO_LONG = refused(400, "context_length_exceeded")
NOT_THE_MODEL: dict[str, tuple[Script, type[errors.ModelError]]] = {
    "a wrong request": (refused(400), errors.ModelRequestError),
    "a request that is too long": (TOO_LONG, errors.ContextWindowError),
    "a filtered request": (
        refused(400, "content_filter"),
        errors.ContentFilterError,
    ),
    "an unknown model": (refused(404), errors.ModelRequestError),
}


@pytest.mark.parametrize("name", NOT_THE_MODEL)
async def test_another_model_is_not_asked_what_this_one_refuses(
    name: str, providers: Providers
) -> None:
    """What is refused for its content or its form would be refused, or answered differently, elsewhere."""
    script, error = NOT_THE_MODEL[name]
    providers.first.answers(script)
    with pytest.raises(error):
        await providers.agent().arun("?")
    assert providers.second.requests == []


async def test_a_stream_falls_back_only_before_its_first_token(
    providers: Providers,
) -> None:
    """What a reader has seen is neither repeated nor continued by another model."""
    providers.first.answers(
        streamed(sse(delta(content="From the "), done=False))
    )
    tokens: list[str] = []
    with pytest.raises(errors.ModelResponseError):
        await providers.agent(on_token=tokens.append).arun("?", stream=True)
    assert (tokens, providers.second.requests) == (["From the "], [])


async def test_all_fail_as_the_last(
    providers: Providers, recorder: Any, assert_sound: Any
) -> None:
    """If no model answers, the error is that of the last one."""
    providers.first.answers(refused(503))
    providers.second.answers(refused(401))
    with pytest.raises(
        errors.ModelAuthenticationError, match="lm_studio/second"
    ):
        await providers.agent(event_manager=recorder.manager).arun("?")
    (failed,) = recorder.of("model_call_failed")
    assert failed.model == SECOND
    assert_sound(recorder.events)


async def test_a_model_that_failed_is_asked_again_after_a_while(
    providers: Providers,
) -> None:
    """An open circuit passes it over, a half-open one lets one call try it, and an answer closes it."""
    providers.first.answers(refused(401))
    agent = providers.agent()
    for _ in range(3):
        await agent.arun("?")
    assert (len(providers.first.requests), len(providers.second.requests)) == (
        1,
        3,
    )
    providers.now += 31
    await agent.arun("?")
    assert (len(providers.first.requests), len(providers.second.requests)) == (
        2,
        4,
    )
    providers.now += 31
    providers.first.answers([reply(completion("From the first."))])
    assert [await agent.arun("?") for _ in range(2)] == ["From the first."] * 2


async def test_a_half_open_circuit_stays_so_until_its_model_is_asked(
    providers: Providers,
) -> None:
    """While the first model answers, nobody tries the second, which is still there when the first fails."""
    agent = providers.agent()
    providers.first.answers(
        refused(401), [reply(completion("From the first."))]
    )
    providers.second.answers(refused(401))
    with pytest.raises(errors.ModelAuthenticationError):
        await agent.arun("?")
    providers.now += 31
    assert await agent.arun("?") == "From the first."
    providers.first.answers(refused(401))
    providers.second.answers([reply(completion("From the second."))])
    assert await agent.arun("?") == "From the second."


async def test_with_all_circuits_open_all_are_asked(
    providers: Providers,
) -> None:
    """No call fails only because earlier ones did."""
    providers.first.answers(refused(503))
    providers.second.answers(refused(503))
    agent = providers.agent()
    for _ in range(2):
        with pytest.raises(errors.ModelUnavailableError):
            await agent.arun("?")
    providers.second.answers([reply(completion("From the second."))])
    assert await agent.arun("?") == "From the second."


async def test_limits_hold_over_all_models(providers: Providers) -> None:
    """A call that fell back counts once, and the price of who answers counts against the limit of the cost."""
    providers.first.answers(refused(503))
    limits = RunLimits(model_calls=1, cost=0.2)
    assert await providers.agent(limits=limits).arun("?") == "From the second."
    with pytest.raises(errors.LimitExceededError):
        await providers.agent(limits=RunLimits(cost=1e-9)).arun("?")


async def test_a_call_counts_once_whoever_ends_it(providers: Providers) -> None:
    """A call that fails counts against the limit of calls, also if the first model ends it; a fallback is no second."""
    for script, error in (
        (refused(400), errors.ModelRequestError),
        (refused(503), errors.ModelUnavailableError),
    ):
        providers.first.answers(script)
        providers.second.answers(refused(503))

        async def ask_twice() -> str:
            """Ask, whatever comes of it, and ask again."""
            for _ in range(2):
                with contextlib.suppress(errors.ModelError):
                    await providers.agent().arun("?")
            return "done"

        limits = RunLimits(model_calls=3)
        outer = Agent(
            "outer",
            "",
            ScriptedModel(ToolCall.of("ask_twice"), "end"),
            tools=[ask_twice],
            limits=limits,
        )
        with pytest.raises(errors.LimitExceededError):
            await outer.arun("?")
        assert error


async def test_the_limit_of_one_model_does_not_explain_the_end_of_another(
    providers: Providers,
) -> None:
    """An answer that is cut off at its own limit of tokens is no answer cut off by the limits of the run."""
    providers.first.answers(refused(503))
    cut = {
        **completion("Half"),
        "choices": [
            {"message": {"content": "Half"}, "finish_reason": "length"}
        ],
    }
    providers.second.answers([reply(cut)])
    limits = RunLimits(cost=0.5)
    with pytest.raises(errors.ModelError, match=SECOND) as caught:
        await providers.agent(limits=limits, max_tokens=50).arun("?")
    assert not isinstance(caught.value, errors.LimitExceededError)


async def test_what_says_nothing_about_a_model_leaves_its_circuit(
    providers: Providers,
) -> None:
    """A refused request shows that a model is there, and a wrong key of one component is not another one's."""
    agent = providers.agent()
    providers.first.answers(refused(503))
    await agent.arun("?")
    providers.now += 31
    providers.first.answers(
        refused(400), [reply(completion("From the first."))]
    )
    with pytest.raises(errors.ModelRequestError):
        await agent.arun("?")
    assert await agent.arun("?") == "From the first."
    providers.first.answers(refused(401))
    await providers.agent(api_key="wrong").arun("?")
    providers.first.answers([reply(completion("From the first."))])
    assert await agent.arun("?") == "From the first."


async def test_a_stream_that_stalls_after_its_first_token_opens_the_circuit(
    providers: Providers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection without data is a failure of the model, also where the call cannot fall back any more."""
    monkeypatch.setattr(Model, "timeouts", replace(NO_LIMITS, idle=HOUR / 2))
    await _stop_after_first_token(providers)
    assert await providers.agent().arun("?") == "From the second."


async def test_the_end_of_a_calls_time_leaves_the_circuit_closed(
    providers: Providers,
) -> None:
    """An answer that is longer than the time of its call says nothing about the model."""
    await _stop_after_first_token(providers, timeout=HOUR / 2)
    assert await providers.agent().arun("?") == "From the first."


async def _stop_after_first_token(providers: Providers, **options: Any) -> None:
    """Let the time pass in which the first provider does not go on after a token; its next response is complete."""
    first_token = asyncio.Event()

    def on_token(_: str) -> None:
        first_token.set()

    stalled: Script = [
        STREAM,
        chunk(sse(delta(content="From the "), done=False)),
        first_token,
        pass_time,
        "hang",
    ]
    providers.first.answers(stalled, [reply(completion("From the first."))])
    agent = providers.agent(on_token=on_token, **options)
    with pytest.raises(errors.ModelTimeoutError):
        await agent.arun("?", stream=True)


async def test_the_fields_of_a_model_of_ones_own_stay_with_it(
    providers: Providers,
) -> None:
    """A model that does not name its provider has one: the first part of its name."""

    class Own(Model):
        def __init__(self, name: str) -> None:
            self.name = f"own/{name}"

        async def complete(
            self, request: ModelRequest, on_token: Any = None
        ) -> ModelResponse:
            call = ToolCall("c1", "look", '{"word": "sea"}', {"seal": "own"})
            return ModelResponse(
                "",
                (call,),
                finish_reason="tool_calls",
                provider_fields={"seal": "own"},
            )

    def look(word: str) -> str:
        """Look a word up."""
        return word

    register_provider("own", lambda name, _: Own(name))
    providers.first.answers(
        refused(503), refused(503), refused(503), [reply(completion("Done."))]
    )
    agent = Agent("guide", "Help.", FIRST, fallback=["own/x"], tools=[look])
    providers.circuits.recovery_time = 0.0
    assert await agent.arun("?") == "Done."
    assert "seal" not in json.dumps(providers.first.requests[-1])


async def test_a_model_that_has_begun_may_take_the_whole_time(
    providers: Providers,
) -> None:
    """Half of the time is for the beginning of an answer: who reads it gets all of it, if it comes in time."""
    first = chunk(sse(delta(content="From the "), done=False))
    seen = asyncio.Event()

    def on_token(_: str) -> None:
        if not seen.is_set():
            pass_time(7.0)
        seen.set()

    providers.first.answers(
        [
            STREAM,
            first,
            seen,
            chunk(sse(delta(content="first."), delta("stop"))),
            chunk(b""),
        ]
    )
    assert (
        await providers.agent(timeout=10.0, on_token=on_token).arun(
            "?", stream=True
        )
        == "From the first."
    )
    providers.first.answers([lambda: pass_time(7.0), "hang"])
    assert (
        await providers.agent(timeout=10.0).arun("?", stream=True)
        == "From the second."
    )


async def test_the_last_error_names_those_before(providers: Providers) -> None:
    """Who reads that the last model failed learns that others were asked, and why they could not answer."""
    providers.first.answers(refused(402))
    providers.second.answers(refused(401))
    with pytest.raises(
        errors.ModelAuthenticationError,
        match=r"Asked before: 'hosted_vllm/first' \(model_rate_limited\)",
    ):
        await providers.agent().arun("?")


async def test_a_model_that_was_passed_over_is_better_than_none(
    providers: Providers,
) -> None:
    """If the models with closed circuits fail, those with open ones are asked."""
    agent = providers.agent()
    providers.first.answers(refused(401))
    await agent.arun("?")
    providers.first.answers([reply(completion("From the first."))])
    providers.second.answers(refused(401))
    assert await agent.arun("?") == "From the first."


@pytest.mark.parametrize("ended", ["timeout", "wall_time", "cancelled"])
async def test_what_is_cut_off_is_counted(
    ended: str, providers: Providers, recorder: Any
) -> None:
    """A time limit and a caller that leaves cost tokens that nobody knows: counts that grow are those of a part."""
    begun = sse(
        {"choices": [{"delta": {"content": "Half"}}], "usage": USAGE},
        done=False,
    )
    shown = asyncio.Event()
    providers.second.answers([STREAM, chunk(begun), "hang"])
    options: dict[str, Any] = {"timeout": 60.0} if ended == "timeout" else {}
    limits = RunLimits(wall_time=60.0) if ended == "wall_time" else None

    def on_token(_: str) -> None:
        shown.set()
        if ended != "cancelled":
            pass_time()

    agent = Agent(
        "guide",
        "",
        SECOND,
        event_manager=recorder.manager,
        limits=limits,
        on_token=on_token,
        **options,
    )
    run = asyncio.create_task(agent.arun("?", stream=True))
    await shown.wait()
    if ended == "cancelled":
        run.cancel()
    with pytest.raises((errors.PodwrightError, asyncio.CancelledError)):
        await run
    (failed,) = recorder.of("model_call_failed")
    (last,) = recorder.of("run_failed", "run_cancelled")
    for usage in (failed.usage, last.usage):
        assert (usage.input_tokens, usage.output_tokens) == (20, 4)
        assert (usage.cost, usage.uncounted_model_calls) == (None, 1)


async def test_what_one_provider_said_is_not_sent_to_another(
    providers: Providers,
) -> None:
    """Thoughts and ids of the first provider stay with it: the next gets the text, and ids that it accepts."""
    thought = {"reasoning_content": "Hm."}
    made = {
        "id": "call_" + "x" * 300,
        "type": "function",
        "extra_content": {"signature": "s"},
    }
    made["function"] = {"name": "look", "arguments": '{"word": "sea"}'}
    providers.first.answers(
        [reply(completion(None, tool_calls=[made], **thought))], refused(503)
    )

    def look(word: str) -> str:
        """Look a word up."""
        return f"{word}: salty"

    history = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "Yes.", **thought},
    ]
    result = await providers.agent(tools=[look]).arun(
        "?", messages=history, trace=True
    )
    _, _, earlier, _, called, found = providers.second.requests[0]["messages"]
    assert earlier == {"role": "assistant", "content": "Yes."}
    assert called.keys() == {"role", "content", "tool_calls"}
    (sent,) = called["tool_calls"]
    assert sent.keys() == {"id", "type", "function"}
    assert len(sent["id"]) == 9
    assert found["tool_call_id"] == sent["id"]
    assert result.messages[-3]["tool_calls"] == [made]
    assert result.messages[-3]["podwright_provider"] == "hosted_vllm"
    # the next turn is the first provider's again
    providers.now += 31
    providers.first.answers([reply(completion("Ok."))])
    await providers.agent(tools=[look]).arun("?", messages=result.messages)
    assert [
        m["tool_calls"]
        for m in providers.first.requests[0]["messages"]
        if m.get("tool_calls")
    ] == [[made]]


async def test_the_parameters_of_one_provider_are_not_sent_to_another(
    providers: Providers,
) -> None:
    providers.first.answers(refused(503))
    agent = providers.agent(parameters={"top_k": 3})
    assert await agent.arun("?") == "From the second."
    assert providers.first.requests[0]["top_k"] == 3
    assert "top_k" not in providers.second.requests[0]


def test_a_member_without_a_model_falls_back_like_the_whole() -> None:
    """The fallback models of a conductor stand for its model, also where a skill takes that over."""
    blueprint = {
        "type": "Conductor", "name": "lead", "instructions": "", "config": {"model": FIRST, "fallback": [SECOND]},
        "skills": [
            {"type": "Agent", "name": "a", "instructions": ""},
            {"type": "Agent", "name": "b", "instructions": "", "config": {"model": SECOND}},
        ],
    }  # fmt: skip
    conductor = Conductor.from_blueprint(blueprint)
    assert [skill.models() for skill in conductor.skills] == [
        [FIRST, SECOND],
        [SECOND],
    ]
    assert conductor.models() == [FIRST, SECOND]


async def test_a_recorded_fallback_is_replayed(providers: Providers) -> None:
    """A trace answers for whichever model answered."""
    providers.first.answers(refused(503))
    result = await providers.agent().arun("?", trace=True)
    saved = ExecutionResult.from_dict(json.loads(json.dumps(result.to_dict())))
    assert (
        await Agent("guide", "Help.", ReplayModel(saved)).arun("?")
        == "From the second."
    )


def test_a_model_object_has_no_fallback() -> None:
    """A test that replaces the model never reaches a provider."""
    model = ScriptedModel(errors.ModelAuthenticationError("No key."))
    with pytest.raises(errors.ModelAuthenticationError):
        Agent("guide", "Help.", model, fallback=[SECOND]).run("?")


async def test_thoughts_are_streamed_beside_the_answer(recorder: Any) -> None:
    """Models for tests hand out thoughts; a model of one's own that only completes need not know of them."""

    class Plain(Model):
        async def complete(
            self, request: ModelRequest, on_token: Any = None
        ) -> ModelResponse:
            on_token("Yes.")
            return ModelResponse("Yes.")

    assert await Agent("a", "Help.", Plain()).arun("?", stream=True) == "Yes."
    model = ScriptedModel(ModelResponse("Yes.", reasoning="Hm. Well."))
    assert (
        await Agent("a", "Help.", model, event_manager=recorder.manager).arun(
            "?", stream=True
        )
        == "Yes."
    )
    assert [event.text for event in recorder.of("reasoning")] == [
        "Hm.",
        " Well.",
    ]
    assert (
        recorder.of("model_call_finished")[0].response.reasoning == "Hm. Well."
    )
