"""Statistics of evaluations: intervals that hold the truth, and say so of what they cannot know."""

import math
import random
from collections.abc import Callable
from statistics import fmean

import pytest

from podwright.evaluation.reports.statistics import (
    Difference,
    Interval,
    cases_to_decide,
    detectable_loss,
    difference_of,
    percentile,
    rate_of,
    ratio_of,
)

SIZES = [(cases, repeat) for cases in (12, 30, 100) for repeat in (1, 2, 3)]
"""Cases and repetitions."""
Runs = list[list[bool]]


def evaluations(cases: int) -> int:
    """How many evaluations are simulated; large ones take longer."""
    return 600 if cases < 100 else 300


def runs_of(chance: random.Random, rates: list[float], repeat: int) -> Runs:
    return [[chance.random() < rate for _ in range(repeat)] for rate in rates]


def share(count: int, found: Callable[[], bool]) -> float:
    return sum(found() for _ in range(count)) / count


def holds(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


# --- Rates


@pytest.mark.parametrize(("cases", "repeat"), SIZES)
def test_the_interval_of_a_rate_holds_it_in_95_of_100_evaluations(
    cases: int, repeat: int
) -> None:
    """Over cases that are equally difficult, and over such of which some nearly always pass, and some nearly never."""
    chance = random.Random(5)
    coverages: list[float] = []
    for mean, alike in ((0.9, 0.0), (0.9, 2.0), (0.6, 2.0), (0.97, 5.0)):

        def held(mean: float = mean, alike: float = alike) -> bool:
            rates = [mean] * cases
            if alike:
                rates = [
                    chance.betavariate(mean * alike, (1 - mean) * alike)
                    for _ in range(cases)
                ]
            return holds(rate_of(runs_of(chance, rates, repeat)), mean)

        coverages.append(share(evaluations(cases), held))
    assert fmean(coverages) >= 0.93
    # 1.5 points are the chance of as few simulations
    assert min(coverages) >= 0.915


@pytest.mark.parametrize("passed", [True, False])
@pytest.mark.parametrize(("cases", "repeat"), [(1, 1), (1, 3), (12, 3)])
def test_a_rate_is_not_certain_if_all_runs_agree(
    cases: int, repeat: int, passed: bool
) -> None:
    rate = rate_of([[passed] * repeat] * cases)
    assert rate.value == passed
    assert rate.high - rate.low > 0.1
    assert holds(rate, rate.value)
    assert (rate.runs, rate.cases) == (cases * repeat, cases)


def test_repetitions_that_agree_say_nothing_new() -> None:
    once = rate_of([[case % 3 > 0] for case in range(30)])
    thrice = rate_of([[case % 3 > 0] * 3 for case in range(30)])
    assert (thrice.low, thrice.high) == pytest.approx((once.low, once.high))


def test_repetitions_of_equally_difficult_cases_make_a_rate_surer() -> None:
    chance = random.Random(1)
    once = rate_of(runs_of(chance, [0.7] * 30, 1))
    thrice = rate_of(runs_of(chance, [0.7] * 30, 3))
    assert thrice.high - thrice.low < 0.75 * (once.high - once.low)


def test_a_case_with_missing_runs_weighs_as_much_as_the_others() -> None:
    assert rate_of([[True], [False, False, False]]).value == 0.5


# --- Differences


def compare(
    chance: random.Random,
    cases: int,
    repeat: int,
    *,
    before: float,
    after: float,
) -> Difference:
    """Simulate an evaluation of two variants over cases of unequal difficulty."""
    spread = 0.1
    extra = [spread * (chance.random() - 0.5) for _ in range(cases)]
    old = runs_of(chance, [before + each for each in extra], repeat)
    new = runs_of(chance, [after + each for each in extra], repeat)
    return difference_of(old, new)


@pytest.mark.parametrize(("cases", "repeat"), SIZES)
def test_the_interval_of_a_difference_holds_it_in_95_of_100_evaluations(
    cases: int, repeat: int
) -> None:
    chance = random.Random(7)
    coverages: list[float] = []
    for before, after in ((0.85, 0.85), (0.5, 0.5), (0.9, 0.8), (0.95, 0.6)):

        def held(before: float = before, after: float = after) -> bool:
            found = compare(chance, cases, repeat, before=before, after=after)
            return holds(found, after - before)

        coverages.append(share(evaluations(cases), held))
    assert fmean(coverages) >= 0.93
    assert min(coverages) >= 0.915


@pytest.mark.parametrize(("cases", "repeat"), SIZES)
def test_variants_that_are_equal_are_rarely_called_worse(
    cases: int, repeat: int
) -> None:
    chance = random.Random(3)
    for rate in (0.5, 0.85, 0.95):

        def is_worse(rate: float = rate) -> bool:
            found = compare(chance, cases, repeat, before=rate, after=rate)
            return found.verdict == "worse"

        assert share(evaluations(cases), is_worse) <= 0.04


def test_a_loss_is_found() -> None:
    chance = random.Random(4)

    def is_worse() -> bool:
        found = compare(chance, 30, 3, before=0.95, after=0.7)
        return found.verdict == "worse"

    assert share(200, is_worse) > 0.9


@pytest.mark.parametrize("repeat", [1, 3])
@pytest.mark.parametrize("cases", [1, 12, 100])
def test_the_same_runs_make_no_difference(cases: int, repeat: int) -> None:
    runs = runs_of(random.Random(2), [0.7] * cases, repeat)
    found = difference_of(runs, runs)
    assert found.value == 0
    assert found.verdict == "undecided"
    assert found.low < 0 < found.high


def test_a_difference_is_not_certain_if_all_cases_agree() -> None:
    lost = difference_of([[True]] * 12, [[False]] * 12)
    assert lost.value == -1
    assert lost.high - lost.low > 0.1
    assert lost.verdict == "worse"
    assert difference_of([[False]] * 12, [[True]] * 12).verdict == "better"


# --- Ratios


@pytest.mark.parametrize("cases", [12, 30, 100])
@pytest.mark.parametrize("spread", [0.3, 0.8, 1.2])
def test_the_interval_of_a_ratio_of_costs_holds_it(
    cases: int, spread: float
) -> None:
    """With few dear cases among many cheap ones, too."""
    chance = random.Random(8)

    def held(noise: float) -> bool:
        old = [math.exp(chance.gauss(0, spread)) for _ in range(cases)]
        new = [
            1.5 * cost * math.exp(chance.gauss(-(noise**2) / 2, noise))
            for cost in old
        ]
        ratio = ratio_of(old, new)
        return ratio is not None and holds(ratio, 1.5)

    coverages = [share(400, lambda n=noise: held(n)) for noise in (0.1, 0.5)]
    assert min(coverages) >= 0.92


def test_equal_costs_have_the_ratio_one() -> None:
    ratio = ratio_of([0.1, 0.2, 0.7], [0.1, 0.2, 0.7])
    assert ratio is not None
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1, 1, 1))


