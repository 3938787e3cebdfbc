"""What a run of a case has come to: its values, its error, its calls and its usage, for the checks to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podwright.data.json_data import JsonObject
from podwright.data.names import INPUT
from podwright.errors import (
    ConfigurationError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelRateLimitError,
    ModelTimeoutError,
    ModelUnavailableError,
    PodwrightError,
    RemoteConnectionError,
    RemoteTimeoutError,
    RemoteUnavailableError,
    TraceError,
    codes_of,
)
from podwright.evaluation.reports.row import RowStatus
from podwright.events import (
    ConditionChecked,
    Event,
    ModelCallFailed,
    ModelCallFellBack,
    ModelCallFinished,
    ToolCallStarted,
)
from podwright.messages.usage import NO_USAGE, Usage
from podwright.run.result import ExecutionResult

PROVIDER_CODES: frozenset[str] = frozenset(
    code
    for kind in (
        ModelRateLimitError,
        ModelTimeoutError,
        ModelUnavailableError,
        ModelConnectionError,
        ModelAuthenticationError,
        RemoteConnectionError,
        RemoteTimeoutError,
        RemoteUnavailableError,
    )
    for code in codes_of(kind)
) | {ConfigurationError.code, ModelError.code, TraceError.code}
"""The codes of errors that say something about a provider, a network or this machine, and nothing about the component:
also that a model cannot be called at all, and that a recorded answer cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run has come to."""

    status: RowStatus
    output: Any = ""
    """The answer, as the input of a next component; the question of a run that waits."""
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The context of a workflow; empty for other kinds."""
    question: str = ""
    """What the run waits for."""
    error_code: str = ""
    error: str = ""
    usage: Usage = NO_USAGE
    seconds: float = 0.0
    events: Sequence[Event] = ()
    first_models: Mapping[str, Collection[str]] = field(
        default_factory=dict[str, Collection[str]]
    )
    """The models that components name first, by the component's name; empty if they are not known."""

    @property
    def tool_calls(self) -> list[ToolCallStarted]:
        """The calls of tools and functions, in the order of their starts."""
        return [
            event for event in self.events if isinstance(event, ToolCallStarted)
        ]

    @property
    def provider_error(self) -> str:
        """The code of a failure of a provider that the run has met, also if it went on without it; empty if none."""
        for event in self.events:
            if isinstance(event, ModelCallFailed | ModelCallFellBack):
                code = str(event.error.get("code", ""))
                if code in PROVIDER_CODES:
                    return code
            elif isinstance(event, ModelCallFinished):
                first = self.first_models.get(event.component)
                if first is not None and event.model not in first:
                    # a model that has failed before is passed over for a while, without an event
                    return ModelUnavailableError.code
        return ""

    def readable(self, inputs: Any) -> JsonObject:
        """Return what the templates of checks may read.

        Args:
            inputs: The inputs of the case.
        """
        rounds = Counter(
            event.step
            for event in self.events
            if isinstance(event, ConditionChecked)
        )
        usage: JsonObject = {
            "cost": self.usage.cost,
            "tokens": self.usage.total_tokens,
            "model_calls": self.usage.model_calls,
        }
        named = {INPUT: inputs} if isinstance(inputs, str) else inputs
        return {
            **named,
            **self.values,
            "inputs": inputs,
            "output": self.output,
            "status": self.status,
            "error": {"code": self.error_code, "message": self.error},
            "called": [call.tool for call in self.tool_calls],
            "usage": usage,
            "seconds": self.seconds,
            "rounds": dict(rounds),
            "question": self.question,
        }

    def trace(self) -> ExecutionResult:
        """Return the trace of the run."""
        return ExecutionResult(
            self.output, [*self.events], self.seconds * 1000, self.usage
        )


def failure_status(
    error: PodwrightError, codes: Collection[str] = PROVIDER_CODES
) -> RowStatus:
    """Return the status of a run that an error has ended: whether it was the component's or a provider's."""
    return "error" if error.code in codes else "failed"
