"""The routes that say what a run needs, without running it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from podwright.components import Component
from podwright.data.json_data import json_pointer
from podwright.errors import Problem
from podwright.estimates.estimate import Estimate, estimate_task
from podwright.models import use_model
from podwright.run.run import Task
from podwright_service.execution import compute_for, task_of
from podwright_service.http.access.limits import granted_limits
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.json_body import JSONRoute
from podwright_service.http.schemas import (
    EstimateRequest,
    InlineEstimateRequest,
    RunRequest,
)
from podwright_service.routes.blueprints import build_inline
from podwright_service.routes.responses import BODY_PROBLEMS
from podwright_service.runtime import get_runtime

router = APIRouter(tags=["estimates"], route_class=JSONRoute)

Count = Annotated[int | None, Field(ge=0)]
Figure = Annotated[float | None, Field(ge=0)]


class _Response(BaseModel):
    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, from_attributes=True
    )


class EstimatedAmounts(_Response):
    """Model calls, tokens, cost and time; null is what nobody knows."""

    model_calls: Count
    input_tokens: Count
    output_tokens: Count
    tokens: Count
    """Input and output together, which a limit may make fewer than their sum."""
    cost: Figure
    """USD."""
    seconds: Figure
    """Without the time until people decide."""


class EstimatedPortion(_Response):
    """The need of one component at most, without its members, before the limits of the run."""

    component: str
    model_calls: Count
    tokens: Count
    cost: Figure
    """USD."""
    share: Figure
    """The part of the whole: of the cost if it is known, else of the tokens."""
    cause: str
    """The purpose of most of its tokens."""


class EstimateResponse(_Response):
    """The need of runs."""

    component: str
    runs: int
    at_least: EstimatedAmounts
    """Needed by every run that succeeds."""
    usually: EstimatedAmounts
    """Assumed."""
    at_most: EstimatedAmounts
    """Exceeded by no run."""
    limits: dict[str, float]
    """The limits that lower `at_most`, by what they limit."""
    portions: list[EstimatedPortion]
    """The components that need most, the dearest first."""
    advice: list[str]
    """Which limits would lower `at_most`."""
    unknown: list[str]
    """Missing in the numbers, because nobody knows it before the run."""
    assumed: list[str]
    """Assumptions in place of facts."""


@router.post("/estimate", responses=BODY_PROBLEMS)
async def estimate(request: Request, body: EstimateRequest) -> EstimateResponse:
    """Say what a run of the served component needs at least, usually and at most. Nothing is called."""
    component = get_runtime(request).component
    return await _estimate(request, component, body, body.runs)


@router.post("/estimate-blueprint", responses=BODY_PROBLEMS)
async def estimate_blueprint(
    request: Request, body: InlineEstimateRequest
) -> EstimateResponse:
    """Say what a run of a blueprint from the request needs, as `/estimate`."""
    component = await build_inline(request, body)
    return await _estimate(request, component, body, body.runs)


async def _estimate(
    request: Request, component: Component, body: RunRequest, runs: int
) -> EstimateResponse:
    _check_is_whole(body)
    task: Task | None = None
    if {"input", "inputs"} & body.model_fields_set:
        task = await task_of(component, body, request)
    settings = get_runtime(request).settings
    limits, _ = granted_limits(request.headers, settings)

    def work() -> Estimate:
        return estimate_task(component, task, limits=limits, runs=runs)

    with use_model(settings.models):
        found = await compute_for(request, work)
    return EstimateResponse.model_validate(found)


def _check_is_whole(body: RunRequest) -> None:
    """Check that a body asks for a whole run.

    Raises:
        RequestError: 422: it is about one that goes on.
    """
    pointers = [
        f"/{name}"
        for name in ("start_step", "resume_path", "decision")
        if getattr(body, name)
    ]
    # only contexts of stopped runs have such names
    pointers += [
        f"/inputs{json_pointer(name)}"
        for name in body.inputs
        if name.startswith("_")
    ]
    if not pointers:
        return
    detail = "An estimate is about a whole run, not about one that goes on."
    raise RequestError(
        422,
        "request_invalid",
        detail,
        "Send the input with which it began.",
        problems=[Problem(pointer, detail) for pointer in pointers],
    )
