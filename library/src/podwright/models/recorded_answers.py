"""Answers that are kept by what was asked: a model that gives them again, and asks another one for what is missing."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Self
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from pydantic import BaseModel, ConfigDict, ValidationError

from podwright.data.files import replace_file
from podwright.data.json_data import to_json_bytes, to_json_data
from podwright.data.text import os_error_reason
from podwright.errors import (
    ConfigurationError,
    LimitExceededError,
    ModelError,
    TraceError,
)
from podwright.location import current
from podwright.messages.messages import Message, ModelRequest, ModelResponse
from podwright.messages.usage import Usage, add_cost
from podwright.models.base import (
    Model,
    TokenCallback,
    WrappingModel,
    noted_attempt,
)
from podwright.models.output_files import check_writable
from podwright.models.registry import resolve
from podwright.models.replay import with_whole_numbers
from podwright.schemas.validation_errors import to_problems

if TYPE_CHECKING:
    from podwright.run.run import Run

ANSWER_FORMAT: Literal["podwright.answer/1"] = "podwright.answer/1"
"""Format of a file with an answer."""


class Sample:
    """One sample of a component's answers: a run, or several that belong together. It counts its model calls."""

    def __init__(
        self,
        repeat: int = 0,
        not_before: float = -math.inf,
        payer: str = "",
    ) -> None:
        self.repeat = repeat
        """The number of the repetition, whose answers are others than those of another one."""
        self.not_before = not_before
        """When the answers must have been given that are taken, at the earliest, in seconds since 1970."""
        self.payer = payer
        """Who pays for the live calls; an answer that was recorded for the same one counts as live. Empty: nobody."""
        self.live = 0
        """Answers that a model has given, now or in an earlier try for the same payer."""
        self.asked = 0
        """Those of them that it has given now."""
        self.refused = 0
        """Calls that `RecordedAnswers.ask` has not made, because a limit left nothing for them."""
        self.replayed = 0
        """Answers that were recorded before."""
        self.paid = 0.0
        """USD that the live calls have cost, failed attempts included, as far as their price is known."""
        self.unpriced = 0
        """Live calls and failed attempts of which the cost is not known, or only a part of it."""
        self.oldest: float | None = None
        """When the oldest of the replayed answers was given, in seconds since 1970; None if none was replayed."""
        self._taken: defaultdict[str, set[int]] = defaultdict(set)
        """The numbers of the calls with the same request, by its digest."""
        self._lock = threading.Lock()

    @contextmanager
    def number(self, digest: str) -> Generator[int]:
        """Take the first free number of a call with this request; it is free again if the call fails.

        Args:
            digest: The digest of the request.
        """
        with self._lock:
            taken = self._taken[digest]
            number = next(n for n in range(len(taken) + 1) if n not in taken)
            taken.add(number)
        try:
            yield number
        except BaseException:
            # so that the next attempt takes the place of this one
            taken.discard(number)
            raise

    def count_recorded(self, at: float, payer: str, usage: Usage) -> None:
        """Count an answer that was given before.

        Args:
            at: When it was given, in seconds since 1970.
            payer: Who has paid for it.
            usage: What it has cost.
        """
        if payer and payer == self.payer:
            self.live += 1
            self.pay(usage)
            return
        self.replayed += 1
        if self.oldest is None or at < self.oldest:
            self.oldest = at

    def count_live(self, usage: Usage) -> None:
        """Count an answer that a model has given."""
        self.live += 1
        self.asked += 1
        self.pay(usage)

    def pay(self, usage: Usage) -> None:
        """Add what a live call or a failed attempt has cost."""
        self.paid = add_cost(self.paid, usage.known_cost) or 0.0
        if usage.cost is None:
            self.unpriced += 1


