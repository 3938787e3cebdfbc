"""One model call of a chat: limits, attempts, fallback models, usage and events."""

from __future__ import annotations

import asyncio
import logging
import math
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

from podwright import errors, events
from podwright.components.allowance import Allowance, CallSlot
from podwright.components.chat_messages import ChatMessages
from podwright.components.models_of_chat import ChatModels
from podwright.components.tool_calls import error_details
from podwright.finish_reasons import (
    FINISH_REASONS,
    ending_of,
    is_failure,
)
from podwright.messages import (
    Message,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    OutputSchema,
    ToolSchema,
)
from podwright.models import Model
from podwright.models.base import check_tool_calls, noted_attempt
from podwright.models.call_settings import read_call_settings
from podwright.models.circuit_breaker import circuits
from podwright.models.provider_model import ProviderModel
from podwright.models.retries import with_retries
from podwright.run import Run
from podwright.run_accounts import milliseconds_since
from podwright.text import truncate
from podwright.usage import NO_USAGE, Usage

_log = logging.getLogger("podwright")

_FALLS_BACK = (
    errors.ModelAuthenticationError,
    errors.ModelConnectionError,
    errors.ModelRateLimitError,
    errors.ModelResponseError,
    errors.ModelTimeoutError,
    errors.ModelUnavailableError,
)
"""After these the next model is asked; another model would refuse the same content or request as well."""


async def call_model(
    run: Run,
    models: ChatModels,
    messages: ChatMessages,
    settings: ModelSettings,
    *,
    tools: Sequence[ToolSchema] = (),
    output: OutputSchema | None = None,
    accepts_cut_text: bool = False,
) -> ModelResponse:
    """One model call within the limits of a run, with its events and its usage.

    Args:
        run: The run.
        models: The model, and those that may answer for it.
        messages: The messages of the chat.
        settings: The settings of the call.
        tools: The tools that the model may call.
        output: The schema that the answer must fit.
        accepts_cut_text: Whether a text that is cut off at `max_tokens` is an answer.

    Raises:
        LimitExceededError: The call does not fit the limits of the run.
        ModelError: The model failed, its answer was cut off, or it refused to give one.
    """
    request = messages.request(
        run,
        models.first.name,
        tools=tuple(tools),
        settings=settings,
        output=output,
    )
    answer = _replay_answer(run)
    if answer is None:
        # entered before limits are reserved: the journal may not let the call begin
        async with run.journal.call(in_tool=run.in_tool):
            answer = await _ModelCall(run, models, request).answer()
    _check_end(
        run,
        answer,
        accepts_cut_text=accepts_cut_text and output is None,
        is_structured=output is not None,
    )
    check_tool_calls(answer.model, len(answer.response.tool_calls))
    return answer.response


class _ModelAnswer(NamedTuple):
    """The response of a model, and who gave it."""

    model: str
    """The model that answered, "<provider>/<model_name>"."""
    response: ModelResponse
    limit: str = ""
    """The limit of the run that left it fewer tokens than were asked for; empty if none did."""


def _replay_answer(run: Run) -> _ModelAnswer | None:
    """Count the answer that the next call had in an earlier attempt of the run, and return it; None if it had none."""
    recorded = run.recorded.answer(run.model_calls)
    if recorded is None:
        return None
    run.count_model_call()
    response = recorded.response
    usage = response.usage.as_call(recorded.model)
    run.count_usage(recorded.failed_usage + usage)
    return _ModelAnswer(recorded.model, response)


def _check_end(
    run: Run,
    answer: _ModelAnswer,
    *,
    accepts_cut_text: bool,
    is_structured: bool,
) -> None:
    """Check why the model stopped."""
    match answer.response.finish_reason:
        case "content_filter":
            raise errors.ContentFilterError(
                f"The content filter of '{answer.model}' stopped the answer."
            )
        case "refusal":
            _check_refusal(answer, is_structured=is_structured)
        case "length":
            _check_cut(answer, accepts_cut_text=accepts_cut_text)
        case "unknown":
            _check_unknown_end(answer, run)
        case _:
            pass


