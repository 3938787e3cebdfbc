"""The step that pauses a workflow until a person decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Required

from pydantic import AfterValidator, Field, with_config
from typing_extensions import TypedDict, override

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    json_pointer,
)
from podwright.data.names import Expression
from podwright.data.text import truncate
from podwright.errors import ApprovalRejectedError, ApprovalRequired
from podwright.messages.approvals import DEFAULT_OPTIONS, Decision, Question
from podwright.messages.messages import CLOSED
from podwright.messages.templates import fill, value_of
from podwright.steps.base import (
    ANY_CHANGE,
    Known,
    Rules,
    Step,
    Write,
    uncertain,
)
from podwright.steps.blueprint_types import InputName, Name, Prompt, Schema
from podwright.steps.registry import StepBlueprint

if TYPE_CHECKING:
    from podwright.blueprints.flowchart import Ends, Flowchart
    from podwright.estimates.need import Need
    from podwright.estimates.sizes import Sizes
    from podwright.estimates.walk import Walk
    from podwright.events import Outcome
    from podwright.steps.base import Steps
    from podwright.workflows.frames import Scope, StepFrame
    from podwright.workflows.references import References
    from podwright.workflows.runner import StepRunner
    from podwright.workflows.template_names import NameCheck

_ON_REJECT = 0
"""How paths and the saved progress name the steps after a rejection."""
_MAX_MESSAGE = 10_000
"""Characters of the message: a map may keep one for each item."""


def _unique_texts(texts: list[str]) -> list[str]:
    for text in texts:
        if texts.count(text) > 1:
            raise ValueError(f"Duplicate name '{text}'")
    return texts


@with_config(CLOSED)
class _ApprovalStep(TypedDict, total=False):
    """Pauses the workflow until a person decides."""

    type: Required[Literal["approval_step"]]
    name: Required[Name]
    message: Required[Prompt]
    options: Annotated[
        list[Name],
        Field(min_length=1, max_length=16),
        AfterValidator(_unique_texts),
    ]
    """What may be decided; by default `approve` and `reject`."""
    edit: Annotated[dict[InputName, Schema], Field(min_length=1, max_length=64)]
    """Names in the context that the person may change, with the schemas of their values."""
    on_reject: list[StepBlueprint]
    """Run if the decision is `reject`, after which the workflow goes on; without this key a rejection ends it."""


def _with_option(step: _ApprovalStep) -> _ApprovalStep:
    if "on_reject" in step and "reject" not in step.get("options", ["reject"]):
        raise ValueError("'on_reject' needs the option 'reject'")
    return step


@dataclass(frozen=True, slots=True)
class ApprovalStep(Step):
    """Pauses the workflow until a person decides; `{name.decision}` and `{name.comment}` are the decision."""

    step_type: ClassVar[str] = "approval_step"
    shape: ClassVar[Any] = Annotated[
        _ApprovalStep, AfterValidator(_with_option)
    ]
    own_keys: ClassVar[Sequence[str]] = ("message",)
    sequences: ClassVar[Sequence[str]] = ("/on_reject",)
    template_keys: ClassVar[Sequence[str]] = ("message",)
    schemas: ClassVar[Sequence[str]] = ("/edit/*",)
    text_key: ClassVar[str] = "message"
    left_out: ClassVar[JsonMapping] = {"options": [], "edit": {}}
    same_as_absent: ClassVar[JsonMapping] = {
        "options": list(DEFAULT_OPTIONS),
        "edit": {},
    }
    keys_with_names: ClassVar[Sequence[str]] = ("edit",)
    keys_of_questions: ClassVar[Sequence[str]] = ("message",)
    breaking: ClassVar[Rules] = (
        # people and programs send one of the options, and values for what may be edited
        ("/options/[^/]+", ["changed", "removed"]),
        ("/edit/[^/]+", ["removed"]),
        ("/edit/[^/]+/.*", ANY_CHANGE),
    )

    message: str
    """The question to that person; a template."""
    name: str | None = None
    options: Sequence[str] = ()
    """What may be decided; by default `approve` and `reject`."""
    edit: Mapping[str, JsonMapping] = field(
        default_factory=dict[str, JsonMapping]
    )
    """Names in the context that the person may change, with the JSON Schemas of their values."""
    on_reject: Steps | None = None
    """Run if the decision is `reject`, after which the workflow goes on; it may be empty. None ends the workflow."""

    @property
    def is_in_context(self) -> bool:
        """Whether its decision becomes a part of the context in any case."""
        return _is_in_context(self.options, self.edit, self.on_reject)

    @override
    def output_names(self) -> Iterator[str]:
        for sequence in self.inner():
            for step in sequence:
                yield from step.output_names()
        if self.is_in_context:
            yield self.title

    @override
    @classmethod
    def writes(
        cls,
        data: JsonMapping,
        pointer: str,
        inner: Mapping[str, Sequence[Write]],
    ) -> Iterator[Write]:
        is_in_context = _is_in_context(
            data.get("options"), data.get("edit"), data.get("on_reject")
        )
        yield Write(
            str(data.get("name")),
            data,
            pointer,
            "decision",
            is_label=not is_in_context,
        )
        for edited in as_object(data.get("edit")):
            place = f"{pointer}/edit{json_pointer(edited)}"
            yield Write(edited, data, place, "edit")
        for writes in inner.values():
            yield from uncertain(writes)

    @override
    @classmethod
    def schema_of_value(
        cls, data: JsonMapping, check: NameCheck
    ) -> JsonMapping | None:
        return _decision_schema(data)

    @override
    @classmethod
    def names_inside(
        cls, data: JsonMapping, sequence: str, known: Known, check: NameCheck
    ) -> Known:
        return {str(data.get("name")): _decision_schema(data)}

    @override
    @classmethod
    def check_names(
        cls, data: JsonMapping, pointer: str, known: Known, check: NameCheck
    ) -> None:
        """Check that what the person may change is in the context."""
        for name in as_object(data.get("edit")):
            place = f"{pointer}/edit{json_pointer(name)}"
            check.expression(
                Expression(name), f"'{name}'", place, check.in_context(known)
            )

    @override
    @classmethod
    def draw(cls, data: JsonMapping, chart: Flowchart, ends: Ends) -> Ends:
        question = f"approval: {data['message']}"
        node = chart.node(data["name"], "asymmetric", question)
        decided = chart.join(ends, node)
        if "on_reject" not in data:
            return decided
        return decided + chart.steps(data["on_reject"], [(node, "reject")])

    @override
    def resolve_fields(self, references: References) -> JsonObject:
        return {"options": list(self.options), "edit": dict(self.edit)}

    @override
    def need(self, walk: Walk, sizes: Sizes) -> Need:
        """Return what follows a rejection at most; the time until a person decides is not counted."""
        for name in self.edit:
            sizes.edit(name, walk.edited(name, sizes))
        sizes.write_decision(
            self.title, walk.decision(), is_shown=self.is_in_context
        )
        approved = sizes.part()
        rejected = sizes.part()
        need = walk.steps(self.on_reject or (), rejected)
        if walk.bound == "most":
            sizes.write_all([approved, rejected], largest=True)
            return need
        return need.times(0)

    @override
    async def run(self, runner: StepRunner, frame: StepFrame) -> Outcome:
        # once it is set, the decision is made and written
        if "at" not in frame.progress:
            decision = await self._apply_decision(runner, frame)
            if not decision.is_rejection:
                return "ok"
            if self.on_reject is None:
                raise ApprovalRejectedError(
                    f"The approval '{self.name}' was rejected."
                )
            frame.progress["at"] = _ON_REJECT
        rejected = self.on_reject or ()
        await runner.run_sequence(rejected, frame.sequence(_ON_REJECT))
        return "ok"

    async def _apply_decision(
        self, runner: StepRunner, frame: StepFrame
    ) -> Decision:
        """Write what a person has decided to the context, and return it.

        Raises:
            ApprovalRequired: Nobody has decided yet.
            InputsError: The decision does not fit the question.
        """
        asked = runner.approval_id(frame.path)
        scope = frame.scope
        # a question that was answered is not asked again: its message may be new, and not fit the context
        question = self._question(scope, message="")
        decision = await runner.decision_on(asked, question)
        if decision is None:
            message = self._fill_message(runner, scope)
            raise ApprovalRequired(
                message,
                question=replace(question, message=message),
                asked=asked,
            )
        for name, value in decision.values.items():
            scope.edit(name, value)
        written = {"decision": decision.decision, "comment": decision.comment}
        scope.write_decision(self.title, written, is_shown=self.is_in_context)
        return decision

    def _fill_message(self, runner: StepRunner, scope: Scope) -> str:
        # no more of a long text is read than the question shows
        message = fill(
            self.message,
            scope.values,
            f"Step '{self.name}'",
            longest=_MAX_MESSAGE,
        )
        runner.count_text(len(message))
        return truncate(message, _MAX_MESSAGE)

    def _question(self, scope: Scope, message: str) -> Question:
        edit = {
            name: {
                "schema": schema,
                "value": value_of(
                    Expression(name), scope.context, f"Step '{self.name}'"
                ),
            }
            for name, schema in self.edit.items()
        }
        return Question(
            message,
            options=tuple(self.options) or DEFAULT_OPTIONS,
            edit=edit,
            ends_on_reject=self.on_reject is None,
        )


def _decision_schema(step: JsonMapping) -> JsonMapping:
    options = step.get("options") or list(DEFAULT_OPTIONS)
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "decision": {"type": "string", "enum": options},
            "comment": {"type": "string"},
        },
    }


def _is_in_context(options: object, edit: object, on_reject: object) -> bool:
    """Whether a decision becomes a part of the context: if there is more to it than that the workflow goes on."""
    return bool(options or edit or on_reject is not None)
