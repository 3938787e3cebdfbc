"""The headers between containers: usage and limits as structured fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright import RunLimits, Usage
from podwright.messages.headers import format_budget, format_usage, parse_budget

amounts = st.none() | st.integers(0, 10**15).map(lambda amount: amount / 10**12)
counts = st.none() | st.integers(0, 10**15 - 1)
seconds = st.none() | st.integers(0, 10**9).map(lambda number: number / 1000)


@given(st.builds(RunLimits, seconds, counts, counts, amounts))
def test_limits_survive_the_header(limits: RunLimits) -> None:
    """Limits are the same after a round trip, to a millisecond and 1e-12 USD."""
    header = format_budget(limits)
    assert (parse_budget(header) if header else RunLimits()) == limits


def test_limits_are_written_as_a_dictionary_of_structured_fields() -> None:
    """The header has the limits that are set; times are rounded down, and very large numbers limited."""
    assert (
        format_budget(RunLimits(12.5, 3, 1000, 0.5))
        == 'wall_time=12.5, model_calls=3, tokens=1000, cost="0.5"'
    )
    assert (
        format_budget(RunLimits(wall_time=0.0019, cost=0))
        == 'wall_time=0.001, cost="0"'
    )
    assert format_budget(RunLimits()) == ""
    huge = parse_budget(
        format_budget(RunLimits(wall_time=1e300, tokens=10**30))
    )
    assert (huge.wall_time, huge.tokens) == (10**12 - 1, 10**15 - 1)


@pytest.mark.parametrize(
    ("header", "limits"),
    [
        ("", RunLimits()),
        ("tokens=5", RunLimits(tokens=5)),
        ('color="red", tokens=5;unit=x', RunLimits(tokens=5)),
        ('cost="0.000000000001"', RunLimits(cost=1e-12)),
    ],
)
def test_unknown_members_and_parameters_are_ignored(
    header: str, limits: RunLimits
) -> None:
    """Members that a later release may add do not make the header invalid."""
    assert parse_budget(header) == limits


@pytest.mark.parametrize(
    "header",
    [
        "tokens", "tokens=", "tokens=-1", "tokens=1.5", 'tokens="5"', "tokens=?1", "model_calls=(1 2)", "cost=0.5",
        'cost="much"', 'cost="-1"', 'cost="1e3"', 'cost=""', 'cost="٣"', "wall_time=soon", "wall_time=-0.5",
        "tokens=5,", "Tokens=5", "tokens=5 cost", "é=1", "tokens=9999999999999999",
    ],
)  # fmt: skip
def test_a_malformed_budget_is_refused(header: str) -> None:
    """A header that is not a dictionary of structured fields, or has a wrong type, is a ValueError."""
    with pytest.raises(ValueError, match=r".+"):
        parse_budget(header)


def test_usage_is_written_with_its_cost_if_it_is_known() -> None:
    """The header has the tokens, and the cost to 1e-12 USD unless it is unknown."""
    assert (
        format_usage(Usage(24, 8, cost=0.0000084))
        == 'input_tokens=24, output_tokens=8, cost="0.0000084"'
    )
    assert (
        format_usage(Usage(24, 8, cost=0.0))
        == 'input_tokens=24, output_tokens=8, cost="0"'
    )
    assert (
        format_usage(Usage(24, 8, cost=None))
        == "input_tokens=24, output_tokens=8"
    )
