"""Checks: what must be true of a run. They are the conditions of workflows, some further ones, and judges."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from podwright.conditions import Conditions, holds
from podwright.data.json_data import (
    JsonMapping,
    as_array,
    as_object,
    to_text,
    values_in,
)
from podwright.errors import ConditionError, PodwrightError
from podwright.evaluation.checks_form import label_of
from podwright.evaluation.reports.row import Verdict
from podwright.evaluation.runs.outcome import Outcome
from podwright.messages.templates import fill_data
from podwright.schemas.validator import SchemaValidator

Ask = Callable[[JsonMapping, JsonMapping], Awaitable[Verdict]]
"""Asks the judge of a check: given the check and what its templates may read."""


def _matches(context: JsonMapping, value: Any, pattern: str) -> bool:
    text = to_text(_filled(value, context, "matches"))
    return re.search(pattern, text) is not None


def _close_to(context: JsonMapping, value: Any, to: Any, within: Any) -> bool:
    numbers = [
        _number(_filled(each, context, "close_to"))
        for each in (value, to, within)
    ]
    return abs(numbers[0] - numbers[1]) <= numbers[2]


def _fits(context: JsonMapping, value: Any, schema: JsonMapping) -> bool:
    problem = SchemaValidator(schema).problem(_filled(value, context, "fits"))
    if problem is not None:
        raise ConditionError(str(problem))
    return True


FURTHER: Mapping[str, Callable[..., bool]] = {
    "matches": _matches,
    "close_to": _close_to,
    "fits": _fits,
}
"""The conditions that checks have besides those of workflows."""


def _filled(value: Any, context: JsonMapping, name: str) -> Any:
    return fill_data({"value": value}, context, f"Condition '{name}'")["value"]


def _number(value: Any) -> Decimal:
    try:
        return Decimal(to_text(value).strip())
    except ArithmeticError as error:
        raise ConditionError(
            f"A check compares numbers, but got {to_text(value)[:60]!r}."
        ) from error


async def verdict_on(
    check: JsonMapping,
    outcome: Outcome,
    inputs: Any,
    conditions: Conditions,
    ask: Ask,
) -> Verdict:
    """Return the verdict of a check on a run.

    Args:
        check: The check, which a suite has found to be right.
        outcome: What the run has come to.
        inputs: The inputs of the case.
        conditions: The suite's own conditions.
        ask: Asks the judge of the check.

    Raises:
        JudgeError: The judge gave no verdict.
    """
    readable = outcome.readable(inputs)
    label = label_of(check)
    try:
        if "judge" in check or "prefer" in check:
            return await ask(check, readable)
        if "called" in check:
            called = {"called": check["called"]}
            filled = fill_data(called, readable, f"Check '{label}'")
            reason = _calls_problem({**check, **filled}, outcome)
            return Verdict(label, not reason, reason)
        passed = await holds(
            check, readable, {**FURTHER, **conditions}, values=readable
        )
    except PodwrightError as error:
        # such as a template that reads what this run has not come to
        return Verdict(label, passed=False, reason=error.message)
    return Verdict(label, passed)


@dataclass(frozen=True, slots=True)
class _Call:
    tool: str
    arguments: Mapping[str, Any] | None
    """The arguments that are compared; None compares none."""

    def is_like(self, call: _Call) -> bool:
        if self.tool != call.tool:
            return False
        given = as_object(call.arguments)
        return all(
            name in given and given[name] == value
            for name, value in (self.arguments or {}).items()
        )

    def __str__(self) -> str:
        if self.arguments is None:
            return self.tool
        return f"{self.tool}({to_text(dict(self.arguments))})"


def _calls_problem(check: JsonMapping, outcome: Outcome) -> str:
    """Return what is wrong with the calls of a run; empty if nothing is."""
    wanted = [_wanted_call(entry) for entry in as_array(check["called"])]
    made = [_Call(call.tool, call.arguments) for call in outcome.tool_calls]
    order = check.get("order", "any")
    allows_others = check.get("others", "allowed") == "allowed"
    if order == "exact":
        allows_others = False
    missing, others = _unmatched(wanted, made, in_order=order != "any")
    if missing:
        return f"not called: {_listed(missing)}; called: {_listed(made)}"
    if others and not allows_others:
        return f"also called: {_listed(others)}"
    return ""


def _wanted_call(entry: Any) -> _Call:
    if isinstance(entry, str):
        return _Call(entry, None)
    wanted = as_object(entry)
    return _Call(wanted["tool"], wanted.get("arguments"))


def _unmatched(
    wanted: Sequence[_Call], made: Sequence[_Call], *, in_order: bool
) -> tuple[list[_Call], list[_Call]]:
    """Return the calls that are missing, and those that nobody wanted.

    The calls with most arguments choose first where the order does not matter, so that a name alone leaves them theirs.
    """
    left = list(made)
    others: list[_Call] = []
    missing: list[_Call] = []
    if not in_order:
        wanted = sorted(wanted, key=lambda call: -len(call.arguments or {}))
    for call in wanted:
        found = next(
            (index for index, each in enumerate(left) if call.is_like(each)),
            None,
        )
        if found is None:
            missing.append(call)
        elif in_order:
            others += left[:found]
            left = left[found + 1 :]
        else:
            del left[found]
    return missing, [*others, *left]


def _listed(calls: Sequence[_Call]) -> str:
    return ", ".join(map(str, calls)) or "nothing"


def wants_end(check: JsonMapping) -> bool:
    """Whether a check is about how the run ends, so that a failure is not wrong by itself."""
    texts = [value for value in values_in(check) if isinstance(value, str)]
    return any("{status" in text or "{error" in text for text in texts)


def end_verdict(
    outcome: Outcome, expect_error: str, checks: Sequence[JsonMapping]
) -> Verdict | None:
    """Return the verdict on how a run has ended; None if its checks say it.

    Args:
        outcome: What the run has come to.
        expect_error: The code of the error that it has to end with.
        checks: Its checks.
    """
    if expect_error:
        reason = (
            outcome.error_code or f"it ended with the status {outcome.status}"
        )
        passed = outcome.error_code == expect_error
        return Verdict(
            f"fails with {expect_error}", passed, "" if passed else reason
        )
    if outcome.status != "failed" or any(map(wants_end, checks)):
        return None
    return Verdict(
        "ends well",
        passed=False,
        reason=f"{outcome.error_code}: {outcome.error}",
    )
