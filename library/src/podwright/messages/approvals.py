"""What a person is asked, and what they have decided."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    describe_value,
    json_pointer,
)
from podwright.data.text import did_you_mean
from podwright.errors import InputsError, Problem
from podwright.schemas.json_schema import SchemaTooComplexError
from podwright.schemas.keywords import CheckBudget
from podwright.schemas.validator import SchemaValidator

APPROVE = "approve"
REJECT = "reject"
DEFAULT_OPTIONS = (APPROVE, REJECT)
"""What may be decided if a step does not say."""


_OLDER = "older:"
"""Begins the digests of questions that older releases asked."""


def digest_of_asked(question: JsonMapping) -> str:
    """The digest of a stored question, by which a decision on it is compared with the question of a later attempt."""
    if "digest" in question:
        return str(question["digest"])
    return _OLDER + Question.from_dict(question).digest


class ApprovalId(NamedTuple):
    """What tells a question from the others of a run."""

    run_id: str
    """Id of the run that asks, which may be nested."""
    path: tuple[int, ...]
    """Position of the approval step, or of the run whose model calls a tool."""
    tool_call: int | None = None
    """Number of the tool call; None for an approval step."""

    def to_dict(self) -> JsonObject:
        """The id as JSON data."""
        return {
            "run_id": self.run_id,
            "path": list(self.path),
            "tool_call": self.tool_call,
        }

    @classmethod
    def from_dict(cls, data: JsonMapping) -> ApprovalId:
        """Read what `to_dict` wrote, or what older releases did, which asked in approval steps only.

        Raises:
            KeyError, TypeError, ValueError: The data is something else.
        """
        number = data.get("tool_call")
        if number is not None:
            number = int(number)
        return cls(
            run_id=str(data["run_id"]),
            path=tuple(int(index) for index in data["path"]),
            tool_call=number,
        )


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person."""

    message: str
    options: tuple[str, ...] = DEFAULT_OPTIONS
    """The decisions that are possible."""
    edit: Mapping[str, JsonMapping] = field(
        default_factory=dict[str, JsonMapping]
    )
    """What the person may change, by name: `{"schema": its JSON Schema, "value": what it is}`."""
    ends_on_reject: bool = True
    """Whether a rejection ends the run."""
    tool: str = ""
    """The tool that is to be called, with the values of `edit`; empty for an approval step."""
    component: str = ""
    """The component whose model calls the tool; empty for an approval step."""
    model_arguments: JsonMapping | None = None
    """The arguments of the tool as the model wrote them, if it is called with others: those after validation, and with
    the defaults of its function."""

    @property
    def digest(self) -> str:
        """SHA-256 of what is decided about: the tool and its arguments, or the values and options of a step.

        A decision holds for the question with the same digest. The wording of a message may change.
        """
        values = {name: entry.get("value") for name, entry in self.edit.items()}
        subject = [self.tool, values, self.model_arguments, [*self.options]]
        text = json.dumps(subject, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self) -> JsonObject:
        """The question as JSON data."""
        data: JsonObject = {
            "message": self.message,
            "options": list(self.options),
            "ends_on_reject": self.ends_on_reject,
            "digest": self.digest,
        }
        if self.edit:
            data["edit"] = dict(self.edit)
        if self.tool:
            data["tool"] = self.tool
        if self.component:
            data["component"] = self.component
        if self.model_arguments is not None:
            data["model_arguments"] = dict(self.model_arguments)
        return data

    @classmethod
    def from_dict(cls, data: JsonMapping) -> Question:
        """Read what `to_dict` wrote, or what older releases did, which knew a message only."""
        options = as_array(data.get("options")) or DEFAULT_OPTIONS
        model_arguments: JsonObject | None = None
        if "model_arguments" in data:
            model_arguments = as_object(data["model_arguments"])
        return cls(
            message=str(data.get("message", "")),
            options=tuple(options),
            edit=as_object(data.get("edit")),
            ends_on_reject=bool(data.get("ends_on_reject", True)),
            tool=str(data.get("tool") or ""),
            component=str(data.get("component") or ""),
            model_arguments=model_arguments,
        )

    @property
    def written_arguments(self) -> JsonObject:
        """The arguments of the tool as the model wrote them."""
        if self.model_arguments is not None:
            return dict(self.model_arguments)
        return {name: entry.get("value") for name, entry in self.edit.items()}

    def is_answered_by(self, decision: Decision) -> bool:
        """Whether a decision was made about this question; it may be about an earlier one at the same place."""
        known = (None, self.digest, self._digest_of_older_releases)
        return decision.about in known

    @property
    def _digest_of_older_releases(self) -> str:
        """The digest of the same question from a release that showed the arguments as the model wrote them."""
        written: dict[str, JsonMapping] = dict(self.edit)
        if self.model_arguments is not None:
            for name in self.edit:
                written[name] = {"value": self.model_arguments.get(name)}
        older = Question("", self.options, written, tool=self.tool)
        return _OLDER + older.digest

    def check(self, decision: Decision) -> None:
        """Check a decision.

        Raises:
            InputsError: It is no option, or changes something that may not be changed, or to a wrong value; with
                pointers into the decision, such as `/values/draft`.
        """
        problems = list(self._problems(decision))
        if not problems:
            return
        suggestion = "Correct the listed values."
        if decision.decision not in self.options:
            suggestion = f"Decide one of: {', '.join(self.options)}."
        raise invalid_decision(self, decision, problems, suggestion)

    def changes(self, decision: Decision) -> JsonMapping:
        """What a decision changes; a form may send the arguments of a tool call back as the question shows them."""
        if not self.tool:
            return decision.values
        shown = {name: entry.get("value") for name, entry in self.edit.items()}
        return {
            name: value
            for name, value in decision.values.items()
            if name not in shown or shown[name] != value
        }

    def _problems(self, decision: Decision) -> Iterator[Problem]:
        if decision.decision not in self.options:
            yield Problem(
                "/decision",
                detail=f"Unknown decision '{decision.decision}'.",
                suggestion=did_you_mean(decision.decision, self.options),
            )
        budget = CheckBudget()
        for name, value in self.changes(decision).items():
            at = f"/values{json_pointer(name)}"
            if name not in self.edit:
                yield Problem(
                    at,
                    detail=f"'{name}' may not be changed.",
                    suggestion=did_you_mean(name, self.edit),
                )
                continue
            schema = as_object(self.edit[name].get("schema"))
            # the validation of a tool knows what it takes: other dates than a JSON Schema, for example
            validator = SchemaValidator(schema, formats=not self.tool)
            try:
                problem = validator.problem(value, budget)
            except SchemaTooComplexError as error:
                yield Problem(
                    at, detail=f"'{name}' cannot be checked: {error}."
                )
                return
            if problem is not None:
                yield Problem(
                    at + problem.pointer,
                    detail=f"'{name}' {problem.detail}, got {describe_value(value)}.",
                )


