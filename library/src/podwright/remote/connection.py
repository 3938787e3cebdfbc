"""The connection of a remote component: what its service refuses, and how its runs fail, as errors of this run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from podwright import errors
from podwright.connection.problems import parse_problem, text_of, wait_of
from podwright.connection.service_connection import ServiceConnection
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
)
from podwright.data.text import truncate
from podwright.models.http.client import Response
from podwright.run.run import Run

E = TypeVar("E", bound=errors.RemoteError)

_MAX_TEXT = 2000
"""Characters of a text in a problem document."""
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")

_ERRORS_OF_RUNS: dict[str, type[errors.RemoteError]] = {
    "remote_hops_exceeded": errors.RemoteHopsError,
    "remote_interrupted": errors.RemoteInterruptedError,
    "run_cancelled": errors.RemoteUnavailableError,
}
"""Of a run that failed there, by the code of its problem; the others are `RemoteError`, with that code."""


@dataclass(kw_only=True, eq=False, repr=False)
class RemoteConnection(ServiceConnection):
    """The connection of a run to a remote component."""

    # 429 is the answer of a proxy in front of the remote
    busy_statuses: ClassVar = (429, 503)
    max_event: ClassVar = 8 * 2**20

    run: Run
    """The run that calls the remote."""

    def time_left(self) -> float:
        """Return the seconds that are left of the run."""
        return self.run.time_left

    async def refusal(self, response: Response) -> errors.RemoteError:
        """Make the error of a response that is no success; only a problem document is quoted."""
        problem: JsonObject = {}
        if response.media_type == "application/problem+json":
            problem = parse_problem(await response.read())
        answered = f"answered {response.status}{response.via}"
        detail = _text(problem, "detail") or "no problem document."
        kind: type[errors.RemoteError]
        match response.status // 100:
            case 3:
                kind = errors.RemoteResponseError
                detail = "redirects are not followed."
                problem = {}
            case 4 if _text(problem, "code") == "run_interrupted":
                kind = errors.RemoteInterruptedError
            case 4:
                kind = errors.RemoteRejectedError
            case _:
                kind = errors.RemoteUnavailableError
        error = self._problem_error(kind, f"{answered}: {detail}", problem)
        error.status = response.status
        return error

    def failure(self, problem: JsonObject) -> errors.PodwrightError:
        """Make the error for a run that failed there, from its problem document."""
        detail = _text(problem, "detail")
        match _text(problem, "code"):
            case errors.LimitExceededError.code:
                error = errors.LimitExceededError(
                    f"{self.who} failed: {detail}",
                    limit=_text(problem, "limit"),
                    suggestion=_text(problem, "suggestion") or None,
                )
            case errors.ModelRefusedError.code:
                # no failure of the remote
                error = errors.ModelRefusedError(
                    f"{self.who}: {detail}",
                    refusal=str(problem.get("refusal") or ""),
                )
            case errors.ContentUnsupportedError.code:
                # no failure of the remote, either
                error = errors.ContentUnsupportedError(f"{self.who}: {detail}")
            case errors.ApprovalRequired.code:
                error = self._problem_error(
                    errors.RemotePausedError,
                    f"waits for approval: {detail}",
                    # its suggestion is for a caller that can wait
                    {**problem, "suggestion": ""},
                )
                error.paused_context = as_object(problem.get("context"))
                error.paused_path = as_array(problem.get("resume_path"))
            case code:
                # a refusal is no failure of the remote
                error = _refusal_in(problem) or self._failed_run_error(
                    code, problem
                )
        error.component = _text(problem, "component") or None
        return error

    def _failed_run_error(
        self, code: str, problem: JsonMapping
    ) -> errors.RemoteError:
        kind = _ERRORS_OF_RUNS.get(code)
        own_code = None
        if kind is None:
            kind = errors.RemoteError
            own_code = _code_of(problem)
        detail = _text(problem, "detail")
        error = self._problem_error(
            kind, f"failed: {detail}", problem, own_code
        )
        wait = wait_of(problem)
        # a service of an older release names no seconds
        if wait is None and code == "model_rate_limited":
            wait = 1.0
        if wait is not None and problem.get("status") == 503:
            # the caller may send its request again later; it is not repeated here, because the run has been paid
            error.status = 503
            error.retry_after = wait
        return error

    def _problem_error(
        self,
        kind: type[E],
        text: str,
        problem: JsonMapping,
        code: str | None = None,
    ) -> E:
        """Make an error with what a problem document says; see `error`."""
        suggestion = _text(problem, "suggestion") or None
        error = self.error(kind, text, suggestion, code)
        error.remote_code = _code_of(problem)
        error.component = _text(problem, "component") or None
        return error


def _text(problem: JsonMapping, key: str) -> str:
    return truncate(text_of(problem, key), _MAX_TEXT)


def _refusal_in(problem: JsonMapping) -> errors.Refusal | None:
    """Return the refusal of a function there; None if it is something else."""
    if "refusal" not in problem:
        return None
    try:
        return errors.Refusal(_text(problem, "code"), _text(problem, "detail"))
    except ValueError:
        # of a model, or of no service of Podwright
        return None


def _code_of(problem: JsonMapping) -> str | None:
    """Return the code of a problem document; None if it has none, or none that could be ours."""
    code = _text(problem, "code")
    if _CODE.fullmatch(code):
        return code
    return None
