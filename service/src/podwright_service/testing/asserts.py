"""Assertions on the usage and the spans of a run; each failure reports the actual values."""

from __future__ import annotations

from typing import Any

from podwright.messages.usage import RunLimits as RunLimits
from podwright.messages.usage import Usage as Usage
from podwright.run.result import ExecutionResult
from podwright_service.testing.metrics import Metrics
from podwright_service.testing.spans import Span, SpanCollector

_TOLERANCE = 1e-9
"""USD by which sums of floating-point numbers may differ."""


def assert_usage(result: ExecutionResult | Usage, **expected: Any) -> None:
    """Assert the usage of a run: `assert_usage(result, model_calls=2, cost=0.00125)`.

    Args:
        result: A traced result, or a usage.
        **expected: Fields of `Usage`; `cost` in USD, or None for an unknown price.

    Raises:
        AssertionError: With every field that differs.
    """
    usage = _usage(result)
    problems: list[str] = []
    for name, value in expected.items():
        actual = getattr(usage, name)
        if not _equal(actual, value):
            problems.append(f"{name} is {actual!r}, not {value!r}")
    _fail_if("The usage differs", problems)


def assert_within(result: ExecutionResult, limits: RunLimits) -> None:
    """Assert that a run stayed within limits that were not set for it: `assert_within(result, RunLimits(cost=0.01))`.

    Raises:
        AssertionError: With every limit that it exceeded, or whose value is unknown because a call has no price.
    """
    usage = result.usage
    actual = {
        "wall_time": result.duration_ms / 1000,
        "model_calls": usage.model_calls,
        "tokens": usage.total_tokens,
        "cost": usage.cost,
    }
    problems: list[str] = []
    for name, value in actual.items():
        limit = getattr(limits, name)
        if limit is not None and value is None:
            problems.append(
                f"{name} is unknown, because {usage.unpriced_model_calls} model calls have no known price"
            )
        elif limit is not None and value > limit:
            problems.append(f"{name} is {value:g}, more than {limit:g}")
    _fail_if("The run exceeded its limits", problems)


def assert_counted(
    result: ExecutionResult | Usage,
    after: Metrics,
    before: Metrics | None = None,
) -> None:
    """Assert that the counters increased by exactly the usage of these runs: tokens, model calls, tool calls and cost.

    Not for components with remotes, which count their work in their own `/metrics`.

    Args:
        result: A traced result, or the sum of the usages of several.
        after: The metrics after the runs.
        before: The metrics before them; by default those of a service without runs.

    Raises:
        AssertionError: With every counter that differs.
    """
    usage = _usage(result)
    expected: list[tuple[str, dict[str, str], float | None]] = [
        ("podwright_tokens_total", {"type": "input"}, usage.input_tokens),
        ("podwright_tokens_total", {"type": "output"}, usage.output_tokens),
        ("podwright_model_calls_total", {"status": "ok"}, usage.model_calls),
        ("podwright_tool_calls_total", {}, usage.tool_calls),
        (
            "podwright_unpriced_model_calls_total",
            {},
            usage.unpriced_model_calls,
        ),
        ("podwright_cost_usd_total", {}, usage.cost),
    ]
    problems: list[str] = []
    for name, labels, value in expected:
        increase = after.get(name, **labels)
        if before is not None:
            increase -= before.get(name, **labels)
        if value is not None and not _equal(increase, value):
            problems.append(
                f"{name}{labels or ''} increased by {increase:g}, not {value:g}"
            )
    _fail_if("The metrics differ from the usage", problems)


def assert_spans(
    collector: SpanCollector, *paths: str, within: float = 30, **attributes: Any
) -> list[Span]:
    """Assert that nested spans arrive: `assert_spans(collector, "POST /run > invoke_agent calculator")`.

    Args:
        collector: The collector; this waits for the spans.
        *paths: Names of spans, outermost first, separated by " > "; other spans may be between them.
        within: Seconds to wait.
        **attributes: Attributes of the last span of each path, with `__` for the dots in their names.

    Returns:
        The last span of each path.

    Raises:
        AssertionError: A path is missing; with all received spans.
    """
    expected = {
        name.replace("__", "."): value for name, value in attributes.items()
    }

    def find(path: str) -> Span | None:
        for span in collector.spans:
            if not _has_attributes(span, expected):
                continue
            if _ends_path(collector.path(span), path):
                return span
        return None

    def have_arrived(_: object) -> bool:
        return all(find(path) for path in paths)

    try:
        collector.wait(have_arrived, within)
    except AssertionError as error:
        missing = next(path for path in paths if not find(path))
        raise AssertionError(
            f"No spans '{missing}' {expected or ''}. {error}"
        ) from None
    found = [find(path) for path in paths]
    return [span for span in found if span is not None]


def _has_attributes(span: Span, expected: dict[str, Any]) -> bool:
    return all(span.attributes.get(name) == expected[name] for name in expected)


def _ends_path(spans: list[Span], path: str) -> bool:
    """Whether nested spans, outermost first, have the names of a path in its order, and end with its last one."""
    names = path.split(" > ")
    if spans[-1].name != names[-1]:
        return False
    remaining = iter([span.name for span in spans])
    return all(name in remaining for name in names)


def _usage(result: ExecutionResult | Usage) -> Usage:
    if isinstance(result, ExecutionResult):
        return result.usage
    return result


def _equal(actual: Any, expected: Any) -> bool:
    if isinstance(actual, float) and isinstance(expected, int | float):
        return abs(actual - expected) < _TOLERANCE
    return actual == expected


def _fail_if(summary: str, problems: list[str]) -> None:
    if problems:
        raise AssertionError(f"{summary}: {'; '.join(problems)}.")
