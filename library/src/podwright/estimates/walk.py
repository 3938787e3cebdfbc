"""The walk over components and steps as a run does them, with sizes in place of values.

It is made once for each bound: what a run that succeeds needs at least, what it usually needs, and what no run exceeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from podwright.conditions import decide
from podwright.data.json_data import JsonMapping, as_object, to_text
from podwright.data.media import parts_with_media
from podwright.data.names import INPUT, Expression, find_name, path_expression
from podwright.errors import ContextError
from podwright.estimates.need import UNKNOWN, Need
from podwright.estimates.sizes import (
    LARGEST,
    Earlier,
    Size,
    Sizes,
    joined,
    known_in,
    section_bytes,
)
from podwright.functions.run_context import MAX_METADATA_VALUE
from podwright.messages.task_input import TaskInput
from podwright.messages.templates import (
    fill,
    names,
    only_name,
    split,
    value_of,
    visible,
)
from podwright.messages.usage import RunLimits
from podwright.models.offline.offline import estimate_message
from podwright.steps.base import assume_resolved
from podwright.steps.map_items import UnreadableItemsError, read_items
from podwright.threads import check_cancelled

if TYPE_CHECKING:
    from podwright.run.component import Component
    from podwright.run.run import Task
    from podwright.steps.base import Step, Steps
    from podwright.tools.tool import Tool

T = TypeVar("T")

Bound = Literal["least", "usual", "most"]

ASSUMED_INPUT: Final = Size(400), Size(8_000)
"""An input that is not known: usually, and at most."""
ASSUMED_RESULT: Final = Size(200), Size(8_000)
"""A value of a function or a person."""
ASSUMED_ANSWER: Final = Size(1_000), Size(16_384)
"""The answer of a component of which nothing is known."""
USUAL_ITEMS: Final = 5
_NOTHING: Final = Size(0)
_DECISION: Final = 9_000
"""Bytes of a decision with its comment, which a service takes up to 2 000 characters of."""
_REASON: Final = 4_400
"""Bytes of an error that steps catch: see `chats.tool_answers.MAX_REASON`."""
_WIDENINGS: Final = 4
"""Passes over a loop until a size that still grows counts as the largest."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The need of a run of a component, and the size of its answer."""

    need: Need
    answer: Size
    turn_tokens: int = 0
    """Tokens of the messages of its chat that another agent goes on with."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A conversation with which one of several agents goes on, by sizes, as `Handover` is by values."""

    team: Mapping[str, Component]
    """The agents that may answer, by name."""
    first: Component
    """The agent that the run began with."""
    turn_tokens: int = 0
    """Tokens of the turn so far; none if it begins with the input."""


@dataclass(frozen=True, slots=True)
class Given:
    """The task of a run by sizes, as `Task` is by values."""

    named: Mapping[str, Size]
    """The values that templates read, by name."""
    content: Size | None = None
    """The text or the parts that the model gets; None for named inputs."""
    values: Mapping[str, Size] = field(default_factory=dict[str, Size])
    """Values that only templates read."""
    earlier: Earlier = field(default_factory=Earlier)
    response_model: Any = None
    """The type of the answer; None is the component's own."""
    handed: Handed | None = None
    """The conversation that an agent goes on with in place of another one."""

    @classmethod
    def of(cls, task: Task) -> Given:
        """Return the sizes of a task of which all is known."""
        parsed = task.parsed_input
        content: Size | None = None
        if parsed.content is not None:
            content = Size.of(
                parsed.content
                if isinstance(parsed.content, str)
                else list(parsed.content)
            )
        return cls(
            {name: Size.of(value) for name, value in parsed.named.items()},
            content,
            {name: Size.of(value) for name, value in task.values.items()},
            earlier=Earlier(task.messages),
            response_model=task.response_model,
        )

    @property
    def every_value(self) -> Mapping[str, Size]:
        """All that templates read."""
        return {**self.values, **self.named}

    def turn_tokens(self, instructions: str) -> int:
        """Return the tokens of the turn so far: the user's message, and what other agents have said."""
        if self.handed is not None and self.handed.turn_tokens:
            return self.handed.turn_tokens
        return self.message_tokens(instructions)

    def message_tokens(self, instructions: str) -> int:
        """Return the tokens of the user's message; see `TaskInput.message`."""
        if self.content is not None:
            return self.content.tokens
        known = known_in(self.named)
        if len(known) == len(self.named):
            return estimate_message(
                TaskInput(None, known).message(instructions)
            )
        used = {find_name(name, self.named) for name in names(instructions)}
        shown = visible(
            self.named,
            [name for name in used if name and not self.named[name].media],
        ) or visible(self.named)
        media = sum(size.media for size in shown.values())
        return Size(section_bytes(shown), media).tokens

    @property
    def audio(self) -> int:
        """The input tokens that are audio."""
        sizes = self.named.values() if self.content is None else [self.content]
        return sum(size.audio for size in sizes)


