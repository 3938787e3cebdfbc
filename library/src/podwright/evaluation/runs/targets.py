"""What answers the cases of a suite: a component in this process, or a service."""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from podwright.client.errors import ProblemError
from podwright.components import Component
from podwright.data.json_data import JsonMapping, as_object
from podwright.errors import ApprovalRequired, PodwrightError
from podwright.evaluation.runs.outcome import Outcome, failure_status
from podwright.evaluation.suite import Case
from podwright.events import Event
from podwright.messages.usage import NO_USAGE, RunLimits, Usage
from podwright.run.component import TaskBody
from podwright.run.result import ExecutionResult
from podwright.run.run import Task, execute


class Target(ABC):
    """A configuration that answers cases."""

    digest: str = ""
    """The digest of its blueprint; empty if it is not known."""
    source: str = ""
    """The digest of the files of its folder, if it is the component as that has it."""
    is_local: bool = False
    """Whether it runs in this process, with recorded answers."""

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
        limits: RunLimits | None = None,
    ) -> None:
        self.component = component
        self.digest = digest
        self.source = source
        self._limits = limits

    async def run(
        self, case: Case, decisions: Sequence[JsonMapping]
    ) -> Outcome:
        """Run a case; see `Target.run`."""
        attempt = _Attempts(self.component, self._limits)
        body = TaskBody(case.inputs, messages=case.messages)
        try:
            task = self.component.task_from(body)
            return await attempt.run(task, list(decisions))
        except PodwrightError as error:
            return attempt.failed(error)


class _Attempts:
    """A run with its pauses: each decision lets it go on, in another attempt."""

    def __init__(self, component: Component, limits: RunLimits | None) -> None:
        self._component = component
        self._limits = limits
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
                limits=self._limits,
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
        )


def _values_of(data: Any, value: Any, kind: str) -> JsonMapping:
    if kind != "workflow":
        return {}
    return _public(as_object(data if data is not None else value))


def _public(context: Mapping[str, Any] | None) -> JsonMapping:
    """Return a context without what the library keeps in it."""
    return {
        name: value
        for name, value in (context or {}).items()
        if not name.startswith("_")
    }


class Service(Protocol):
    """What runs cases elsewhere: a `Client`, or what `podwright_service.testing` serves."""

    @property
    def run(self) -> Callable[..., Any]:
        """As `Client.run`, or `AsyncClient.run`."""
        ...


class ServiceTarget(Target):
    """A component that a service runs.

    Args:
        service: The service.
        digest: The digest of its blueprint.
        kind: The kind of its component.
    """

    def __init__(
        self, service: Service, digest: str = "", kind: str = ""
    ) -> None:
        self._service = service
        self.digest = digest
        self._kind = kind

    async def run(
        self, case: Case, decisions: Sequence[JsonMapping]
    ) -> Outcome:
        """Run a case; see `Target.run`."""
        left = list(decisions)
        inputs: Any = case.inputs
        options: dict[str, Any] = {}
        if case.messages:
            options["messages"] = case.messages
        usage = NO_USAGE
        began = time.perf_counter()
        while True:
            try:
                result = await self._ask(inputs, options)
            except ProblemError as error:
                usage += error.usage or NO_USAGE
                seconds = time.perf_counter() - began
                if error.code != ApprovalRequired.code:
                    return _failed(error, usage, seconds)
                if not left or error.context is None:
                    return _waiting(error, usage, seconds)
                inputs = error.context
                options = {"decision": left.pop(0)}
                if error.resume_path:
                    options["resume_path"] = error.resume_path
            except PodwrightError as error:
                return _failed(error, usage, time.perf_counter() - began)
            else:
                return self._finished(
                    result, usage, time.perf_counter() - began
                )

    async def _ask(
        self, inputs: Any, options: dict[str, Any]
    ) -> ExecutionResult:
        run = self._service.run
        if inspect.iscoroutinefunction(run):
            return await run(inputs, trace=True, **options)
        return await asyncio.to_thread(run, inputs, trace=True, **options)

    def _finished(
        self, result: ExecutionResult, earlier: Usage, seconds: float
    ) -> Outcome:
        data = result.data
        output = result.value if data is None else data
        return Outcome(
            "ok",
            output,
            _values_of(data, result.value, self._kind),
            usage=earlier + result.usage,
            seconds=seconds,
            events=result.events,
        )


def _failed(error: PodwrightError, usage: Usage, seconds: float) -> Outcome:
    return Outcome(
        failure_status(error),
        "",
        _public(error.context),
        error_code=error.code,
        error=error.message,
        usage=usage,
        seconds=seconds,
    )


def _waiting(error: ProblemError, usage: Usage, seconds: float) -> Outcome:
    question = str(
        as_object(error.problem.get("question")).get("message", error.message)
    )
    return Outcome(
        "paused",
        question,
        _public(error.context),
        question,
        usage=usage,
        seconds=seconds,
    )