class RecordedAnswers(WrappingModel):
    """Keeps the answers of another model in a folder by what was asked, and asks it only for what is missing.

    What was asked is the request with the model's name; which component asks, and where in a run, makes no difference.
    Each repetition of a `sample` has its own answers, and so has each of several equal requests in one sample. Failed
    calls are not recorded. `ReplayModel` is the strict one: it never asks.

    The folder has what models have answered, so only its user may read it. It can be kept with tests, and shared by
    processes. An answer has its usage with the cost at the time, and when it was given.

    Args:
        folder: The folder; it is made when the first answer is recorded.
        model: The model to ask, or its name. Without one, this is a store for the models that `around` is given.

    Raises:
        UnknownModelError: No provider serves the model.

    Example:
        `Agent("guide", "Help.", RecordedAnswers("answers", "openai/gpt-4o-mini")).run("Hello")` pays once.
    """

    def __init__(
        self, folder: str | os.PathLike[str], model: Model | str | None = None
    ) -> None:
        super().__init__(_NoModel() if model is None else _resolved(model))
        self._store = _Store(Path(folder))
        self._store.models.add(self)

    def around(self, model: Model | str) -> Self:
        """Return a model with the same answers and samples around another model.

        Args:
            model: The model to ask, or its name. One that has these answers is returned as it is.

        Raises:
            UnknownModelError: No provider serves the model.
        """
        resolved = _resolved(model)
        has_answers = resolved in self._store.models
        if has_answers and isinstance(resolved, type(self)):
            return resolved
        other = copy(self)
        WrappingModel.__init__(other, resolved)
        self._store.models.add(other)
        return other

    @contextmanager
    def sample(
        self,
        repeat: int = 0,
        *,
        max_age: float | None = None,
        fresh: bool = False,
        payer: str = "",
    ) -> Generator[Sample]:
        """Count the model calls of the code within this context, and of the tasks that it starts, as one sample.

        Outside of samples, each outermost run is one, with the repetition 0.

        Args:
            repeat: The number of the repetition.
            max_age: Take no answer that was given more than so many seconds before this sample.
            fresh: Take no recorded answer. Those of the model replace them.
            payer: Who pays, so that a sample which goes on after the end of its process counts what it has paid before.

        Yields:
            The sample, whose counts are those up to now.
        """
        not_before = -math.inf
        if fresh:
            not_before = math.inf
        elif max_age is not None:
            not_before = time.time() - max_age
        sample = Sample(repeat, not_before, payer)
        token = _samples.set({**_samples.get(), self._store: sample})
        try:
            yield sample
        finally:
            _samples.reset(token)

    def record(
        self,
        model: Model | str,
        request: ModelRequest,
        response: ModelResponse,
        *,
        at: float | None = None,
    ) -> bool:
        """Record an answer that was given elsewhere, such as in a traced run.

        Each of several equal requests in one `sample` has its own. An answer that is recorded already stays.

        Args:
            model: The model that answered, or its name.
            request: What it was asked.
            response: Its answer, with the usage and its cost.
            at: When it was given, in seconds since 1970; by default now.

        Returns:
            Whether it was recorded now.

        Raises:
            ConfigurationError: It cannot be recorded.
        """
        name = model if isinstance(model, str) else model.name
        sample = self._store.current_sample()
        digest = _digest(request, name)
        with sample.number(digest) as number:
            file = self._store.file(f"{digest}-{sample.repeat}-{number}")
            if file.exists():
                return False
            self._store.check()
            _write(file, name, "", response, at)
        return True

    async def ask(
        self,
        model: Model,
        request: ModelRequest,
        on_token: TokenCallback | None,
        on_reasoning: TokenCallback | None,
    ) -> ModelResponse:
        """Ask the model for an answer that is not recorded; a subclass may do something before or after it.

        Args:
            model: The model that is asked.
            request: The whole request.
            on_token: Called with each piece of the answer's text; None if the answer is not streamed.
            on_reasoning: Called with each piece of the thoughts; None if they are not wanted.

        Raises:
            Exception: The call failed, or is not made.
        """
        if on_token is None or on_reasoning is None:
            return await model.complete(request, on_token)
        return await model.stream(request, on_token, on_reasoning)

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        """Give the recorded answer, in one piece if it is streamed, or ask the model and record what it answers.

        Raises:
            TraceError: The file of the answer cannot be read.
            ConfigurationError: The answer cannot be recorded, or there is no model.
            Exception: What the model raises.
        """
        return await self._answer(request, on_token, None)

    async def stream(
        self,
        request: ModelRequest,
        on_token: TokenCallback,
        on_reasoning: TokenCallback,
    ) -> ModelResponse:
        """As `complete`."""
        return await self._answer(request, on_token, on_reasoning)

    async def _answer(
        self,
        request: ModelRequest,
        on_token: TokenCallback | None,
        on_reasoning: TokenCallback | None,
    ) -> ModelResponse:
        sample = self._store.current_sample()
        digest = _digest(request, self.name)
        with sample.number(digest) as number:
            file = self._store.file(f"{digest}-{sample.repeat}-{number}")
            # another sample may be asking the same
            async with self._store.alone(file):
                answer = _read(file)
                if answer is None or answer.at < sample.not_before:
                    return await self._ask_and_record(
                        sample, file, request, on_token, on_reasoning
                    )
        response = answer.response
        sample.count_recorded(answer.at, answer.payer, response.usage)
        if on_reasoning is not None and response.reasoning:
            on_reasoning(response.reasoning)
        if on_token is not None and response.text:
            on_token(response.text)
        return response

    async def _ask_and_record(
        self,
        sample: Sample,
        file: Path,
        request: ModelRequest,
        on_token: TokenCallback | None,
        on_reasoning: TokenCallback | None,
    ) -> ModelResponse:
        self._store.check()
        try:
            response = await self.ask(
                self._model, request, on_token, on_reasoning
            )
        except ModelError as error:
            self._pay_failed(sample, error.attempt_usage)
            raise
        except asyncio.CancelledError as error:
            self._pay_failed(sample, noted_attempt(error))
            raise
        except LimitExceededError:
            sample.refused += 1
            raise
        usage = self._model.with_cost(response.usage)
        response = replace(response, usage=usage)
        sample.count_live(usage)
        _write(file, self.name, sample.payer, response)
        return response

    def _pay_failed(self, sample: Sample, usage: Usage | None) -> None:
        """Count what a failed attempt has cost, if the provider may bill it."""
        if usage is not None:
            sample.pay(self._model.with_cost(usage))


