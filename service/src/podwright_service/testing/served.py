"""A client of a served component, which speaks as the component itself does in Python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

import httpx

from podwright.errors import ConfigurationError
from podwright.events import Event, adapter
from podwright.models.sse import EventParser
from podwright.result import ExecutionResult
from podwright_service.testing.metrics import Metrics

if TYPE_CHECKING:
    from podwright_service.testing.spans import SpanCollector

Input = str | Mapping[str, Any]
"""What a component is run on: a text, or named inputs."""


class StartError(Exception):
    """A component is not ready in time, or ended before it was; the message has the end of its log."""


class ProblemError(Exception):
    """A service refused a request, or the run failed.

    Args:
        problem: The problem document (RFC 9457) that it answered.
    """

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.problem = problem
        """The whole document: `detail`, `suggestion`, `usage`, `context`, `resume_path` and so on."""
        self.status = int(problem.get("status", 0))
        """The HTTP status."""
        self.code = str(problem.get("code", ""))
        """The stable name of the error, as `podwright.errors` lists them."""
        detail, hint = problem.get("detail", "no problem document"), problem.get("suggestion", "")
        super().__init__(f"{self.status} {self.code}: {detail} {hint}".rstrip())


class ModelSource(Protocol):
    """A model that a component is pointed at, such as a `ModelStub` or one in a container."""

    @property
    def url_for_containers(self) -> str:
        """Where containers reach it."""
        ...

    @property
    def complaints(self) -> list[str]:
        """What it had no answer for."""
        ...

    def variables(self, url: str) -> dict[str, str]:
        """The environment of a component that is to ask it there."""
        ...


class Served:
    """What can be asked of a served component.

    Args:
        api_key: A key to send.
        model: The model that it asks, where that is one of ours.
    """

    url: str
    """Where it answers, such as "http://127.0.0.1:32768"."""

    def __init__(self, api_key: str | None = None, model: str | ModelSource | None = None) -> None:
        self.api_key = api_key
        self._model = model
        self._client: httpx.Client | None = None

    @property
    def client(self) -> httpx.Client:
        """A client of all its endpoints, which sends the key."""
        if self._client is None:
            headers = {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
            self._client = httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)
        return self._client

    @overload
    def run(
        self, input_data: Input, *, trace: Literal[False] = False, headers: Mapping[str, str] | None = None
    ) -> Any: ...
    @overload
    def run(
        self, input_data: Input, *, trace: Literal[True], headers: Mapping[str, str] | None = None
    ) -> ExecutionResult: ...

    def run(self, input_data: Input, *, trace: bool = False, headers: Mapping[str, str] | None = None) -> Any:
        """Run it to the answer.

        Args:
            input_data: A text, or named inputs.
            trace: Whether to return an `ExecutionResult`, with events and usage, instead of the bare value.
            headers: More request headers, such as `Idempotency-Key`.

        Returns:
            As `run` of the component: the answer of an agent, conductor or pipeline, the context of a workflow.

        Raises:
            ProblemError: It was refused, or failed.
        """
        query = {"trace": "true"} if trace else {}
        answer = self.client.post("/run", json=_body(input_data), params=query, headers=dict(headers or {}))
        data = self._read(answer)
        if trace:
            return ExecutionResult.from_dict(data)
        return data["output"] if set(data) == {"output"} else data

    def stream(self, input_data: Input, *, headers: Mapping[str, str] | None = None) -> Iterator[Event]:
        """Run it and yield each event as it arrives, tokens too; leaving early cancels the run.

        Raises:
            ProblemError: It was refused, or failed; after the events that it had.
        """
        parser = EventParser()
        sending = self.client.stream("POST", "/run/stream", json=_body(input_data), headers=dict(headers or {}))
        with sending as answer:
            if answer.status_code != 200:
                answer.read()
                self._read(answer)
            for chunk in answer.iter_raw():
                for name, data in parser.feed(chunk):
                    if name == "problem":
                        raise self._failed(httpx.Response(0, content=data))
                    if name != "result":
                        yield adapter().validate_json(data)

    def metrics(self) -> Metrics:
        """What it has counted so far."""
        answer = self.client.get("/metrics")
        if answer.status_code != 200:
            raise self._failed(answer)
        return Metrics(answer.text)

    def info(self) -> dict[str, Any]:
        """What it says of itself: blueprint, digest, versions, models, limits.

        Raises:
            ProblemError: It does not tell.
        """
        return self._read(self.client.get("/info"))

    def logs(self) -> str:
        """What it has printed."""
        raise NotImplementedError

    def _read(self, answer: httpx.Response) -> Any:
        if answer.status_code != 200:
            raise self._failed(answer)
        return answer.json()

    def _failed(self, answer: httpx.Response) -> ProblemError:
        try:
            error = ProblemError(answer.json())
        except ValueError:
            error = ProblemError({"status": answer.status_code, "detail": answer.text[:2000]})
        if self._model and not isinstance(self._model, str):
            for complaint in self._model.complaints:
                error.add_note(complaint)
        return error

    def _check_models(self) -> None:
        """Refuse to go on where the model that was given is not the one that is asked.

        Raises:
            ConfigurationError: The component's own model is an offline one.
        """
        if self._model is None or isinstance(self._model, str) or "PODWRIGHT_MODEL" in self._model.variables(""):
            return
        with contextlib.suppress(ProblemError):  # a key that may not read
            asked = self.info()["models"]["effective"]
            if offline := [name for name in asked if name.startswith("offline/")]:
                raise ConfigurationError(
                    f"The blueprint names '{offline[0]}', which answers by itself: the model stub would not be asked.",
                    suggestion="Give the stub the name of the model that it stands for: "
                    "ModelStub(…, name='openai/gpt-4o-mini').",
                )

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def environment(
    url_of: str, model: str | ModelSource | None, spans: SpanCollector | None, api_key: str | None
) -> dict[str, str]:
    """The variables of a component that asks this model, sends its spans there, and wants this key.

    Args:
        url_of: The property that says where the stub and the collector are: `url` or `url_for_containers`.
        model: A model's name, or where to ask.
        spans: Where to send spans.
        api_key: The key.
    """
    found: dict[str, str] = {}
    if isinstance(model, str):
        found["PODWRIGHT_MODEL"] = model
    elif model is not None:
        found |= model.variables(getattr(model, url_of))
    if spans is not None:
        found |= spans.variables(getattr(spans, url_of))
    if api_key is not None:
        found["PODWRIGHT_API_KEYS"] = api_key
    return found


def _body(input_data: Input) -> dict[str, Any]:
    return {"input": input_data} if isinstance(input_data, str) else {"inputs": dict(input_data)}
