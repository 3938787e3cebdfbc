"""A client of a served component, with the interface of the component in Python."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import httpx
from typing_extensions import Unpack

from podwright.client import (
    BackgroundRun,
    Client,
    Info,
    Input,
    ProblemError,
    RunOptions,
    Runs,
    RunStatus,
)
from podwright.events import Event
from podwright.models.retries import Retries
from podwright_service.testing.metrics import Metrics

if TYPE_CHECKING:
    from podwright_service.testing.containers import ModelStubContainer
    from podwright_service.testing.model_stub import ModelStub
    from podwright_service.testing.spans import SpanCollector

    Model = str | ModelStub | ModelStubContainer

__all__ = ["ProblemError", "Served", "ServedRuns", "StartError"]

Volume = (
    tuple[str | os.PathLike[str], str] | tuple[str | os.PathLike[str], str, str]
)
"""A folder or file of this machine, its path in the container, and the mode "ro" (the default) or "rw", in the form of
testcontainers."""
_NO_RETRIES = Retries(tries=1)
"""A test sees the first response."""


class StartError(Exception):
    """A component did not become ready in time, or stopped before; the message has the end of its log."""


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
                {"authorization": f"Bearer {self.api_key}"}
                if self.api_key
                else {}
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
        **options: Unpack[RunOptions],
    ) -> Any:
        """Run the component.

        Args:
            input_data: A text, named inputs, or texts, images and files.
            trace: Whether to return an `ExecutionResult` with events and usage instead of the value.
            **options: As the client takes them: `messages`, `user`, `session`, `metadata`, `headers` and so on; see
                `podwright.client.RunOptions`.

        Returns:
            What `run` of the component returns: the output of an agent, conductor or pipeline, as data if it is
            structured, or the context of a workflow. An `ExecutionResult` has the context as data in `data`.

        Raises:
            ProblemError: The request was rejected, or the run failed.
        """
        with self._explained():
            result = self._service.run(input_data, trace=trace, **options)
        return result if trace else result.value

    def stream(
        self, input_data: Input, **options: Unpack[RunOptions]
    ) -> Iterator[Event]:
        """Run the component and yield its events as they arrive, tokens included; closing the iterator cancels the run.

        The options are those of `run`.

        Raises:
            ProblemError: The request was rejected, or the run failed, after the events so far.
        """
        with self._explained():
            yield from self._service.stream(input_data, **options)

    @property
    def runs(self) -> ServedRuns:
        """The background runs of the component, if it has a database for them."""
        return ServedRuns(self._service.runs)

    def metrics(self) -> Metrics:
        """The current metrics."""
        response = self.client.get("/metrics")
        if response.status_code != 200:
            raise ProblemError(response.json(), response.status_code)
        return Metrics(response.text)

    def info(self) -> Info:
        """The description of the component: blueprint, digest, versions, models, limits.

        Raises:
            ProblemError: The request was rejected.
        """
        return self._service.info()

    @abstractmethod
    def logs(self) -> str:
        """The output of the component so far."""
        ...

    @property
    def _service(self) -> Client:
        return Client(self.url, api_key=self.api_key, retries=_NO_RETRIES)

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        """Add to errors what the model's stub did not answer."""
        try:
            yield
        except ProblemError as error:
            if self._model is not None and not isinstance(self._model, str):
                for reason in self._model.unanswered:
                    error.add_note(reason)
            raise

    def _variables(
        self, url_property: Literal["url", "url_for_containers"]
    ) -> dict[str, str]:
        """The environment variables of the component, given where it reaches model and collector."""
        variables: dict[str, str] = {}
        if isinstance(self._model, str):
            variables["PODWRIGHT_MODEL"] = self._model
        elif self._model is not None:
            variables |= self._model.variables(
                getattr(self._model, url_property)
            )
        if self._spans is not None:
            variables |= self._spans.variables(
                getattr(self._spans, url_property)
            )
        if self.api_key is not None:
            variables["PODWRIGHT_API_KEYS"] = self.api_key
        return variables | self._env

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class ServedRuns(Runs):
    """The background runs of a served component; see `podwright.client.AsyncRuns`."""

    def __init__(self, runs: Runs) -> None:
        super().__init__(runs.asynchronous)

    def wait(
        self,
        run_id: str,
        *statuses: RunStatus,
        within: float = 60,
        data: bool = False,
    ) -> BackgroundRun:
        """The run, once it has one of the statuses; by default once nothing more happens by itself.

        Args:
            run_id: The run.
            *statuses: The statuses to wait for.
            within: Seconds to wait.
            data: Whether the `result` of a workflow has data where its outputs are data, instead of texts.

        Raises:
            TimeoutError: It has another status after that time.
        """
        return super().wait(run_id, *statuses, within=within, data=data)
