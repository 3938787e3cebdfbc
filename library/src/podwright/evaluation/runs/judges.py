"""Judges: agents that say of an answer whether it is good, or which of two is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podwright.components import Component
from podwright.data.json_data import JsonMapping, JsonObject, as_object, to_text
from podwright.data.names import INPUT
from podwright.errors import OutputError, PodwrightError
from podwright.evaluation.checks_form import label_of
from podwright.evaluation.reports.row import Verdict
from podwright.messages.templates import fill_data
from podwright.run.component import TaskBody
from podwright.run.run import execute

GOOD = "good"
"""The property of a judge's answer that is its verdict."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a judge has said once."""

    good: bool
    reason: str = ""
    """The other properties of its answer that are texts."""
    cost: float | None = None
    """USD of its answer, also if it was recorded; None if the price is unknown."""


class JudgeError(Exception):
    """A judge has given no verdict, which says nothing about the component."""

    def __init__(self, name: str, error: PodwrightError) -> None:
        super().__init__(f"The judge '{name}' gave no verdict: {error.message}")
        self.code = error.code
        self.error = error


class Judges:
    """The judges of a suite.

    Args:
        judges: Their agents, by name.
    """

    def __init__(self, judges: Mapping[str, Component]) -> None:
        self._judges = judges

    async def verdict(
        self, check: JsonMapping, readable: JsonMapping, other: Any = None
    ) -> Verdict:
        """Return the verdict of a check's judge.

        Args:
            check: The check: `judge`, or `prefer`.
            readable: What the templates of its `input` may read.
            other: The answer that a judge who prefers compares with.

        Raises:
            JudgeError: It gave none.
        """
        if "prefer" in check:
            return await self._preference(check, readable, other)
        samples = int(check.get("samples", 1))
        opinions = [
            await self.opinion(
                check["judge"], _given(check, readable, readable["output"])
            )
            for _ in range(samples)
        ]
        in_favour = [each for each in opinions if each.good]
        passed = 2 * len(in_favour) > samples
        reasons = [each.reason for each in opinions if each.good == passed]
        return Verdict(label_of(check), passed, reasons[0], check["judge"])

    async def _preference(
        self, check: JsonMapping, readable: JsonMapping, other: Any
    ) -> Verdict:
        """Ask in both orders: who prefers the first of two whatever it is has no preference."""
        name = check["prefer"]
        own = readable["output"]
        first = await self.opinion(
            name, _given(check, readable, own) | {"other": to_text(other)}
        )
        second = await self.opinion(
            name, _given(check, readable, other) | {"other": to_text(own)}
        )
        if first.good == second.good:
            reason = "a tie: the verdict changes with the order"
            return Verdict(
                label_of(check),
                passed=True,
                reason=reason,
                judge=name,
                is_tie=True,
            )
        return Verdict(label_of(check), first.good, first.reason, name)

    async def opinion(self, name: str, given: JsonMapping) -> Opinion:
        """Ask a judge once.

        Args:
            name: The judge.
            given: Its inputs; those that it does not declare are left out, if it declares any.

        Raises:
            JudgeError: It gave no verdict.
        """
        judge = self._judges[name]
        inputs = dict(given)
        if judge.inputs:
            # a judge with one input is given the answer
            whole = {INPUT: given["output"], **given}
            inputs = dict(judge.inputs.select(whole))
        try:
            result = await execute(judge, judge.task_from(TaskBody(inputs)))
        except PodwrightError as error:
            raise JudgeError(name, error) from error
        answer = as_object(result.data)
        if not isinstance(answer.get(GOOD), bool):
            wrong = OutputError(f"Its answer has no '{GOOD}': true or false.")
            raise JudgeError(name, wrong)
        texts = [
            text
            for key, text in answer.items()
            if key != GOOD and isinstance(text, str) and text
        ]
        return Opinion(answer[GOOD], " ".join(texts), result.usage.cost)


def _given(
    check: JsonMapping, readable: JsonMapping, output: Any
) -> JsonObject:
    """Return the inputs of a judge."""
    further = fill_data(
        dict(as_object(check.get("input"))),
        readable,
        f"Check '{label_of(check)}'",
    )
    return {
        "output": to_text(output),
        "inputs": to_text(readable["inputs"]),
        **further,
    }