def test_what_is_free_now_costs_nothing_of_what_it_did() -> None:
    ratio = ratio_of([0.1, 0.2], [0.0, 0.0])
    assert ratio is not None
    assert (ratio.value, ratio.high) == (0, 0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([0.0, 0.0], [0.1, 0.2]),
        ([0.1], [0.2]),
        ([0.1, 0.0, 0.0], [0.2, 0.0, 0.0]),
        ([1e-30, 1.0], [1.0, 1.0]),
    ],
    ids=["free before", "one case", "one dear case", "nearly one case"],
)
def test_a_ratio_of_which_nothing_can_be_said_is_none(
    before: list[float], after: list[float]
) -> None:
    assert ratio_of(before, after) is None


def test_two_cases_say_next_to_nothing_of_a_ratio() -> None:
    ratio = ratio_of([1.0, 1.0], [1.0, 2.0])
    assert ratio is not None
    assert ratio.low < 0.1
    assert 10 < ratio.high < math.inf


# --- Percentiles, and the size of evaluations


def test_percentiles_are_values_of_runs() -> None:
    seconds = [float(number) for number in range(1, 101)]
    random.Random(0).shuffle(seconds)
    assert percentile(seconds, 0.5) == 50
    assert percentile(seconds, 0.95) == 95
    assert percentile([3.0], 0.95) == 3
    assert percentile([], 0.5) is None


def test_so_many_further_cases_decide() -> None:
    """With them, and the same share of runs that pass, the threshold is at the border of the interval."""
    rate = rate_of([[case % 7 > 0] for case in range(56)])
    assert rate.low < 0.9 < rate.high
    further = cases_to_decide(rate, 0.9, 56)
    assert further is not None
    fewer = 56 + further // 2
    more = 56 + 2 * further
    assert rate_of([[case % 7 > 0] for case in range(fewer)]).high > 0.9
    assert rate_of([[case % 7 > 0] for case in range(more)]).high < 0.9


def test_no_number_of_cases_decides_what_is_at_the_threshold() -> None:
    rate = rate_of([[case % 10 > 0] for case in range(60)])
    assert cases_to_decide(rate, 0.9, 60) is None


@pytest.mark.parametrize(
    ("cases", "repeat"), [(12, 1), (12, 3), (30, 1), (30, 3), (100, 1)]
)
@pytest.mark.parametrize("rate", [0.6, 0.85, 0.95])
def test_the_loss_that_is_promised_is_found_in_about_four_of_five_tries(
    cases: int, repeat: int, rate: float
) -> None:
    """Also if the variants differ in which cases they lose."""
    chance = random.Random(6)
    loss = detectable_loss(cases, repeat, rate)

    def is_found() -> bool:
        extra = [0.1 * (chance.random() - 0.5) for _ in range(cases)]
        olds = [rate + each for each in extra]
        news = [rate - loss + each for each in extra]
        news = [chance.betavariate(p, 1 - p) if 0 < p < 1 else p for p in news]
        found = difference_of(
            runs_of(chance, olds, repeat), runs_of(chance, news, repeat)
        )
        return found.verdict == "worse"

    assert share(150, is_found) >= 0.7


def test_more_cases_and_repetitions_find_smaller_losses() -> None:
    losses = [
        detectable_loss(cases, repeat, 0.9)
        for cases, repeat in ((3, 1), (12, 1), (30, 1), (30, 3), (100, 3))
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] == 1
    assert 0.05 < losses[-1] < 0.15