def _check_refusal(answer: _ModelAnswer, *, is_structured: bool) -> None:
    """Check that the words of a refusal are the answer, which they are only as a text, and as all of it."""
    model, response, _ = answer
    is_text = response.text != "" and response.text == response.refusal
    if is_structured or response.tool_calls or not is_text:
        raise errors.ModelRefusedError(
            f"'{model}' refused to answer.",
            refusal=response.refusal or response.text,
        )


def _check_unknown_end(answer: _ModelAnswer, run: Run) -> None:
    """Report that it is not known whether an answer is whole."""
    model, response, _ = answer
    said = "without a finish reason"
    if response.provider_finish_reason:
        said = f"with the finish reason {response.provider_finish_reason!r}"
    message = (
        f"The answer of '{model}' ended {said}, so it is not known to be whole."
    )
    if read_call_settings().unknown_finish_reason == "fail":
        raise errors.UnknownFinishReasonError(message)
    _log.warning("Run %s: %s", run.id, message)


def _check_cut(answer: _ModelAnswer, *, accepts_cut_text: bool) -> None:
    """Check that an answer may be cut off at its limit of tokens."""
    model, response, limit = answer
    if limit:
        raise errors.LimitExceededError(
            f"The answer of '{model}' was cut off at the run's limits.",
            limit=limit,
        )
    if not accepts_cut_text or response.tool_calls:
        raise errors.ModelError(
            f"The answer of '{model}' was cut off at its limit of output tokens.",
            suggestion="Raise max_tokens, or ask for a shorter answer.",
        )


