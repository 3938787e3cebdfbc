"""The error for a problem document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from podwright.connection.problems import text_of, wait_of
from podwright.data.json_data import as_array, as_object
from podwright.errors import RemoteError
from podwright.messages.usage import Usage

_usage: TypeAdapter[Usage] = TypeAdapter(Usage)


class ProblemError(RemoteError):
    """The service refused a request, or the run failed; the message has the problem's `detail` (RFC 9457).

        try:
            client.run("the moon", limits=RunLimits(cost=0.01))
        except ProblemError as error:
            if error.code == "limit_exceeded":
                print(error.limit, error.usage)

    A workflow that stopped can go on: send `error.context` as the input, with `resume_path=error.resume_path`.

    Args:
        problem: The problem document.
        status: The HTTP status, if the document has none.
        via: The way of the response, such as " through the proxy http://proxy:3128"; empty if it is not known.
    """

    default_suggestion = "Look in the logs of the service."

    def __init__(
        self,
        problem: Mapping[str, Any],
        status: int | None = None,
        via: str = "",
    ) -> None:
        self.problem = dict(problem)
        """The whole document."""
        number = problem.get("status")
        if type(number) is int and number:
            status = number
        suggestion = text_of(problem, "suggestion")
        detail = text_of(problem, "detail")
        if not detail:
            detail = "no problem document."
            suggestion = "Perhaps a proxy answered: check the address, then the logs of both."
        super().__init__(
            f"The service answered {status}{via}: {detail}",
            suggestion=suggestion or None,
            help_url=text_of(problem, "type") or None,
            code=text_of(problem, "code") or None,
        )
        self.status = status
        self._via = via
        self.remote_code = text_of(problem, "code") or None
        self.run_id = text_of(problem, "run_id") or None
        self.component = text_of(problem, "component") or None
        self.limit = text_of(problem, "limit") or None
        """The limit that was reached, such as `tokens`."""
        self.usage = _read_usage(problem)
        self.retry_after = wait_of(problem)
        if "context" in problem:
            self.context = as_object(problem["context"])
            self.resume_path = as_array(problem.get("resume_path"))

    def __reduce__(self) -> tuple[Any, ...]:
        """How to pickle it, for example for a pool of processes."""
        return type(self), (self.problem, self.status, self._via), self.__dict__

    def details(self) -> Sequence[str]:
        """Each thing that is wrong in the request, with its JSON pointer."""
        entries = map(as_object, as_array(self.problem.get("errors")))
        return [
            f"{entry.get('pointer')}: {entry.get('detail')}"
            for entry in entries
        ]


def _read_usage(problem: Mapping[str, Any]) -> Usage | None:
    if "usage" not in problem:
        return None
    try:
        return _usage.validate_python(problem["usage"])
    except ValidationError:  # of a newer service
        return None
