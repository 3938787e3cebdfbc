"""A client of a served component, with the interface of the component in Python."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import httpx

from podwright.events import Event, adapter
from podwright.models.sse import EventParser
from podwright.result import ExecutionResult
from podwright_service.testing.metrics import Metrics

if TYPE_CHECKING:
    from podwright_service.testing.containers import ModelStubContainer
    from podwright_service.testing.model_stub import ModelStub
    from podwright_service.testing.spans import SpanCollector

    Model = str | ModelStub | ModelStubContainer

Input = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""The input of a run: a text, named inputs, or for agents and conductors texts and images."""
Messages = Sequence[Mapping[str, Any]]
"""Earlier turns of a conversation: the `messages` of a result."""


RESTING = ("waiting_for_approval", "succeeded", "failed", "cancelled", "interrupted")
"""The statuses of a background run in which nothing more happens by itself."""


class StartError(Exception):
    """A component did not become ready in time, or stopped before; the message has the end of its log."""


class ProblemError(Exception):
    """The service rejected a request, or the run failed.

    Args:
        problem: The problem document (RFC 9457) of the response.
    """

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.problem = problem
        """The whole document: `detail`, `suggestion`, `usage`, `context`, `resume_path` and so on."""
        self.status = int(problem.get("status", 0))
        """The HTTP status."""
        self.code = str(problem.get("code", ""))
        """The error code, as in `podwright.errors`."""
        detail = problem.get("detail", "no problem document")
        suggestion = problem.get("suggestion", "")
        super().__init__(f"{self.status} {self.code}: {detail} {suggestion}".rstrip())


