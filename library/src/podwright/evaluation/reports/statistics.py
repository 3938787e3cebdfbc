"""What rows say about rates, differences and ratios, and how sure that is: 95 % intervals.

The cases are the units, drawn from all inputs that could be asked; repetitions of a case are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance
from typing import Literal

Verdict = Literal["better", "worse", "undecided"]

_Z = NormalDist().inv_cdf(0.975)
_LEAST_CASES = 2


@dataclass(frozen=True, slots=True)
class Interval:
    """A value, and the interval that holds the true one in 95 of 100 evaluations."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Rate(Interval):
    """A share of runs that pass: 0 to 1."""

    runs: int
    cases: int


@dataclass(frozen=True, slots=True)
class Difference(Interval):
    """By how much a rate is higher than another one, over the same cases: -1 to 1."""

    cases: int

    @property
    def verdict(self) -> Verdict:
        """Whether the difference is more than chance."""
        if self.low > 0:
            return "better"
        if self.high < 0:
            return "worse"
        return "undecided"


@dataclass(frozen=True, slots=True)
class Ratio(Interval):
    """How many times another mean a mean is, over the same cases."""

    cases: int


def rate_of(passed: Sequence[Sequence[bool]]) -> Rate:
    """Return the rate of runs that pass, with Wilson's interval.

    It counts as many runs as the spread over the cases leaves: those of cases that always or never pass are one each.

    Args:
        passed: For each case, whether its runs pass; no case is without a run.
    """
    rates = [fmean(case) for case in passed]
    runs = sum(map(len, passed))
    count = len(rates)
    rate = fmean(rates)
    effective = float(min(runs, count))
    spread = variance(rates) / count if count > 1 else 0.0
    if spread > 0:
        effective = min(runs, max(count, rate * (1 - rate) / spread))
    return Rate(rate, *_wilson(rate, effective), runs=runs, cases=count)


def _wilson(rate: float, count: float) -> tuple[float, float]:
    scale = 1 + _Z * _Z / count
    centre = (rate + _Z * _Z / (2 * count)) / scale
    half = (
        _Z
        / scale
        * math.sqrt(rate * (1 - rate) / count + _Z * _Z / (4 * count * count))
    )
    return max(0.0, centre - half), min(1.0, centre + half)


def difference_of(
    before: Sequence[Sequence[bool]], after: Sequence[Sequence[bool]]
) -> Difference:
    """Return by how much more runs pass, with the interval of Bonett and Price for paired shares.

    A case that is won and one that is lost are added, which weigh less if each case is run several times; so the
    interval has a width even if all cases agree.

    Args:
        before: For each case, whether its runs pass with the baseline.
        after: The same for the same cases with the variant.
    """
    differences = [
        fmean(new) - fmean(old) for old, new in zip(before, after, strict=True)
    ]
    runs = sum(map(len, after)) + sum(map(len, before))
    weight = (runs / (2 * len(differences))) ** -0.5
    padded = [*differences, weight, -weight]
    mean = fmean(padded)
    half = _Z * math.sqrt(
        fmean([(each - mean) ** 2 for each in padded]) / len(padded)
    )
    return Difference(
        fmean(differences),
        max(-1.0, mean - half),
        min(1.0, mean + half),
        cases=len(differences),
    )


def ratio_of(before: Sequence[float], after: Sequence[float]) -> Ratio | None:
    """Return how many times the mean before a mean is, with an interval from the spread of the cases around the ratio.

    Args:
        before: The mean of each case with the baseline.
        after: The same for the same cases with the variant.

    Returns:
        The ratio; None if one mean is 0, or if there is one case alone, which says nothing of others.
    """
    count = len(before)
    if count < _LEAST_CASES or sum(before) <= 0 or sum(after) <= 0:
        return None
    ratio = sum(after) / sum(before)
    # the error of each case, as a share of the mean after
    errors = [
        (new - ratio * old) / fmean(after)
        for old, new in zip(before, after, strict=True)
    ]
    spread = sum(error * error for error in errors) / (count - 1) / count
    factor = math.exp(_student(count - 1) * math.sqrt(spread))
    return Ratio(ratio, ratio / factor, ratio * factor, cases=count)


def _student(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's distribution, by the expansion of Cornish and Fisher."""
    first = (_Z**3 + _Z) / (4 * degrees)
    second = (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * degrees**2)
    third = (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / (384 * degrees**3)
    return _Z + first + second + third


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which a share of the values is; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def cases_to_decide(
    found: Interval, threshold: float, cases: int
) -> int | None:
    """Return about how many further cases would move a threshold out of an interval, if the value stays as it is.

    Args:
        found: The value with its interval.
        threshold: What it is compared with.
        cases: The cases that it comes from.

    Returns:
        The number; None if the value is so close to the threshold that no number of cases would do.
    """
    half = found.high - found.value
    if threshold < found.value:
        half = found.value - found.low
    distance = abs(found.value - threshold)
    if distance < 0.005:
        return None
    # the width of an interval falls with the square root of the number of cases
    needed = cases * (half / distance) ** 2
    return max(1, math.ceil(needed - cases))


def detectable_loss(cases: int, repeat: int, rate: float) -> float:
    """Return which loss of a rate an evaluation of this size finds in four of five tries: 0 to 1.

    Args:
        cases: How many cases there are.
        repeat: How often each is run.
        rate: The rate of the baseline.
    """
    power = _Z + NormalDist().inv_cdf(0.8)
    # the worst spread of a difference of two rates near this one; cases are as unequal as 0.5 of it
    likely = min(0.95, max(0.5, rate))
    of_runs = 2 * likely * (1 - likely)
    spread = math.sqrt(of_runs * (0.5 + 0.5 / repeat) / cases)
    return min(1.0, power * spread)
