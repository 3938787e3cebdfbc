"""What answers the cases of a suite: a component in this process, or a service."""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol

from podwright.client.errors import ProblemError
from podwright.components import Component
from podwright.data.json_data import JsonMapping, JsonObject, as_object
from podwright.errors import (
    ApprovalRequired,
    PodwrightError,
    RemoteError,
    RemoteResponseError,
)
from podwright.evaluation.reports.row import RowStatus
from podwright.evaluation.runs.outcome import Outcome, failure_status
from podwright.evaluation.suite import Case
from podwright.events import Event, Reasoning, RunFinished, Token
from podwright.folders.walks import first_models_of
from podwright.messages.usage import NO_USAGE
from podwright.run.component import TaskBody
from podwright.run.result import ExecutionResult
from podwright.run.run import Task, execute

_WRONG_INPUT = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
"""The status of a request whose input is wrong."""


class Target(ABC):
    """A configuration that answers cases."""

    digest: str = ""
    """The digest of its blueprint; empty if it is not known."""
    source: str = ""
    """The digest of the files of its folder, if it is the component as that has it."""
    is_local: bool = False
    """Whether it runs in this process, with recorded answers."""

    async def prepare(self) -> None:
        """Find out what the target is, before the first run."""
        return

    @abstractmethod
    async def run(
        self, case: Case, decisions: Sequence[JsonMapping]
    ) -> Outcome:
        """Run a case.

        Args:
            case: The case.
            decisions: What the person decides, in order; without a further one, the run ends at the question.
        """


class LocalTarget(Target):
    """A component in this process."""

    is_local = True

    def __init__(
        self,
        component: Component,
        digest: str,
        source: str = "",
    ) -> None:
        self.component = component
        self.digest = digest
        self.source = source

    async def run(
        self, case: Case, decisions: Sequence[JsonMapping]
    ) -> Outcome:
        """Run a case; see `Target.run`."""
        attempt = _Attempts(self.component)
        body = TaskBody(case.inputs, messages=case.messages)
        try:
            task = self.component.task_from(body)
            return await attempt.run(task, list(decisions))
        except PodwrightError as error:
            return attempt.failed(error)


class _Attempts:
    """A run with its pauses: each decision lets it go on, in another attempt."""

    def __init__(self, component: Component) -> None:
        self._component = component
        self._first_models = first_models_of(component)
        self._events: list[Event] = []
        self._usage = NO_USAGE
        self._seconds = 0.0

    async def run(self, task: Task, decisions: list[JsonMapping]) -> Outcome:
        while True:
            try:
                result = await self._execute(task)
            except ApprovalRequired as pause:
                if not decisions or pause.context is None:
                    return self._paused(pause)
                decided = decisions.pop(0)
                context = pause.decide(
                    decided.get("decision", "approve"),
                    decided.get("comment", ""),
                    decided.get("values"),
                )
                task = self._component.task_from(
                    TaskBody(context, resume_path=pause.resume_path)
                )
            else:
                return self._finished(result)

    async def _execute(self, task: Task) -> ExecutionResult:
        began = time.perf_counter()
        # of a saved run, the usage of earlier attempts is part of the usage
        earlier = NO_USAGE if task.saved is not None else self._usage
        try:
            result = await execute(
                self._component,
                task,
                subscribers=[self._events.append],
            )
        except PodwrightError as error:
            self._usage = earlier + (error.usage or NO_USAGE)
            raise
        finally:
            self._seconds += time.perf_counter() - began
        self._usage = earlier + result.usage
        return result

    def _finished(self, result: ExecutionResult) -> Outcome:
        output = self._component.output(result.value, result.data)
        return Outcome(
            "ok",
            output,
            _values_of(result.data, result.value, self._component.kind),
            usage=self._usage,
            seconds=self._seconds,
            events=self._events,
            first_models=self._first_models,
        )

    def _paused(self, pause: ApprovalRequired) -> Outcome:
        question = pause.message
        if pause.question is not None:
            question = pause.question.message
        return Outcome(
            "paused",
            question,
            _public(pause.context),
            question,
            usage=self._usage,
            seconds=self._seconds,
            events=self._events,
            first_models=self._first_models,
        )

    def failed(self, error: PodwrightError) -> Outcome:
        return Outcome(
            failure_status(error),
            "",
            _public(error.context),
            error_code=error.code,
            error=error.message,
            usage=self._usage,
            seconds=self._seconds,
            events=self._events,
            first_models=self._first_models,
        )