class Served(ABC):
    """A client of a served component.

    Args:
        model: A model's name, or a stub, that serves every model call.
        spans: The collector of its spans; by default it exports none.
        api_key: An API key that the component requires, and the client sends.
        env: Further environment variables of the component.
    """

    url: str
    """The address of the service, such as "http://127.0.0.1:32768"."""

    def __init__(
        self,
        model: Model | None = None,
        spans: SpanCollector | None = None,
        api_key: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.api_key = api_key
        self._model = model
        self._spans = spans
        self._env = dict(env or {})
        self._client: httpx.Client | None = None

    @property
    def client(self) -> httpx.Client:
        """An HTTP client for all endpoints, which sends the API key."""
        if self._client is None:
            headers = (
                {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
            )
            self._client = httpx.Client(
                base_url=self.url, headers=headers, timeout=60, trust_env=False
            )
        return self._client

    def run(
        self,
        input_data: Input,
        *,
        trace: bool = False,
        messages: Messages = (),
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Run the component.

        Args:
            input_data: A text, named inputs, or texts and images.
            trace: Whether to return an `ExecutionResult` with events and usage instead of the value.
            messages: Earlier turns, for agents and conductors.
            headers: Further request headers, such as `Idempotency-Key`.

        Returns:
            What `run` of the component returns: the output of an agent, conductor or pipeline, the context of a
            workflow.

        Raises:
            ProblemError: The request was rejected, or the run failed.
        """
        query = {"trace": "true"} if trace else {}
        body = _body(input_data, messages)
        response = self.client.post(
            "/run", json=body, params=query, headers=dict(headers or {})
        )
        data = self.json_of(response)
        if trace:
            return ExecutionResult.from_dict(data)
        return data["output"] if set(data) == {"output"} else data

    def stream(
        self,
        input_data: Input,
        *,
        messages: Messages = (),
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[Event]:
        """Run the component and yield its events as they arrive, tokens included; closing the iterator cancels the run.

        Raises:
            ProblemError: The request was rejected, or the run failed, after the events so far.
        """
        body = _body(input_data, messages)
        request = self.client.stream(
            "POST", "/run/stream", json=body, headers=dict(headers or {})
        )
        with request as response:
            if response.status_code != 200:
                response.read()
                raise self.problem_of(response)
            parser = EventParser()
            for event in (
                event for chunk in response.iter_raw() for event in parser.feed(chunk)
            ):
                if event.name == "problem":
                    raise self.problem_of(httpx.Response(0, content=event.data))
                if event.name != "result":
                    yield adapter().validate_json(event.data)

    @property
    def runs(self) -> RunsClient:
        """The background runs of the component, if it has a database for them."""
        return RunsClient(self)

    def metrics(self) -> Metrics:
        """The current metrics."""
        response = self.client.get("/metrics")
        if response.status_code != 200:
            raise self.problem_of(response)
        return Metrics(response.text)

    def info(self) -> dict[str, Any]:
        """The description of the component: blueprint, digest, versions, models, limits.

        Raises:
            ProblemError: The request was rejected.
        """
        return self.json_of(self.client.get("/info"))

    @abstractmethod
    def logs(self) -> str:
        """The output of the component so far."""
        ...

    def json_of(self, response: httpx.Response) -> Any:
        """The JSON of a response.

        Raises:
            ProblemError: The request was rejected.
        """
        if not response.is_success:
            raise self.problem_of(response)
        return response.json()

    def problem_of(self, response: httpx.Response) -> ProblemError:
        """The error of a response, with what the model's stub did not answer."""
        try:
            error = ProblemError(response.json())
        except ValueError:
            error = ProblemError(
                {"status": response.status_code, "detail": response.text[:2000]}
            )
        if self._model and not isinstance(self._model, str):
            for reason in self._model.unanswered:
                error.add_note(reason)
        return error

    def _variables(
        self, url_property: Literal["url", "url_for_containers"]
    ) -> dict[str, str]:
        """The environment variables of the component, given where it reaches model and collector."""
        variables: dict[str, str] = {}
        if isinstance(self._model, str):
            variables["PODWRIGHT_MODEL"] = self._model
        elif self._model is not None:
            variables |= self._model.variables(getattr(self._model, url_property))
        if self._spans is not None:
            variables |= self._spans.variables(getattr(self._spans, url_property))
        if self.api_key is not None:
            variables["PODWRIGHT_API_KEYS"] = self.api_key
        return variables | self._env

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class RunsClient:
    """The background runs of a served component; each is a dictionary as `GET /runs/{id}` returns it.

    All methods raise `ProblemError` if the service refuses.
    """

    def __init__(self, served: Served) -> None:
        self._served = served

    def start(
        self,
        input_data: Input,
        *,
        messages: Messages = (),
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Start a run, and return it.

        Args:
            input_data: A text, named inputs, or texts and images.
            messages: Earlier turns, for agents and conductors.
            headers: Further request headers, such as `Idempotency-Key`.
        """
        return self._request(
            "POST",
            "/runs",
            json=_body(input_data, messages),
            headers=dict(headers or {}),
        )

    def get(self, run_id: str) -> dict[str, Any]:
        """A run."""
        return self._request("GET", f"/runs/{run_id}")

    def list(self, *statuses: str, limit: int = 50) -> Sequence[dict[str, Any]]:
        """The newest runs, by default with any status."""
        return self._request(
            "GET", "/runs", params={"status": statuses, "limit": limit}
        )["runs"]

    def wait(self, run_id: str, *statuses: str, within: float = 60) -> dict[str, Any]:
        """The run, once it has one of the statuses; by default once nothing more happens by itself.

        Args:
            run_id: The run.
            statuses: The statuses to wait for.
            within: Seconds to wait.

        Raises:
            TimeoutError: It has another status after that time.
        """
        deadline = time.monotonic() + within
        wanted = statuses or RESTING
        while (run := self.get(run_id))["status"] not in wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"The run is '{run['status']}' after {within:g} s.")
            time.sleep(0.1)
        return run

    def events(self, run_id: str, last_event_id: int = -1) -> Iterator[Event]:
        """The events of a run to its end, from the one after `last_event_id`, as they happen."""
        headers = {"last-event-id": str(last_event_id)}
        with self._served.client.stream(
            "GET", f"/runs/{run_id}/events", headers=headers
        ) as response:
            if response.status_code != 200:
                response.read()
                raise self._served.problem_of(response)
            parser = EventParser()
            for event in (
                event for chunk in response.iter_raw() for event in parser.feed(chunk)
            ):
                if event.name not in ("result", "problem"):
                    yield adapter().validate_json(event.data)

    def cancel(self, run_id: str) -> dict[str, Any]:
        """Cancel a run."""
        return self._request("POST", f"/runs/{run_id}/cancel")

    def resume(self, run_id: str) -> dict[str, Any]:
        """Have a run that failed or was interrupted go on."""
        return self._request("POST", f"/runs/{run_id}/resume")

    def approve(
        self, run_id: str, comment: str = "", attempt: int | None = None
    ) -> dict[str, Any]:
        """Approve what a run waits for, if it does so in this attempt."""
        return self._request(
            "POST",
            f"/runs/{run_id}/approve",
            json={"comment": comment, "attempt": attempt},
        )

    def reject(
        self, run_id: str, comment: str = "", attempt: int | None = None
    ) -> dict[str, Any]:
        """Reject what a run waits for, if it does so in this attempt; the run ends."""
        return self._request(
            "POST",
            f"/runs/{run_id}/reject",
            json={"comment": comment, "attempt": attempt},
        )

    def _request(self, method: str, path: str, **options: Any) -> Any:
        return self._served.json_of(
            self._served.client.request(method, path, **options)
        )


def _body(input_data: Input, messages: Messages) -> dict[str, Any]:
    inputs = (
        {"inputs": dict(input_data)}
        if isinstance(input_data, Mapping)
        else {"input": input_data}
    )
    return {**inputs, "messages": list(messages)} if messages else inputs