class Notes:
    """Notes of the walks for people, each once."""

    def __init__(self) -> None:
        self.unknown: dict[str, None] = {}
        """Missing in the numbers."""
        self.assumed: dict[str, None] = {}
        """Assumptions in place of facts."""
        self.limits: dict[str, float] = {}
        """The limits of the outermost run that lower its numbers, by what they limit."""

    def note_limits(self, need: Need, limits: RunLimits) -> None:
        """Note the limits that are lower than what is needed."""
        for name, amount, limit in (
            ("model_calls", need.calls, limits.model_calls),
            ("tokens", need.tokens, limits.tokens),
            ("cost", need.cost, limits.cost),
            ("seconds", need.seconds, limits.wall_time),
        ):
            if limit is not None and amount > limit:
                self.limits[name] = min(limit, self.limits.get(name, limit))


class Walk:
    """A walk for one bound.

    Args:
        bound: What it is about.
        notes: What is noted.
        component: The component whose steps or members are walked.
        is_shared: Whether calls may wait for each other, because a budget is divided among them.
        is_inside: Whether a run around those that are walked has limits of its own.
    """

    def __init__(
        self,
        bound: Bound,
        notes: Notes,
        component: Component,
        *,
        is_shared: bool = False,
        is_inside: bool = False,
    ) -> None:
        self.bound: Bound = bound
        self.notes = notes
        self.component = component
        self._is_shared = is_shared
        self._is_inside = is_inside

    def choose(self, least: T, usual: T, most: T) -> T:
        """Return the one of the bound."""
        return {"least": least, "usual": usual, "most": most}[self.bound]

    def note_unknown(self, what: str) -> None:
        """Note something that a run may need, and that nobody knows."""
        self.notes.unknown[what] = None

    def assume(self, usual_and_most: tuple[Size, Size], why: str) -> Size:
        """Return an assumed size, and note why it is one."""
        self.notes.assumed[why] = None
        return self.choose(_NOTHING, *usual_and_most)

    # --- Components ---------------------------------------------------------------------------------------------------

    def run(
        self,
        component: Component,
        given: Given,
        limits: Sequence[RunLimits] = (),
    ) -> Forecast:
        """Return what a run of a component needs, within its limits.

        Args:
            component: The component.
            given: What it is given.
            limits: Limits of the run besides those of the component.
        """
        check_cancelled()
        every_limit = [*limits, *component.all_limits]
        inside = self._inside(component, every_limit)
        forecast = component.need(inside, given)
        return replace(forecast, need=self._within(forecast.need, every_limit))

    def run_workflow(self, workflow: Component, sizes: Sizes) -> Need:
        """Return what a workflow needs that runs on the context of another one."""
        inside = self._inside(workflow, workflow.all_limits)
        for name, value in workflow.inputs.defaults.items():
            sizes.shown.setdefault(name, Size.of(value))
        need = inside.steps(cast("Any", workflow).steps, sizes)
        return self._within(need, workflow.all_limits)

    def _inside(
        self, component: Component, limits: Sequence[RunLimits]
    ) -> Walk:
        is_shared = self._is_shared or any(
            each.tokens is not None or each.cost is not None for each in limits
        )
        return Walk(
            self.bound,
            self.notes,
            component,
            is_shared=is_shared,
            is_inside=True,
        )

    def _within(self, need: Need, limits: Sequence[RunLimits]) -> Need:
        if self.bound != "most":
            return need
        for each in limits:
            if not self._is_inside:
                self.notes.note_limits(need, each)
            need = need.within(each)
        return need

    def unknown_run(self, what: str) -> Forecast:
        """Return what a run needs of which nothing is known."""
        self.note_unknown(what)
        answer = self.assume(ASSUMED_ANSWER, f"the answer of {what}")
        need = self.choose(Need(), Need.unknown(), Need.unknown())
        return Forecast(need, answer)

    def given(
        self,
        component: Component,
        data: Size | Mapping[str, Size],
        values: Mapping[str, Size],
        *,
        earlier: Earlier | None = None,
        response_model: Any = None,
        handed: Handed | None = None,
    ) -> Given:
        """Return what a member is given; see `Component.nested_task`.

        Args:
            component: The member.
            data: Its input, or named inputs.
            values: Values of the run around it.
            earlier: The earlier turns of the conversation that it is given; None for none.
            response_model: The type of its answer; None is its own.
            handed: See `Given`.
        """
        content = data if isinstance(data, Size) else None
        named = {INPUT: data} if isinstance(data, Size) else dict(data)
        if component.inputs:
            declared = component.inputs
            defaults = {
                name: Size.of(value)
                for name, value in declared.defaults.items()
            }
            chosen = {
                name: values[name]
                for name in declared.schemas
                if name in values
            }
            named = {**defaults, **chosen, **named}
            if named.keys() != {INPUT}:
                content = None
        return Given(
            named,
            content,
            values,
            earlier=earlier or Earlier(),
            response_model=response_model,
            handed=handed,
        )

    def unknown_input(self, component: Component) -> Given:
        """Return what a run is given of which nothing is known, besides the defaults of the inputs."""
        unknown = self.assume(ASSUMED_INPUT, "the input")
        declared = component.inputs
        if not declared:
            return Given({INPUT: unknown}, unknown)
        named = {
            name: Size.of(declared.defaults[name])
            if name in declared.defaults
            else unknown
            for name in (INPUT, *declared.schemas)
        }
        return Given(named)

    # --- Steps --------------------------------------------------------------------------------------------------------

    def agent(self, name: object) -> Component:
        """Return the agent that a step names.

        Raises:
            ContextError: It was not given.
        """
        agent = self.component.members().get(str(name))
        if agent is None:
            raise ContextError(
                f"'{self.component.name}' needs the agent '{name}', which was not given."
            )
        return agent

    def steps(self, steps: Steps, sizes: Sizes) -> Need:
        """Return what steps need one after the other; what they write is written."""
        check_cancelled()
        need = Need()
        for step in assume_resolved(steps):
            need += step.need(self, sizes)
        return need

    def unknown_step(self, step: Step, sizes: Sizes) -> Need:
        """Return what a step needs of whose kind nothing is known; the steps in it are expected to run once."""
        what = f"what the step '{step.title}' does"
        self.note_unknown(what)
        need = self.one_of([(), *step.inner()], sizes)
        for name in step.output_names():
            sizes.write(name, self.assume(ASSUMED_RESULT, what))
        return self.choose(Need(), need, Need.unknown())

    def one_of(self, ways: Sequence[Steps], sizes: Sizes) -> Need:
        """Return what one of several sequences of steps needs, nobody knows which."""
        parts = [sizes.part() for _ in ways]
        needs = [
            self.steps(way, part) for way, part in zip(ways, parts, strict=True)
        ]
        sizes.write_all(parts, largest=self.bound != "least")
        return self.one_of_needs(needs)

    def one_of_needs(self, needs: Sequence[Need]) -> Need:
        """Return what one of several ways needs, nobody knows which: usually that of the dearest."""
        return self.choose(Need.lowest, Need.dearest, Need.highest)(needs)

    def repeated(
        self,
        steps: Steps,
        sizes: Sizes,
        number: int,
        first: Need,
        before: Sizes,
    ) -> Need:
        """Return what steps need that run again so many times, each time on what the time before has written.

        Args:
            steps: The steps.
            sizes: The context after they have run once.
            number: How often they run after that.
            first: What they needed when they ran once.
            before: The context before that.
        """
        need = Need()
        last = first
        earlier = before.shown
        passes = 0
        # loops inside each other are walked in linear time only if nothing is walked twice on the same sizes
        while passes < number and passes <= _WIDENINGS:
            grown = [
                name
                for name, size in sizes.shown.items()
                if size != earlier.get(name)
            ]
            is_last = passes == _WIDENINGS
            if not grown or (is_last and self.bound != "most"):
                break
            if is_last:
                for name in grown:
                    sizes.write(name, Size(LARGEST))
            earlier = dict(sizes.shown)
            last = self.steps(steps, sizes)
            need += last
            passes += 1
        return need + last.times(number - passes)

    def at_once(self, need: Need, number: int, concurrency: int) -> Need:
        """Return what the same part needs so many times, some of them at once."""
        rounds = number
        if self.bound == "least" or not self._is_shared:
            rounds = -(-number // concurrency)
        return replace(need.times(number), seconds=need.times(rounds).seconds)

    def all_at_once(self, needs: Sequence[Need]) -> Need:
        """Return what several parts need that run at once."""
        total = Need()
        for need in needs:
            if self._is_shared and self.bound == "most":
                total += need
            else:
                total = total.at_once(need)
        return total

    def decide(self, condition: object, sizes: Sizes) -> bool | None:
        """Return whether a condition holds, if that follows from the inputs."""
        return decide(
            as_object(condition), sizes.known, self.component.conditions
        )

    def items(self, over: str, most: int, sizes: Sizes) -> tuple[int, Size]:
        """Return how many items a value has, and the size of one.

        Args:
            over: The name of the value, perhaps with fields.
            most: The most items that it may have.
            sizes: The context.
        """
        value = self.value(path_expression(over), sizes.values)
        if value.is_known:
            try:
                items = [Size.of(item) for item in read_items(value.value)]
            except UnreadableItemsError:
                items = []
            total = sum(item.bytes for item in items)
            smallest = min((item.bytes for item in items), default=0)
            largest = max((item.bytes for item in items), default=0)
            media = max((item.media for item in items), default=0)
            average = -(-total // max(1, len(items)))
            size = self.choose(smallest, average, largest)
            return len(items), Size(size, media)
        self.notes.assumed[f"the number of items of '{over}'"] = None
        # an item and what is between it and the next one have a byte each
        number = min(most, value.bytes // 2 + 1)
        usual = min(USUAL_ITEMS, number)
        item = self.choose(0, -(-value.bytes // max(1, usual)), value.bytes)
        return self.choose(0, usual, number), Size(item)

    def function(self, name: str) -> tuple[Need, Size]:
        """Return what a call of a function needs, and the size of its result."""
        result = self.assume(
            ASSUMED_RESULT, f"the result of the function '{name}'"
        )
        return self.call(name, self.component.own_tools().get(name)), result

    def call(self, name: str, function: Tool | None) -> Need:
        """Return what a call of a function needs: its time; note that nobody knows the rest."""
        self.note_unknown(f"what the function '{name}' runs or reports")
        timeout = None if function is None else function.timeout
        longest = UNKNOWN if timeout is None else timeout
        return Need(seconds=self.choose(0, 0, longest))

    def replaced(self, before: Size, function: str) -> Size:
        """Return the size of a value that a function may replace."""
        assumed = self.assume(
            ASSUMED_RESULT, f"the result of the function '{function}'"
        )
        most = max(before.bytes, assumed.bytes)
        return self.choose(
            assumed,
            Size(before.bytes, before.media, before.audio),
            Size(most, before.media, before.audio),
        )

    def digits(self, most: int) -> Size:
        """Return the size of a number from 1."""
        return Size(self.choose(1, 1, len(str(most))))

    def decision(self) -> Size:
        """Return the size of what a person has decided."""
        return Size(self.choose(0, 40, _DECISION))

    def edited(self, name: str, sizes: Sizes) -> Size:
        """Return the size of a value that a person may change."""
        assumed = self.assume(
            ASSUMED_RESULT, f"what a person makes of '{name}'"
        )
        before = sizes.shown.get(name, assumed)
        largest = max(before, assumed, key=lambda size: size.bytes)
        return self.choose(assumed, Size(before.bytes), Size(largest.bytes))

    def caught_error(self) -> Size:
        """Return the size of what the steps that catch an error are told."""
        return Size(self.choose(0, 200, _REASON))

    # --- Values -------------------------------------------------------------------------------------------------------

    def value(self, expression: Expression, values: Mapping[str, Size]) -> Size:
        """Return the size of what an expression stands for in a template."""
        name = find_name(expression.name, values)
        if name is None:
            if expression.is_of_run:
                return Size(self.choose(0, 10, 4 * MAX_METADATA_VALUE))
            return self.assume(
                ASSUMED_INPUT, f"the value of '{expression.name}'"
            )
        size = values[name]
        if size.is_known:
            try:
                known = {name: size.value}
                return Size.of(value_of(expression, known, "An estimate"))
            except ContextError:
                # the run will fail here
                return _NOTHING
        if not expression.fields:
            return size
        return Size(self.choose(0, size.bytes, size.bytes))

    def text(self, template: str, values: Mapping[str, Size]) -> Size:
        """Return the size of a filled template."""
        known = known_in(values)
        text, places = split(template, values)
        if all(find_name(place.name, known) is not None for place in places):
            try:
                return Size.of(fill(template, known, "An estimate"))
            except ContextError:
                # what is no name in it is reported by a run
                pass
        size = len(text.encode("utf-8", "replace"))
        size += sum(self.value(place, values).bytes for place in places)
        return Size(min(size, LARGEST))

    def data(self, template: object, values: Mapping[str, Size]) -> Size:
        """Return the size of JSON data with filled templates; see `templates.fill_data`."""
        if isinstance(template, str):
            expression = only_name(template)
            if expression is None:
                return self.text(template, values)
            return self.value(expression, values)
        if isinstance(template, dict):
            members = cast("JsonMapping", template)
            inner = [self.data(value, values) for value in members.values()]
            keys = sum(len(key.encode()) + 4 for key in members)
            whole = self.json(inner)
            return Size(whole.bytes + keys, sum(each.media for each in inner))
        if isinstance(template, list):
            items = cast("list[object]", template)
            return self.json([self.data(item, values) for item in items])
        return Size.of(template)

    def input(self, template: str, values: Mapping[str, Size]) -> Size:
        """Return the size of the input of an agent: a filled template, or parts if it is the name of some."""
        size = self.data(template, values)
        if not size.is_known:
            return size
        return Size.of(parts_with_media(size.value) or to_text(size.value))

    def json(self, sizes: Sequence[Size]) -> Size:
        """Return the size of the JSON of several values, in which texts may be longer."""
        return joined(sizes, escaped=self.choose(1, 1, 2))

    def listed(self, size: Size, number: int) -> Size:
        """Return the size of a list of so many values of one size."""
        return self.json([Size(size.bytes * number + 4 * max(0, number - 1))])
