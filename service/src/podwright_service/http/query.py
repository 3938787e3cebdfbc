"""Query parameters: one that a route does not have is a problem, because it would do nothing in silence."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, get_args, get_origin

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams

from podwright.data.text import did_you_mean, short_repr
from podwright.errors import Problem
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.paths import OPENAI_PREFIX

_OF_OPENAI_CLIENTS = ("api-version",)
"""Parameters that Azure's clients of OpenAI's protocols add to each request."""
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class CheckedRoute(APIRoute):
    """A route that refuses query parameters that it does not have, and repeated ones.

    Probes, scrapes and pages are other routes: a load balancer, a scraper or a link may add a parameter.
    """

    def get_route_handler(self) -> Handler:
        """The handler of FastAPI, behind the check."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if request.scope["query_string"]:
                self._check_query(request.query_params)
            return await handler(request)

        return handle

    def _check_query(self, query: QueryParams) -> None:
        """Check the names of the query parameters.

        Raises:
            RequestError: 422: one is unknown, or repeated.
        """
        parameters = dict(_parameters(self.dependant))
        known = list(parameters)
        tolerated = known
        if self.path.startswith(OPENAI_PREFIX):
            tolerated = [*known, *_OF_OPENAI_CLIENTS]
        unknown = [name for name in query if name not in tolerated]
        if unknown:
            raise invalid_query([_unknown(name, known) for name in unknown])
        repeated = [
            name
            for name in query
            if not parameters.get(name) and len(query.getlist(name)) > 1
        ]
        if repeated:
            raise invalid_query([_repeated(name) for name in repeated])


def _is_list(annotation: object) -> bool:
    """Whether a type is that of a list, or a union with one."""
    if annotation is list or get_origin(annotation) is list:
        return True
    return any(_is_list(part) for part in get_args(annotation))


def invalid_query(problems: Sequence[Problem]) -> RequestError:
    """The 422 for query parameters.

    Args:
        problems: What is wrong with them, at least one.
    """
    first = problems[0]
    return RequestError(
        422,
        "request_invalid",
        f"Invalid request: {first.detail}",
        suggestion=first.suggestion,
        problems=problems,
    )


def _unknown(name: str, known: Sequence[str]) -> Problem:
    hint = did_you_mean(name, known) or "Leave it out: this route has none."
    detail = f"Unknown query parameter {short_repr(name)}."
    return Problem("", detail, hint)


def _repeated(name: str) -> Problem:
    detail = f"The query parameter '{name}' is repeated, and has one value."
    hint = "Give it once; several values are separated by commas, where it takes them."
    return Problem("", detail, hint)


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """The query parameters of a route and of its dependencies, each with whether it may be repeated."""
    for parameter in dependant.query_params:
        yield parameter.alias, _is_list(parameter.field_info.annotation)
    for dependency in dependant.dependencies:
        yield from _parameters(dependency)
