"""Background runs as tasks of MCP (extension `io.modelcontextprotocol/tasks`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import mcp_types as types

from podwright.components import Component
from podwright.connection.schemas import ENDED
from podwright.data.json_data import JsonMapping, JsonObject
from podwright.messages.approvals import Question, digest_of_asked
from podwright_service.background.caller_runs import StoredRun
from podwright_service.mcp_api.component_tool import result_of
from podwright_service.mcp_api.problems import error_result, failure, is_bug

POLL_INTERVAL = 1000
"""Milliseconds between two requests for a task."""
_STATUS: Mapping[str, str] = {
    "waiting_for_approval": "input_required",
    "succeeded": "completed",
    # of a tool that has failed, the result says so
    "failed": "completed",
    "cancelled": "cancelled",
}
"""The status of a task by that of its run; that of all others is `working`."""
_QUESTION_KEY = re.compile(r"approval-([0-9]{1,9})-([0-9a-f]{16})")
_COMMENT: JsonObject = {
    "type": "string",
    "title": "Comment",
    "description": "Why.",
    "maxLength": 2000,
}


def to_task(run: StoredRun, retention: float) -> JsonObject:
    """Return a run as a task, without what came of it.

    Args:
        run: The run.
        retention: Seconds for which it is kept after its end.
    """
    created = run["created_at"]
    times = (created, run["queued_at"], run["started_at"], run["ended_at"])
    ttl = None
    if run["status"] in ENDED and run["ended_at"] is not None:
        ttl = round((run["ended_at"] - created + retention) * 1000)
    status = _STATUS.get(run["status"], "working")
    if run["status"] == "failed" and is_bug(run["problem"] or {}):
        status = "failed"
    task: JsonObject = {
        "taskId": run["id"],
        "status": status,
        "createdAt": _date(created),
        "lastUpdatedAt": _date(max(each for each in times if each is not None)),
        "ttlMs": ttl,
        "pollIntervalMs": POLL_INTERVAL,
    }
    message = _message(run)
    if message:
        task["statusMessage"] = message
    return task


def to_detailed_task(
    run: StoredRun, component: Component, retention: float, *, may_decide: bool
) -> JsonObject:
    """Return a run as a task, with its question, or with its result.

    Args:
        run: The run.
        component: What performs it.
        retention: Seconds for which it is kept after its end.
        may_decide: Whether the caller may decide about it.
    """
    task = to_task(run, retention)
    match task["status"]:
        case "completed":
            result = result_of_run(run, component)
            task["result"] = {
                "resultType": "complete",
                **result.model_dump(
                    mode="json", by_alias=True, exclude_none=True
                ),
            }
        case "failed":
            task["error"] = failure(run["problem"]).error.model_dump()
        case "input_required":
            task["inputRequests"] = {question_key(run): _elicitation(run)}
            if not may_decide:
                task["statusMessage"] = where_to_decide(run["id"])
        case _:
            pass
    return task


def result_of_run(run: StoredRun, component: Component) -> types.CallToolResult:
    """Return the result of a run that has ended, as that of a call.

    Raises:
        MCPError: It failed with an exception that no caller expects.
    """
    if run["status"] == "succeeded":
        return result_of(component, run["result"], run["id"])
    problem: JsonMapping = run["problem"] or {}
    if run["status"] == "failed" and is_bug(problem):
        raise failure(problem)
    return error_result(problem)


def question_key(run: StoredRun) -> str:
    """Return what tells the question of a run that waits from its earlier and later ones."""
    digest = digest_of_asked(run["approval"]).rpartition(":")[2]
    return f"approval-{run['attempt']}-{digest[:16]}"


def attempt_in(key: str) -> int | None:
    """Return the attempt that ended in a question, from what `question_key` has returned; None if it is no such key."""
    match = _QUESTION_KEY.fullmatch(key)
    return int(match[1]) if match else None


def where_to_decide(run_id: str) -> str:
    """Return where a person decides whose client may not."""
    return (
        f"It waits for a decision by a person whose API key has the scope 'approve': POST /runs/{run_id}/approve or "
        f"/reject, or `podwright runs approve {run_id}`."
    )


def _elicitation(run: StoredRun) -> JsonObject:
    question = Question.from_dict(run["approval"])
    return {
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": _shown(question),
            "requestedSchema": {
                "type": "object",
                "properties": {
                    "decision": {
                        "type": "string",
                        "title": "Decision",
                        "enum": list(question.options),
                    },
                    "comment": _COMMENT,
                },
                "required": ["decision"],
            },
        },
    }


def _shown(question: Question) -> str:
    """The question, with the values that are decided about."""
    values = {name: entry.get("value") for name, entry in question.edit.items()}
    if not values:
        return question.message
    shown = json.dumps(values, indent=2, ensure_ascii=False)
    subject = f"{question.tool}: " if question.tool else ""
    return f"{question.message}\n\n{subject}{shown}"


def _message(run: StoredRun) -> str:
    if run["status"] == "interrupted":
        problem: JsonMapping = run["problem"] or {}
        return (
            f"{problem.get('detail', 'It was interrupted.')} "
            f"It goes on after POST /runs/{run['id']}/resume or `podwright runs resume {run['id']}`."
        )
    if run["status"] in ("cancelled", "failed"):
        cause: JsonMapping = run["problem"] or {}
        return str(cause.get("detail", ""))
    return ""


def _date(seconds: float) -> Any:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