class _ModelCall:
    """One model call of a run: the models that are asked in turn, their attempts, and the events."""

    def __init__(
        self, run: Run, models: ChatModels, request: ModelRequest
    ) -> None:
        self._run = run
        self._models = models
        self._request = request
        self._asked = models.first
        """The model that is asked now."""
        self._passed_over: list[str] = []
        """The models that were asked before, and how they failed."""
        self._number: int | None = None
        """Its number in the run; None before it has begun."""
        self._started = 0.0
        self._first_token_ms: float | None = None
        self._failed_usage = NO_USAGE
        """What the failed attempts used."""
        self._slot = CallSlot()

    async def answer(self) -> _ModelAnswer:
        """The response of the first model that answers; its usage is counted.

        Raises:
            LimitExceededError: The call does not fit the limits of the run.
            ModelError: That of the last model that was asked.
        """
        try:
            answer = await self._ask_until_answered()
        except (CancelledError, errors.PodwrightError) as error:
            if isinstance(error, errors.ModelError):
                _add_passed_over(error, self._passed_over)
            if self._number is not None:
                self._emit_failed(error)
            raise
        self._emit_finished(answer)
        return answer

    async def _ask_until_answered(self) -> _ModelAnswer:
        """Ask the models one after the other, until one answers."""
        *others, last = self._candidates()
        for model in others:
            try:
                return await self._ask_within_limits(model, is_last=False)
            except errors.ModelError as error:
                if not self._may_fall_back(error):
                    raise
                self._pass_over(model, error)
        return await self._ask_within_limits(last, is_last=True)

    def _candidates(self) -> list[Model]:
        """The models to ask in turn."""
        models = self._models.all()
        if self._models.is_alone:
            return models
        # those with an open circuit are better than none
        return sorted(models, key=circuits.is_open)

    def _may_fall_back(self, error: errors.ModelError) -> bool:
        return isinstance(error, _FALLS_BACK) and not self.has_shown_text

    def _pass_over(self, model: Model, error: errors.ModelError) -> None:
        self._passed_over.append(f"'{model.name}' ({error.code})")
        self.emit(
            events.ModelCallFellBack, model=model.name, error=error.to_dict()
        )

    async def _ask_within_limits(
        self, model: Model, *, is_last: bool
    ) -> _ModelAnswer:
        """The response of one model; its worst case is held back from the limits meanwhile."""
        self._asked = model
        request = self._models.request_to(model, self._request)
        allowance = Allowance(self._run.budgets, model, self._slot)
        try:
            request = await allowance.reserve(request)
            self._begin_once(request)
            allowance.begin()
            response = await self._ask_through_circuit(
                model, request, allowance, is_last=is_last
            )
            allowance.use(response.usage)
            return _ModelAnswer(model.name, response, allowance.limit)
        finally:
            allowance.settle()

    def _begin_once(self, request: ModelRequest) -> None:
        """Begin with the first request, once the limits allow it."""
        if self._number is not None:
            return
        self._number = self._run.count_model_call()
        self._started = perf_counter()
        self.emit(events.ModelCallStarted, request=request)

    async def _ask_through_circuit(
        self,
        model: Model,
        request: ModelRequest,
        allowance: Allowance,
        *,
        is_last: bool,
    ) -> ModelResponse:
        """The response of a model, whose circuit records the end of the call if there are other models."""
        if self._models.is_alone:
            return await self._ask_with_retries(
                model, request, allowance, is_last=is_last
            )
        circuits.record_call(model)
        try:
            response = await self._ask_with_retries(
                model, request, allowance, is_last=is_last
            )
        except BaseException as error:
            _record_outcome(model, error)
            raise
        circuits.record_success(model)
        return _with_provider(response, model)

    async def _ask_with_retries(
        self,
        model: Model,
        request: ModelRequest,
        allowance: Allowance,
        *,
        is_last: bool,
    ) -> ModelResponse:
        """The response of a model, which is retried where that can help; its usage is counted."""
        passed = perf_counter() - self._started
        total = request.settings.get("timeout", model.timeouts.total)
        call_time_left = total - passed
        seconds = math.inf
        retries = model.retries
        if not is_last:
            # a model that does not begin to answer leaves the next ones a part of the time
            seconds = call_time_left / 2
            # and one that is not reached, all of it
            retries = replace(retries, connect_time=0.0)
        attempts = _Attempts(
            self,
            model,
            request,
            allowance=allowance,
            is_last=is_last,
            seconds=seconds,
        )
        response = await with_retries(
            attempts.next,
            max(0.0, call_time_left),
            retries,
            who=f"'{model.name}'",
            left=self._time_left,
            on_retry=attempts.on_retry,
            may_repeat=attempts.may_repeat,
        )
        self._run.add_usage(response.usage.as_call(model.name))
        return response

    def _time_left(self) -> float:
        return self._run.time_left

    def count_failed(self, model: Model, used: Usage) -> Usage:
        """Count what a failed attempt used, and return it with its cost."""
        priced = _with_cost(model, used)
        usage = priced.as_failed_call(model.name)
        self._failed_usage += usage
        self._run.add_usage(usage)
        return usage

    def on_token(self, text: str) -> None:
        """Hand out a piece of the answer."""
        if self._first_token_ms is None:
            self._first_token_ms = milliseconds_since(self._started)
        self.emit(events.Token, text=text)

    def on_reasoning(self, text: str) -> None:
        """Hand out a piece of the thoughts."""
        self.emit(events.Reasoning, text=text)

    @property
    def has_shown_text(self) -> bool:
        """Whether a reader has seen a part of the answer, which another attempt would repeat."""
        return self._first_token_ms is not None

    @property
    def longest_wait(self) -> float:
        """Seconds that a model may ask to wait before the next one is asked."""
        return self._models.longest_wait

    @property
    def is_streamed(self) -> bool:
        """Whether the answer is handed out as it arrives."""
        return self._run.streaming

    def _emit_finished(self, answer: _ModelAnswer) -> None:
        self.emit(
            events.ModelCallFinished,
            model=answer.model,
            response=answer.response,
            duration_ms=milliseconds_since(self._started),
            first_token_ms=self._first_token_ms,
            failed_usage=self._failed_usage,
        )

    def _emit_failed(self, error: BaseException) -> None:
        self.emit(
            events.ModelCallFailed,
            model=self._asked.name,
            error=error_details(error),
            duration_ms=milliseconds_since(self._started),
            usage=self._failed_usage,
        )

    def emit(
        self, event_class: Callable[..., events.Event], **fields: Any
    ) -> None:
        """Emit an event of the call."""
        event = event_class(**self._run.stamp(), call=self._number, **fields)
        self._run.emit(event)


