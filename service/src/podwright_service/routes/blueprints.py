"""The route that checks inline blueprints, and how they become components."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict

from podwright.components import Component
from podwright.errors import BlueprintValidationError
from podwright_service.execution import compute_for
from podwright_service.http.errors.problems import ErrorEntry, error_entries
from podwright_service.http.json_body import JSONRoute
from podwright_service.http.schemas import InlineBlueprint, InlineRunRequest
from podwright_service.inline.policy import inline_warnings
from podwright_service.routes.responses import BODY_PROBLEMS
from podwright_service.runtime import get_runtime

router = APIRouter(tags=["blueprints"], route_class=JSONRoute)


class Validation(BaseModel):
    """The problems of a blueprint."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    valid: bool
    errors: list[ErrorEntry]
    warnings: list[ErrorEntry]
    """If it is valid: further keys of `config`, which are not used, and names that hide others; at most 100."""


@router.post("/validate-blueprint", responses=BODY_PROBLEMS)
async def validate_blueprint(
    request: Request, body: InlineBlueprint
) -> Validation:
    """Check a blueprint as `/run-blueprint` does, without running it."""
    try:
        await build_inline(request, body)
    except BlueprintValidationError as error:
        return Validation(
            valid=False, errors=error_entries(error.problems), warnings=[]
        )
    warnings = await compute_for(
        request, inline_warnings, body.blueprint, body.agents
    )
    return Validation(
        valid=True,
        errors=[],
        warnings=error_entries(warnings),
    )


async def build_inline(
    request: Request, body: InlineBlueprint | InlineRunRequest
) -> Component:
    """The component of an inline blueprint.

    Raises:
        BlueprintValidationError: All its problems.
    """
    policy = get_runtime(request).policy
    # in a thread, because a large blueprint with many problems takes a while
    return await compute_for(
        request, policy.build, body.type, body.blueprint, body.agents
    )