def _values_of(data: Any, value: Any, kind: str) -> JsonObject:
    if kind != "workflow":
        return {}
    return _public(as_object(data if data is not None else value))


def _public(context: Mapping[str, Any] | None) -> JsonObject:
    """Return a context without what the library keeps in it."""
    return {
        name: value
        for name, value in (context or {}).items()
        if not name.startswith("_")
    }


class Service(Protocol):
    """What runs cases elsewhere: a `Client`, or what `podwright_service.testing` serves."""

    @property
    def stream(self) -> Callable[..., Any]:
        """As `Client.stream`, or `AsyncClient.stream`."""
        ...

    @property
    def info(self) -> Callable[[], Any]:
        """As `Client.info`, or `AsyncClient.info`."""
        ...


class ServiceTarget(Target):
    """A component that a service runs.

    Args:
        service: The service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    async def prepare(self) -> None:
        """Ask the service for the digest of its blueprint.

        Raises:
            RemoteError: It does not answer, or refuses the key.
        """
        info = self._service.info
        try:
            if inspect.iscoroutinefunction(info):
                found = await info()
            else:
                found = await asyncio.to_thread(info)
        except ProblemError as error:
            # a key may be one for runs alone
            if error.status != HTTPStatus.FORBIDDEN:
                raise
        else:
            self.digest = found.digest

    async def run(
        self, case: Case, decisions: Sequence[JsonMapping]
    ) -> Outcome:
        """Run a case; see `Target.run`."""
        attempts = _ServedAttempts(self._service)
        try:
            return await attempts.run(case, list(decisions))
        except PodwrightError as error:
            return attempts.failed(error)


class _ServedAttempts:
    """A run of a service with its pauses. It is streamed, because only so a run that fails or pauses has its events."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._events: list[Event] = []
        self._usage = NO_USAGE
        self._began = time.perf_counter()

    async def run(self, case: Case, decisions: list[JsonMapping]) -> Outcome:
        inputs: Any = case.inputs
        options: dict[str, Any] = {}
        if case.messages:
            options["messages"] = case.messages
        while True:
            try:
                await self._ask(inputs, options)
            except ProblemError as error:
                self._usage += error.usage or NO_USAGE
                if error.code != ApprovalRequired.code:
                    raise
                if not decisions or error.context is None:
                    return self._paused(error)
                inputs = error.context
                options = {"decision": decisions.pop(0)}
                if error.resume_path:
                    options["resume_path"] = error.resume_path
            else:
                return self._finished()

    async def _ask(self, inputs: Any, options: Mapping[str, Any]) -> None:
        """Run it once, and keep its events."""
        stream = self._service.stream
        if inspect.isasyncgenfunction(stream):
            async for event in stream(inputs, **options):
                self._keep(event)
            return

        def read() -> None:
            for event in stream(inputs, **options):
                self._keep(event)

        await asyncio.to_thread(read)

    def _keep(self, event: Event) -> None:
        # the answer of a model is in the event of its end
        if not isinstance(event, Token | Reasoning):
            self._events.append(event)

    def _finished(self) -> Outcome:
        end = self._events[-1]
        if not isinstance(end, RunFinished):
            raise RemoteResponseError("The stream of the run has no end.")
        self._usage += end.usage
        output = end.value if end.data is None else end.data
        values = _values_of(end.data, end.value, end.kind)
        if values:
            # of a workflow, what it has written last
            output = next(reversed(values.values()))
        return Outcome(
            "ok",
            output,
            values,
            usage=self._usage,
            seconds=time.perf_counter() - self._began,
            events=self._events,
        )

    def failed(self, error: PodwrightError) -> Outcome:
        return Outcome(
            _status_of(error),
            "",
            _public(error.context),
            error_code=error.code,
            error=error.message,
            usage=self._usage,
            seconds=time.perf_counter() - self._began,
            events=self._events,
        )

    def _paused(self, error: ProblemError) -> Outcome:
        asked = as_object(error.problem.get("question"))
        question = str(asked.get("message", error.message))
        return Outcome(
            "paused",
            question,
            _public(error.context),
            question,
            usage=self._usage,
            seconds=time.perf_counter() - self._began,
            events=self._events,
        )


def _status_of(error: PodwrightError) -> RowStatus:
    """Return the status of a run that has failed at a service: a request that it refuses says nothing about it."""
    if not isinstance(error, RemoteError):
        return failure_status(error)
    if not isinstance(error, ProblemError):
        return "error"
    if error.run_id is None and error.status not in _WRONG_INPUT:
        return "error"
    return failure_status(error)
