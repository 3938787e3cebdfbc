"""The routes that have to do with the component. They translate between HTTP and what does the work."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

import podwright
from podwright import blueprints
from podwright.components import Component, Workflow
from podwright.errors import BlueprintValidationError
from podwright.events import Subscriber
from podwright.json_data import to_json_data
from podwright.text import did_you_mean
from podwright_service.admission import Admission
from podwright_service.body import read_json
from podwright_service.budgets import granted
from podwright_service.idempotency import Once, Turn
from podwright_service.inline_blueprints import allowed_by, build, tools_of
from podwright_service.problems import RequestError, answer, as_entries, as_json
from podwright_service.remotes import remotes_in
from podwright_service.runs import ActiveRuns, Watch, perform
from podwright_service.schema import (
    ComplexRun,
    PostedCheck,
    PostedRun,
    SimpleRun,
    WorkflowRun,
    read,
    read_posted_run,
    read_run,
)
from podwright_service.settings import Settings
from podwright_service.sse import EventStream


class Plain(APIRoute):
    """A route whose endpoint takes the request itself, or nothing: there is nothing for FastAPI to read or to close."""

    def __init__(self, path: str, endpoint: Callable[..., Awaitable[Response]], **documented: Any) -> None:
        super().__init__(path, endpoint, **documented)
        takes_request = bool(self.dependant.request_param_name)

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            response = await (endpoint(Request(scope, receive)) if takes_request else endpoint())
            await response(scope, receive, send)

        self.app = serve


class Routes:
    """The endpoints of one served component."""

    def __init__(self, component: Component, settings: Settings, models: list[str]) -> None:
        self.component = component
        self.models = models
        """Names of the models that answer."""
        self.settings = settings
        self.allowed = allowed_by(component, settings)
        self.under_way = ActiveRuns()
        """The runs."""
        self.admission = Admission(settings)
        """The places that runs wait for."""
        self.once = Once(settings)
        """The requests that are served once."""
        self.of_served: tuple[Subscriber, ...] = ()
        """Who hears the runs of the served component."""
        self.of_posted: tuple[Subscriber, ...] = ()
        """Who hears the runs of posted blueprints."""

    async def info(self) -> Response:
        """What this service is: its blueprint, its versions, and what may be posted to it."""
        blueprint, allowed = self.component.to_blueprint(), self.allowed
        facts = {
            "name": self.component.name,
            "kind": self.component.kind,
            "title": self.settings.title or self.component.name,
            "description": self.component.description,
            "versions": {
                "podwright": podwright.__version__,
                "blueprint": blueprints.VERSION,
                "python": platform.python_version(),
            },
            "blueprint": blueprint,
            "digest": blueprints.digest(blueprint),
            "models": {"named": self.component.models(), "effective": self.models},
            "tools": list(tools_of(self.component)),
            "accepts": {
                "models": list(allowed.models),
                "tools": list(allowed.tools),
                "agents": list(allowed.agents),
                "conditions": list(allowed.conditions),
            },
            "agents": remotes_in(self.component),
            "limits": self.settings.model_dump(include=_LIMITS),
        }
        return as_json(facts)

    async def run(self, request: Request) -> Response:
        """Run the served component."""
        trace = _traced(request)
        data = await self._json(request, "trace")

        async def ran(_: Turn | None) -> Response:
            return await self._ran(request, self.component, read_run(data, self.component.kind), trace, Watch())

        return await self.once.answer(request, data, ran)

    async def run_stream(self, request: Request) -> Response:
        """Run the served component and send its events as they happen, and at the end what `/run` would answer."""
        trace = _traced(request)
        data = await self._json(request, "trace")

        async def begun(turn: Turn | None) -> Response:
            body = read_run(data, self.component.kind)
            work = partial(self._ran, request, self.component, body, trace)
            return EventStream(work, self.settings, partial(answer, request), turn)

        return await self.once.answer(request, data, begun)

    async def run_blueprint(self, request: Request) -> Response:
        """Run a blueprint from the request. It may name models, tools, agents and conditions that `/info` lists."""
        trace = _traced(request)
        data = await self._json(request, "trace")

        async def ran(_: Turn | None) -> Response:
            posted = read_posted_run(data)
            component = await self._built(posted)
            return await self._ran(request, component, _run_of(posted), trace, Watch())

        return await self.once.answer(request, data, ran)

    async def validate_blueprint(self, request: Request) -> Response:
        """Check a blueprint as `/run-blueprint` would; nothing is run."""
        posted = read(PostedCheck, await self._json(request))
        try:
            await self._built(posted)
        except BlueprintValidationError as error:
            return as_json({"valid": False, "errors": as_entries(error.problems)})
        return as_json({"valid": True, "errors": []})

    async def _json(self, request: Request, *parameters: str) -> Any:
        given = request.query_params if request.scope["query_string"] else ()
        if unknown := [name for name in given if name not in parameters]:
            hint = did_you_mean(unknown[0][:100], parameters) or "There are none here."
            raise RequestError(422, "request_invalid", f"Unknown query parameter '{unknown[0][:100]}'.", hint)
        return await read_json(request, self.settings)

    async def _built(self, posted: PostedRun | PostedCheck) -> Component:
        # a large blueprint with many faults takes a while, in which the loop has others to serve
        return await asyncio.to_thread(build, self.allowed, posted.type, posted.blueprint, posted.agents)

    async def _ran(
        self, request: Request, component: Component, body: SimpleRun | ComplexRun, trace: bool, watch: Watch
    ) -> Response:
        watch.others = self.of_served if component is self.component else self.of_posted
        try:
            allowed = granted(request.headers, self.settings)
            work = self.admission.admitted(lambda: perform(component, body, self.settings, watch, trace, allowed))
            result = await self.under_way.unless_gone(request, work)
        except asyncio.CancelledError:  # the time to finish in is over, and the run had not begun
            return answer(request, _STOPPED, watch.headers())
        except Exception as error:  # noqa: BLE001 - whatever it is, the answer tells which run it was and what it cost
            return answer(request, error, watch.headers())
        value = to_json_data(result.value)
        shown = result.to_dict() if trace else value if isinstance(component, Workflow) else {"output": value}
        return as_json(shown, headers=watch.headers())


_BOOL = TypeAdapter(bool)


def _traced(request: Request) -> bool:
    """Whether a trace is asked for. A parameter of FastAPI's would cost the start the import of pydantic's old half."""
    value = request.query_params.get("trace", "false") if request.scope["query_string"] else "false"
    try:
        return _BOOL.validate_python(value)
    except ValidationError:
        detail = f"The query parameter 'trace' is {value[:60]!r}, not true or false."
        raise RequestError(422, "request_invalid", detail, "Write '?trace=true', or leave it out.") from None


_STOPPED = RequestError(503, "run_cancelled", "The service is stopping.", "Try again in a while.")
_LIMITS = {name for name in Settings.model_fields if name.startswith(("max_", "run_"))}


def _run_of(posted: PostedRun) -> SimpleRun | ComplexRun:
    if posted.type == "workflow":
        inputs = posted.inputs or {"input": posted.input}
        return WorkflowRun(inputs=inputs, start_step=posted.start_step, resume_path=posted.resume_path)
    return ComplexRun(inputs=posted.inputs) if posted.inputs else SimpleRun(input=posted.input or "")
