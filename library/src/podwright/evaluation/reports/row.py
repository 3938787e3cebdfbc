"""A row: what one run of a case with a variant has shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal, Self

from podwright.data.json_data import JsonMapping, JsonObject

RowStatus = Literal["ok", "paused", "failed", "error", "budget"]
"""How a run ended: with a value; at a question that no decision answers; with an error of its own; because of a
provider or a judge, which says nothing about the component; not at all, because the evaluation's budget is used up."""

SCORED: frozenset[RowStatus] = frozenset({"ok", "paused", "failed"})
"""The rows that say something about the component."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a check of one run."""

    label: str
    passed: bool
    reason: str = ""
    """What a judge said, or why the check could not compare; empty if there is nothing to say."""
    judge: str = ""
    """The judge's name; empty for other checks."""
    is_tie: bool = False
    """Whether a judge who compared with the baseline preferred neither of the two."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run of a case with a variant, and the verdicts on it."""

    key: str
    """A digest of all that decides about the run: the component, its code, the case, the checks, the repetition."""
    variant: str
    case: str
    repeat: int
    """The number of the repetition, from 0."""
    status: RowStatus
    checks: Sequence[Verdict] = ()
    cost: float | None = None
    """USD that the run used, replayed answers included; None if a price is unknown."""
    tokens: int = 0
    """Input and output."""
    model_calls: int = 0
    seconds: float = 0.0
    """From start to end, without the time of judges."""
    is_timed: bool = True
    """Whether models gave all answers then, so that `seconds` says how long it takes."""
    paid: float = 0.0
    """USD that this run of the evaluation has paid, judges included; less than `cost` if answers were replayed."""
    paid_judges: float = 0.0
    """The part of `paid` that the judges cost."""
    live_calls: int = 0
    """Model calls that were made, judges included."""
    replayed_calls: int = 0
    """Model calls that recorded answers stood for, judges included."""
    unpriced_calls: int = 0
    """Those of the calls made that have no known price, so that `paid` is without them."""
    oldest_answer: float | None = None
    """When the oldest of the replayed answers was given, in seconds since 1970; None if none was replayed."""
    output: str = ""
    """The beginning of the answer as text."""
    error_code: str = ""
    """The code of the error that ended the run, or kept it from being judged; empty if none did."""
    error: str = ""
    """Its message."""
    trace: str = ""
    """The name of the trace's file in the folder of recorded runs; empty if it was not kept."""

    @property
    def is_scored(self) -> bool:
        """Whether it says something about the component."""
        return self.status in SCORED

    @property
    def passed(self) -> bool:
        """Whether it is scored and all checks hold."""
        return self.is_scored and all(check.passed for check in self.checks)

    def reasons(self) -> list[str]:
        """Say why it has not passed; empty if it has."""
        if not self.is_scored:
            return [self.error or self.error_code or self.status]
        return [
            f"{check.label}: {check.reason}" if check.reason else check.label
            for check in self.checks
            if not check.passed
        ]

    def to_dict(self) -> JsonObject:
        """The row as JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: JsonMapping) -> Self:
        """Read what `to_dict` wrote; keys of later versions are left out."""
        values = _known(cls, data)
        values["checks"] = [
            Verdict(**_known(Verdict, check)) for check in data["checks"]
        ]
        return cls(**values)


def _known(shape: type[Row | Verdict], data: JsonMapping) -> JsonObject:
    names = {field.name for field in fields(shape)}
    return {key: value for key, value in data.items() if key in names}