class _Attempts:
    """The attempts of a call with one model."""

    def __init__(
        self,
        call: _ModelCall,
        model: Model,
        request: ModelRequest,
        *,
        allowance: Allowance,
        is_last: bool,
        seconds: float,
    ) -> None:
        self._call = call
        self._model = model
        self._request = request
        self._allowance = allowance
        self._was_billed = False
        """Whether the last attempt has used something in vain."""
        self._is_last = is_last
        self._seconds = seconds
        """How long it may take until the model begins to answer."""
        self._start_timeout = asyncio.timeout(None)
        """The time limit until the model begins to answer; each attempt has its own."""

    async def next(self) -> ModelResponse:
        """The response to one attempt.

        Raises:
            ModelError: The attempt failed. After a tool call that the provider could not read, the model is notified
                in the next attempt.
            LimitExceededError: The attempts before have used what the run may use.
        """
        if self._was_billed:
            self._request = await self._allowance.renew(self._request)
            self._allowance.begin()
            self._was_billed = False
        try:
            response = _with_known_end(
                self._model, await self._complete_in_time()
            )
            usage = _with_cost(self._model, response.usage)
        except CancelledError as error:
            self._count_failed(noted_attempt(error))
            raise
        except errors.ModelError as error:
            self._count_failed(error.attempt_usage)
            self._prepare_next(error)
            raise
        except errors.PodwrightError:
            raise
        except (Exception, SystemExit) as error:
            # a SystemExit would end the event loop of all runs
            raise _fault_of_model(self._model, error) from error
        if usage is response.usage:
            return response
        return replace(response, usage=usage)

    def _prepare_next(self, error: errors.ModelError) -> None:
        """Prepare for another attempt after an error; after shown text there is none."""
        if self._call.has_shown_text:
            error.transient = False  # so that `with_retries` raises it
        if isinstance(error, errors.ModelToolCallError):
            self._request = _with_notice(self._request, error)

    def _count_failed(self, used: Usage | None) -> None:
        """Count what a failed attempt used, if the provider may bill it."""
        if used is None:
            return
        self._was_billed = True
        usage = self._call.count_failed(self._model, used)
        self._allowance.use(usage)

    async def _complete_in_time(self) -> ModelResponse:
        """The response to an attempt, which must begin in time if other models can answer."""
        if self._seconds == math.inf:
            return await self._complete()
        try:
            async with asyncio.timeout(self._seconds) as self._start_timeout:
                return await self._complete()
        except TimeoutError as error:
            half = f"{self._seconds:.3g} s, half of the time that was left"
            final = errors.ModelTimeoutError(
                f"'{self._model.name}' gave no answer within {half}."
            )
            final.transient = False
            final.is_limit_of_call = True
            cancellation = error.__cause__
            if isinstance(cancellation, CancelledError):
                final.attempt_usage = noted_attempt(cancellation)
            raise final from error

    async def _complete(self) -> ModelResponse:
        if self._call.is_streamed:
            return await self._model.stream(
                self._request, self._on_token, self._on_reasoning
            )
        return await self._model.complete(self._request)

    def _on_token(self, text: str) -> None:
        self._lift_time_limit()
        self._call.on_token(text)

    def _on_reasoning(self, text: str) -> None:
        self._lift_time_limit()
        self._call.on_reasoning(text)

    def _lift_time_limit(self) -> None:
        """The model has begun to answer: it may take its time."""
        if self._start_timeout.when() is not None:
            self._start_timeout.reschedule(None)

    def may_repeat(self, error: errors.ModelError) -> bool:
        """Whether the model is asked again after an error that may pass, and not the next one."""
        if self._is_last:
            return True
        if isinstance(error, errors.ModelTimeoutError):
            return False
        wait = error.retry_after or 0.0
        return wait <= self._call.longest_wait

    def on_retry(
        self, tries: int, error: errors.ModelError, wait: float
    ) -> None:
        """Emit that the model is asked again."""
        wait_ms = round(wait * 1000, 3)
        self._call.emit(
            events.ModelCallRetried,
            tries=tries,
            error=error.to_dict(),
            wait_ms=wait_ms,
            model=self._model.name,
        )


