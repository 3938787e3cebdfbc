"""Usage: exact sums, JSON, unknown prices."""

import dataclasses
import functools
import json

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from podwright import Usage

PICO = 10**12
amounts = st.integers(0, 1000 * PICO)
"""USD in units of 1e-12."""
counts = st.integers(0, 10**9)
calls = st.builds(
    Usage.as_call,
    st.builds(
        Usage,
        counts,
        counts,
        counts,
        counts,
        cost=st.none() | amounts.map(lambda amount: amount / PICO),
        cache_write_tokens=counts,
    ),
    st.sampled_from(["a/x", "b/y", "c/z"]),
)
"""The usage of one call to one of three models."""


def total(usages: list[Usage]) -> Usage:
    return functools.reduce(Usage.__add__, usages, Usage())


@given(calls, calls, calls)
def test_a_sum_does_not_depend_on_the_order(
    a: Usage, b: Usage, c: Usage
) -> None:
    """Adding usage is associative and commutative, for each model too."""
    assert (a + b) + c == a + (b + c) == (c + a) + b
    assert a + Usage() == Usage() + a == a


@settings(max_examples=60)
@given(st.lists(st.integers(0, 50 * PICO), max_size=20))
def test_a_sum_of_costs_is_exact(parts: list[int]) -> None:
    """Costs are added exactly, to 1e-12 USD."""
    assert (
        total([Usage(cost=part / PICO) for part in parts]).cost
        == sum(parts) / PICO
    )


@given(st.lists(calls, max_size=6))
def test_the_models_add_up_to_the_total(used: list[Usage]) -> None:
    """The entries by model add up; the total cost is unknown if and only if one of them is."""
    whole = total(used)
    apart = total(list(whole.by_model.values()))
    assert dataclasses.replace(whole, by_model={}) == apart
    assert (whole.model_calls, whole.unpriced_model_calls) == (
        len(used),
        sum(call.cost is None for call in used),
    )
    assert (whole.cost is None) == (whole.unpriced_model_calls > 0)
    assert whole.total_tokens == whole.input_tokens + whole.output_tokens


@given(st.lists(calls, max_size=6))
def test_usage_survives_json(used: list[Usage]) -> None:
    """Usage is the same after a round trip through JSON, which always has all counts and the cost."""
    usage = total([Usage(tool_calls=2), *used])
    data = usage.to_dict()
    assert (
        TypeAdapter(Usage).validate_python(
            json.loads(json.dumps(data, allow_nan=False))
        )
        == usage
    )
    names = {field.name for field in dataclasses.fields(Usage)}
    assert data.keys() == (names if used else names - {"by_model"})