def invalid_decision(
    question: Question,
    decision: Decision,
    problems: Sequence[Problem],
    suggestion: str = "Correct the listed values.",
) -> InputsError:
    """The error about a decision with problems.

    Args:
        question: The question, which stays open.
        decision: The decision.
        problems: Everything that is wrong in it, at least one.
        suggestion: What to do.
    """
    error = InputsError(
        f"The decision '{decision.decision}' is invalid: {problems[0]}",
        problems=problems,
        suggestion=suggestion,
    )
    error.question = question
    # no step catches what the person did wrong
    error.ends_run = True
    return error


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person has decided."""

    decision: str = APPROVE
    """One of the question's options."""
    comment: str = ""
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the person has changed, by name."""
    about: str | None = None
    """Digest of the question that the person was asked; None if that is not known."""

    @property
    def is_rejection(self) -> bool:
        """Whether it is the option `reject`."""
        return self.decision == REJECT

    def to_dict(self) -> JsonObject:
        """The decision as JSON data."""
        data: JsonObject = {"decision": self.decision, "comment": self.comment}
        if self.values:
            data["values"] = dict(self.values)
        return data

    @classmethod
    def from_dict(cls, data: object) -> Decision:
        """Read a decision.

        Raises:
            InputsError: It is no object, or `decision`, `comment` or `values` has a wrong type; each is optional.
        """
        members = as_object(data)
        unknown = members.keys() - {"decision", "comment", "values"}
        decision = members.get("decision", APPROVE)
        comment = members.get("comment", "")
        values = members.get("values", {})
        are_texts = isinstance(decision, str) and isinstance(comment, str)
        are_objects = isinstance(values, dict) and isinstance(data, dict)
        if unknown or not are_texts or not are_objects:
            raise InputsError(
                "A decision is an object with the texts 'decision' and 'comment', and the object 'values'.",
                suggestion="Write it as {'decision': 'approve', 'comment': …, 'values': {…}}.",
            )
        return cls(decision, comment, as_object(members.get("values")))