class _NoModel(Model):
    """Stands for the model of answers that are only a store."""

    name = "offline/none"

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        raise ConfigurationError(
            "These recorded answers have no model to ask.",
            suggestion="Write RecordedAnswers(folder, model), or use what around(model) returns.",
        )


class _Store:
    """A folder with answers, and the samples in progress.

    Args:
        folder: The folder, which may be missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.models: WeakSet[Model] = WeakSet()
        """The models that have these answers."""
        self._outside = Sample()
        """The sample of calls that are part of no run."""
        self._of_runs: WeakKeyDictionary[Run, Sample] = WeakKeyDictionary()
        """The samples of outermost runs."""
        self._locks: WeakValueDictionary[
            tuple[asyncio.AbstractEventLoop, Path], asyncio.Lock
        ] = WeakValueDictionary()

    def current_sample(self) -> Sample:
        """The sample that the calling code is part of."""
        sample = _samples.get().get(self)
        if sample is not None:
            return sample
        run = current()
        if run is None:
            return self._outside
        return self._of_runs.setdefault(run.outermost, Sample())

    def file(self, name: str) -> Path:
        """The file of an answer."""
        return self._folder / f"{name}.json"

    @asynccontextmanager
    async def alone(self, file: Path) -> AsyncGenerator[None]:
        """Wait until no other call on this event loop reads or writes the file."""
        place = (asyncio.get_running_loop(), file)
        lock = self._locks.get(place)
        if lock is None:
            lock = asyncio.Lock()
            self._locks[place] = lock
        async with lock:
            yield

    def check(self) -> None:
        """Check that answers can be recorded, before one is paid; the folder is made if it is missing.

        Raises:
            ConfigurationError: They cannot.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_record(self._folder, error) from error
        check_writable(self._folder / "new.json")


_NO_SAMPLES: Mapping[_Store, Sample] = MappingProxyType({})
_samples: ContextVar[Mapping[_Store, Sample]] = ContextVar(
    "podwright_samples", default=_NO_SAMPLES
)
"""The samples that the running code is part of, by their stores."""


class _Answer(BaseModel):
    """The content of a file."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    format: Literal["podwright.answer/1"]
    at: float
    """When it was given, in seconds since 1970."""
    payer: str = ""
    """Who has paid for it; empty if nobody said."""
    response: ModelResponse


def _read(file: Path) -> _Answer | None:
    """Return a recorded answer; None if it is missing.

    Raises:
        TraceError: It cannot be read.
    """
    try:
        data = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        reason = f"Cannot read it: {os_error_reason(error)}."
        raise _damaged(file, reason) from error
    try:
        return _Answer.model_validate(data)
    except ValidationError as error:
        problem = to_problems(error.errors(include_url=False), data)[0]
        reason = f"At '{problem.pointer}': {problem.detail}"
        raise _damaged(file, reason) from error


def _damaged(file: Path, reason: str) -> TraceError:
    error = TraceError(
        f"Invalid recorded answer '{file}'. {reason}",
        suggestion="Delete the file, so that the model is asked again.",
    )
    # a model that is told of it cannot correct it
    error.ends_run = True
    return error


def _write(
    file: Path,
    model: str,
    payer: str,
    response: ModelResponse,
    at: float | None = None,
) -> None:
    answer = {
        "format": ANSWER_FORMAT,
        "model": model,
        "at": time.time() if at is None else at,
        "payer": payer,
        "response": to_json_data(response),
    }
    try:
        replace_file(file, to_json_bytes(answer).decode())
    except OSError as error:
        raise _cannot_record(file, error) from error


def _cannot_record(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"Cannot record answers in '{path}': {os_error_reason(error)}.",
        suggestion="Name a folder that can be written.",
    )


def _resolved(model: Model | str) -> Model:
    if isinstance(model, str):
        return resolve(model)
    return model


def _digest(request: ModelRequest, model: str) -> str:
    """Return the digest of what a model is sent: numbers count by their values, and who asks does not count.

    Args:
        request: The request.
        model: The name of the model.
    """
    settings = dict(sorted(request.settings.items()))
    # it is not sent
    settings.pop("timeout", None)
    data = to_json_data(
        {
            "model": model,
            "messages": list(map(_without_mark, request.messages)),
            # in schemas, the order of keys is that in which a model answers
            "tools": request.tools,
            "settings": settings,
            "output": request.output,
            "tool_choice": request.tool_choice,
        }
    )
    text = json.dumps(with_whole_numbers(data))
    return hashlib.sha256(text.encode()).hexdigest()


def _without_mark(message: Message) -> Message:
    """Return a message without its provider, unless what is sent of it depends on that."""
    if message.tool_calls or message.provider_fields:
        return message
    return replace(message, provider="")
