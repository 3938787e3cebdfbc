"""`estimate`: what a run of a component needs, before it is made."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from podwright.data.json_data import JsonObject
from podwright.errors import ConfigurationError, TraceError
from podwright.estimates.need import ANSWERS, FIGURES, RESULTS, Need, Share
from podwright.estimates.walk import Bound, Given, Notes, Walk
from podwright.events import RunFinished
from podwright.messages.usage import RunLimits
from podwright.run.accounts import MAX_STEPS_PER_RUN
from podwright.run.component import Component, Messages, TaskBody

if TYPE_CHECKING:
    from podwright.run.result import ExecutionResult
    from podwright.run.run import Task

_PICO: Final = 12
"""Digits of amounts in USD, as in `Usage`."""
_MOST_RUNS: Final = 1_000_000_000
_SHOWN_SHARES: Final = 5


@dataclass(frozen=True, slots=True)
class Amounts:
    """Model calls, tokens, cost and time; None is what nobody knows."""

    model_calls: int | None
    input_tokens: int | None
    output_tokens: int | None
    tokens: int | None
    """Input and output together, which a limit may make fewer than their sum."""
    cost: float | None
    """USD."""
    seconds: float | None
    """One after the other if there are several runs, without the time until people decide."""

    def __add__(self, other: Amounts) -> Amounts:
        own = self.to_dict()
        sums: JsonObject = {
            name: _sum(own[name], amount)
            for name, amount in other.to_dict().items()
        }
        return Amounts(**sums)

    def to_dict(self) -> JsonObject:
        """The amounts by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Portion:
    """The need of one component at most, without its members, before the limits of the run."""

    component: str
    model_calls: int | None
    tokens: int | None
    cost: float | None
    """USD."""
    share: float | None
    """The part of the whole: of the cost if it is known, else of the tokens."""
    cause: str
    """The purpose of most of its tokens."""

    def to_dict(self) -> JsonObject:
        """The portion as JSON data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Estimate:
    """The need of runs of a component."""

    component: str
    runs: int
    at_least: Amounts
    """Needed by every run that succeeds."""
    usually: Amounts
    at_most: Amounts
    """Exceeded by no run."""
    recorded_runs: int = 0
    """The recorded runs by which `usually` is the median; 0 if it is assumed."""
    nine_of_ten: Amounts | None = None
    """Enough for nine of ten of the recorded runs; None if there are none."""
    limits: Mapping[str, float] = field(default_factory=dict[str, float])
    """The limits that lower `at_most`, by what they limit: model_calls, tokens, cost, seconds, steps."""
    portions: Sequence[Portion] = ()
    """The components that need most, before limits, the dearest first."""
    advice: Sequence[str] = ()
    """Which limits would lower `at_most`."""
    unknown: Sequence[str] = ()
    """Missing in the numbers, because nobody knows it before the run."""
    assumed: Sequence[str] = ()
    """Assumptions in place of facts."""

    def __add__(self, other: Estimate) -> Estimate:
        """Return what the runs of both need, with the portions of the one that needs more at most."""
        one, most = sorted(
            (self, other), key=lambda each: each.at_most.tokens or math.inf
        )
        nine_of_ten: Amounts | None = None
        if self.nine_of_ten and other.nine_of_ten:
            nine_of_ten = self.nine_of_ten + other.nine_of_ten
        return Estimate(
            most.component,
            one.runs + most.runs,
            at_least=one.at_least + most.at_least,
            usually=one.usually + most.usually,
            at_most=one.at_most + most.at_most,
            recorded_runs=most.recorded_runs,
            nine_of_ten=nine_of_ten,
            limits={**most.limits, **one.limits},
            portions=most.portions,
            advice=list(dict.fromkeys([*most.advice, *one.advice])),
            unknown=list(dict.fromkeys([*most.unknown, *one.unknown])),
            assumed=list(dict.fromkeys([*most.assumed, *one.assumed])),
        )

    def to_dict(self) -> JsonObject:
        """The estimate as JSON data."""
        nine_of_ten: JsonObject | None = None
        if self.nine_of_ten is not None:
            nine_of_ten = self.nine_of_ten.to_dict()
        return {
            "component": self.component,
            "runs": self.runs,
            "at_least": self.at_least.to_dict(),
            "usually": self.usually.to_dict(),
            "at_most": self.at_most.to_dict(),
            "recorded_runs": self.recorded_runs,
            "nine_of_ten": nine_of_ten,
            "limits": dict(self.limits),
            "portions": [portion.to_dict() for portion in self.portions],
            "advice": list(self.advice),
            "unknown": list(self.unknown),
            "assumed": list(self.assumed),
        }


def estimate(
    component: Component,
    input_data: Any = None,
    *,
    messages: Messages = (),
    limits: RunLimits | None = None,
    runs: int = 1,
    traces: Sequence[ExecutionResult] = (),
) -> Estimate:
    """Return what a run needs at least, usually and at most. Nothing is called. Takes up to seconds.

        estimate(writer, "the moon").at_most.cost  # USD

    Args:
        component: The component.
        input_data: The input of the run, as its `run` takes it; None if it is not known.
        messages: Earlier turns of the conversation.
        limits: Limits of the run besides those of the component.
        runs: How many runs there are.
        traces: Earlier runs of the component, by which `usually` is what they needed; those that failed do not count.

    Raises:
        InputError: The input is wrong.
        UnknownModelError: No provider serves one of the models.
        ConfigurationError: The number of runs is not from 1 on, or the price file is wrong.
        TraceError: A trace is that of another component, or has no events.
    """
    task: Task | None = None
    if input_data is not None:
        task = component.task_from(TaskBody(input_data, messages=messages))
    return estimate_task(
        component, task, limits=limits, runs=runs, traces=traces
    )


def estimate_task(
    component: Component,
    task: Task | None,
    *,
    limits: RunLimits | None = None,
    runs: int = 1,
    traces: Sequence[ExecutionResult] = (),
) -> Estimate:
    """Return what the run of a task needs, which is None if its input is not known; see `estimate`."""
    if not 1 <= runs <= _MOST_RUNS:
        raise ConfigurationError(
            f"The number of runs is {runs}.",
            suggestion=f"Give one from 1 to {_MOST_RUNS}.",
        )
    notes = Notes()
    least = _need(component, task, limits, "least", Notes())
    usual = _need(component, task, limits, "usual", notes)
    most = _need(component, task, limits, "most", notes)
    recorded = [_need_of(trace, component) for trace in traces]
    recorded = [need for need in recorded if need is not None]
    found = Estimate(
        component.name,
        runs,
        at_least=_amounts(least, runs),
        usually=_amounts(_between(least, usual, most), runs),
        at_most=_amounts(most, runs),
        limits=notes.limits,
        portions=_portions(most),
        advice=[*_impossible(least, most), *_advice(most, notes)],
        unknown=list(notes.unknown),
        assumed=list(notes.assumed),
    )
    if not recorded:
        return found
    return replace(
        found,
        usually=_amounts(_quantile(recorded, 0.5), runs),
        nine_of_ten=_amounts(_quantile(recorded, 0.9), runs),
        recorded_runs=len(recorded),
    )


def _need(
    component: Component,
    task: Task | None,
    limits: RunLimits | None,
    bound: Bound,
    notes: Notes,
) -> Need:
    walk = Walk(bound, notes, component)
    if task is None:
        given = walk.unknown_input(component)
    else:
        given = Given.of(task)
    need = walk.run(component, given, [limits] if limits else ()).need
    # a run of more steps ends; each chat but the outermost one is a step, or in one
    chats = MAX_STEPS_PER_RUN + 1
    if bound == "most" and chats * need.chat_calls < need.calls:
        notes.limits["steps"] = MAX_STEPS_PER_RUN
        most_calls = RunLimits(model_calls=int(chats * need.chat_calls))
        need = need.within(most_calls)
    return need


def _between(least: Need, usual: Need, most: Need) -> Need:
    """Return what is assumed, moved between the bounds."""
    figures = {
        name: min(
            max(getattr(least, name), getattr(usual, name)),
            getattr(most, name),
        )
        for name in FIGURES
    }
    return replace(usual, **figures)


def _amounts(need: Need, runs: int) -> Amounts:
    total = need.times(runs)
    return Amounts(
        model_calls=_count(total.calls),
        input_tokens=_count(total.input_tokens),
        output_tokens=_count(total.output_tokens),
        tokens=_count(total.tokens),
        cost=_known(total.cost, _PICO),
        seconds=_known(total.seconds, 3),
    )


def _sum(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return None
    return round(one + other, _PICO)


def _count(number: float) -> int | None:
    """Return a number as it is shown; None if nobody knows it."""
    if not math.isfinite(number):
        return None
    return round(number)


def _known(amount: float, digits: int) -> float | None:
    """Return an amount as it is shown; None if nobody knows it."""
    if not math.isfinite(amount):
        return None
    return round(amount, digits)


# --- Recorded runs ----------------------------------------------------------------------------------------------------


def _need_of(trace: ExecutionResult, component: Component) -> Need | None:
    """Return what a recorded run needed; None if it did not succeed.

    Raises:
        TraceError: It is one of another component, or has no events.
    """
    if not trace.events:
        raise TraceError(
            "The trace has no events, so nobody knows which component ran.",
            suggestion="Record it with `podwright run --trace FILE`, or with trace=True.",
        )
    last = trace.events[-1]
    if trace.events[0].component != component.name:
        raise TraceError(
            f"The trace is one of '{trace.events[0].component}', not of '{component.name}'."
        )
    if not isinstance(last, RunFinished):
        return None
    usage = trace.usage
    cost = math.inf if usage.cost is None else usage.cost
    return Need(
        usage.model_calls,
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        cost,
        trace.duration_ms / 1000,
    )


def _quantile(needs: Sequence[Need], part: float) -> Need:
    """Return what a part of the runs needs at most, in each figure."""
    figures: JsonObject = {
        name: _part_of([getattr(need, name) for need in needs], part)
        for name in FIGURES
    }
    return Need(**figures)


def _part_of(amounts: Sequence[float], part: float) -> float:
    if part == 0.5:
        return statistics.median_low(amounts)
    ordered = sorted(amounts)
    return ordered[math.ceil(part * len(ordered)) - 1]


# --- What dominates, and what helps -----------------------------------------------------------------------------------


def _portions(need: Need) -> list[Portion]:
    """Return the shares of a need, the dearest first."""
    shares = need.shares.items()
    by_cost = 0 < sum(share.cost for _, share in shares) < math.inf

    def weight(share: Share) -> float:
        return share.cost if by_cost else share.tokens

    whole = sum(weight(share) for _, share in shares)
    portions: list[Portion] = []
    for name, share in sorted(shares, key=lambda each: -weight(each[1])):
        part: float | None = None
        if 0 < whole < math.inf:
            part = round(weight(share) / whole, 4)
        portions.append(
            Portion(
                name,
                _count(share.calls),
                _count(share.tokens),
                _known(share.cost, _PICO),
                part,
                cause=_cause(share),
            )
        )
    return portions[:_SHOWN_SHARES]


def _cause(share: Share) -> str:
    return max(share.causes, key=lambda cause: share.causes[cause], default="")


def _impossible(least: Need, most: Need) -> Iterator[str]:
    """Say which limits let no run succeed."""
    figures = {"calls": "model calls", "tokens": "tokens", "cost": "USD"}
    for name, unit in figures.items():
        needed = getattr(least, name)
        allowed = getattr(most, name)
        if allowed < needed < math.inf:
            yield (
                f"No run succeeds within its limits: it needs at least {needed:.6g} {unit}, and {allowed:.6g} are "
                "allowed."
            )


def _advice(need: Need, notes: Notes) -> list[str]:
    """Return which limits would lower what runs need at most."""
    advice: list[str] = []
    portions = _portions(need)
    if portions:
        first = portions[0]
        name = first.component
        match first.cause:
            case cause if cause == RESULTS:
                advice.append(
                    f"Most of it is room for results of tools of '{name}': lower the max_result_tokens of its tools, "
                    "or its max_loops."
                )
            case cause if cause == ANSWERS:
                advice.append(
                    f"Most of it is room for answers of '{name}': lower its max_tokens, or how often it is called."
                )
            case _:
                advice.append(
                    f"Most of it is what '{name}' is given in each of its calls: lower how often it is called."
                )
    if not {"tokens", "cost"} & notes.limits.keys():
        advice.append(
            "A run ends where it reaches a limit of tokens or cost: 'limits' of a component, of a step or of the run."
        )
    return advice
