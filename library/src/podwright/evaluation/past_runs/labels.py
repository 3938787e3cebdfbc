"""Labels: what persons have said of answers, in a file or by the approvals of background runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from podwright.blueprints import from_json
from podwright.connection.schemas import BackgroundRun, Decision
from podwright.data.json_data import JsonObject, to_json_data, to_text
from podwright.data.text import os_error_reason, truncate
from podwright.errors import BlueprintValidationError, ConfigurationError
from podwright.messages.approvals import APPROVE
from podwright.schemas.validation_errors import to_problems


@dataclass(frozen=True, slots=True)
class Label:
    """What a person has said of an answer."""

    output: Any
    good: bool
    inputs: Any = ""
    """The inputs of the run that it is the answer of."""
    input: JsonObject = field(default_factory=dict[str, Any])
    """Further inputs of the judge."""
    comment: str = ""
    """Why."""

    def judge_inputs(self) -> JsonObject:
        """Return the inputs of the judge."""
        return {
            "output": to_text(self.output),
            "inputs": to_text(self.inputs),
            **self.input,
        }


class _LabelLine(BaseModel):
    """A line of a file of labels."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    output: JsonValue
    good: bool
    inputs: JsonValue = ""
    input: dict[str, JsonValue] = {}
    comment: str = ""


def read_labels(file: Path) -> list[Label]:
    """Read labels from JSON Lines: `output`, `good`, and if need be `inputs`, `input` and `comment`.

    Raises:
        ConfigurationError: The file cannot be read, a line is no label, or there are none.
    """
    shown = truncate(str(file), 200)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"Cannot read '{shown}': {os_error_reason(error)}."
        ) from error
    # other line ends may be in texts
    lines = text.split("\n")
    labels = [
        _read_line(line, f"Line {number} of '{shown}' is no label")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not labels:
        raise ConfigurationError(f"'{shown}' has no labels.")
    return labels


def _read_line(line: str, what: str) -> Label:
    try:
        data = from_json(line)
        found = _LabelLine.model_validate(data)
    except BlueprintValidationError as error:
        raise ConfigurationError(
            f"{what}: {error.problems[0].detail}"
        ) from error
    except ValidationError as error:
        problem = to_problems(error.errors(include_url=False), line)[0]
        at = f" At '{problem.pointer}'." if problem.pointer else ""
        raise ConfigurationError(
            f"{what}: {problem.detail}{at}",
            suggestion='Write {"output": "…", "good": true}, perhaps with inputs, input and comment.',
        ) from error
    return Label(**found.model_dump())


def labels_of_run(run: BackgroundRun) -> Iterator[Label]:
    """Yield what persons have said of the drafts of a background run.

    Approval is good; a rejection is not, nor is an approval of something else than what was shown. Other options than
    these two say nothing.

    Args:
        run: The run, with its inputs.
    """
    for decision in run.decisions:
        if decision.approved and decision.decision != APPROVE:
            continue
        yield Label(
            _draft(decision),
            good=decision.approved and not _is_edited(decision),
            inputs="" if run.input is None else to_json_data(run.input),
            comment=decision.comment,
        )


def _draft(decision: Decision) -> Any:
    """Return what was decided about: the only value that could be edited, or all of them, or else the question."""
    values = {name: edit.value for name, edit in decision.edit.items()}
    if decision.tool:
        return {"tool": decision.tool, "arguments": values}
    if len(values) == 1:
        return next(iter(values.values()))
    return values or decision.message


def _is_edited(decision: Decision) -> bool:
    """Whether the person has changed something; forms send back what they were given."""
    return any(
        name not in decision.edit or decision.edit[name].value != value
        for name, value in decision.values.items()
    )