def _record_outcome(model: Model, error: BaseException) -> None:
    """Record in the circuit of a model what the error of a call says of the model."""
    if not isinstance(error, errors.ModelError) or _is_due_to_request(error):
        circuits.record_inconclusive(model)
    elif isinstance(error, _FALLS_BACK):
        circuits.record_failure(model)
    else:
        # to refuse a request or its content, the model must have been reached
        circuits.record_success(model)


def _is_due_to_request(error: errors.ModelError) -> bool:
    """Whether an error may be due to the request, such as an answer that cannot be read, or a short time limit."""
    if isinstance(error, errors.ModelTimeoutError):
        return error.is_limit_of_call
    return isinstance(error, errors.ModelResponseError)


def _with_known_end(model: Model, response: ModelResponse) -> ModelResponse:
    """The response of any class of models with a finish reason of ours.

    Raises:
        ModelResponseError: The response says that it failed within.
    """
    if not isinstance(response, ModelResponse):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's model
        raise TypeError(
            f"complete() returned {type(response).__name__}, not ModelResponse"
        )
    reason = response.finish_reason
    calls = bool(response.tool_calls)
    if is_failure(reason):
        raise errors.ModelResponseError(
            f"'{model.name}' failed within its answer: {truncate(reason, 64)}."
        )
    is_new_refusal = response.refusal != "" and reason != "refusal"
    is_known = reason in FINISH_REASONS and (calls or reason != "tool_calls")
    if is_known and not is_new_refusal:
        return response
    ending = ending_of(reason, has_calls=calls, is_refused=is_new_refusal)
    return replace(
        response,
        text=response.text or response.refusal,
        finish_reason=ending.reason,
        provider_finish_reason=ending.word,
    )


def _with_provider(response: ModelResponse, model: Model) -> ModelResponse:
    """The response with its provider: with fallback models, nothing else says which of them answered."""
    if response.provider:
        return response
    provider = model.name.partition("/")[0]
    return replace(response, provider=provider)


def _add_passed_over(error: errors.ModelError, passed: Sequence[str]) -> None:
    """Add the models to the message of an error that were asked before."""
    if passed:
        error.message = f"{error.message} Asked before: {', '.join(passed)}."


def _with_notice(
    request: ModelRequest, error: errors.ModelToolCallError
) -> ModelRequest:
    """The request with a message about a tool call that the provider could not read."""
    text = "Error: your tool call was invalid, and was not executed."
    if error.provider_error:
        text += f" The reason: {error.provider_error}"
    if error.failed_generation:
        text += f" You wrote: {error.failed_generation}"
    notice = Message("user", f"{text} Correct the call.")
    return replace(request, messages=(*request.messages, notice))


def _fault_of_model(model: Model, cause: BaseException) -> errors.ModelError:
    """The error for an exception in the code of a model's class, which no provider is to blame for."""
    kind = type(model)
    class_name = f"{kind.__module__}.{kind.__qualname__}"
    subject = f"The class '{class_name}' of the model '{model.name}'"
    error = errors.error_from(errors.ModelError, subject, cause)
    if isinstance(model, ProviderModel):
        error.suggestion = "This is an error of Podwright, not of the provider. Please report it with its cause."
    else:
        error.suggestion = f"Correct '{kind.__qualname__}', or what it calls; its exception is the cause of this error."
    return error


def _with_cost(model: Model, usage: Usage) -> Usage:
    """The usage with its cost by the prices of a model; the same usage if these cannot tell more about the cost."""
    if usage.cost is not None or usage.unpriced_model_calls:
        # the cost is known, or the model has found that it is not, for example because the tokens are estimates
        return usage
    if isinstance(model, ProviderModel):
        # it has looked up its price already
        return usage
    cost = model.cost(usage)
    if cost is None:
        return usage
    source = ""
    if type(model).cost is Model.cost:
        source = "override"
    return replace(usage, cost=cost, cost_source=source)
