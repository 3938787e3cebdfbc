"""Assertions on what a run used, and on its spans; each failure says what there was instead."""

from __future__ import annotations

from typing import Any

from podwright.result import ExecutionResult
from podwright.usage import RunLimits, Usage
from podwright_service.testing.metrics import Metrics
from podwright_service.testing.spans import Span, SpanCollector

_STEP = 1e-9
"""USD in which sums of money may differ that were added up elsewhere, in floating point."""


def assert_usage(of: ExecutionResult | Usage, **expected: Any) -> None:
    """Assert what a run used: `assert_usage(result, model_calls=2, cost=0.00125)`.

    Args:
        of: A traced result, or a usage.
        **expected: Fields of `Usage`; `cost` in USD, or None for an unknown price.

    Raises:
        AssertionError: Something differs; with all that does.
    """
    usage = _usage(of)
    found = {name: getattr(usage, name) for name in expected}
    wrong = [
        f"{name} is {found[name]!r}, not {value!r}" for name, value in expected.items() if not _same(found[name], value)
    ]
    if wrong:
        raise AssertionError(f"The usage differs: {'; '.join(wrong)}.")


def assert_within(of: ExecutionResult, limits: RunLimits) -> None:
    """Assert that a run kept within limits that it was not given: `assert_within(result, RunLimits(cost=0.01))`.

    Raises:
        AssertionError: It did not, or it cannot be told, for the price of a call is unknown.
    """
    usage = of.usage
    used = {
        "wall_time": of.duration_ms / 1000,
        "model_calls": usage.model_calls,
        "tokens": usage.total_tokens,
        "cost": usage.cost,
    }
    wrong: list[str] = []
    for name, value in used.items():
        most = getattr(limits, name)
        if most is not None and value is None:
            wrong.append(f"{name} is unknown, for {usage.unpriced_model_calls} model calls have no known price")
        elif most is not None and value > most:
            wrong.append(f"{name} is {value:g}, more than {most:g}")
    if wrong:
        raise AssertionError(f"The run went beyond its limits: {'; '.join(wrong)}.")


def assert_counted(of: ExecutionResult | Usage, after: Metrics, before: Metrics | None = None) -> None:
    """Assert that the counters grew by just what these runs used: tokens, model calls, tool calls and cost.

    It is for components without remotes: those count what they did at their own `/metrics`.

    Args:
        of: A traced result, or the sum of the usages of several.
        after: The metrics after the runs.
        before: The metrics before them; by default those of a service that has done nothing.

    Raises:
        AssertionError: Something differs; with all that does.
    """
    usage = _usage(of)
    expected: list[tuple[str, dict[str, str], float | None]] = [
        ("podwright_tokens_total", {"type": "input"}, usage.input_tokens),
        ("podwright_tokens_total", {"type": "output"}, usage.output_tokens),
        ("podwright_model_calls_total", {"status": "ok"}, usage.model_calls),
        ("podwright_tool_calls_total", {}, usage.tool_calls),
        ("podwright_unpriced_model_calls_total", {}, usage.unpriced_model_calls),
        ("podwright_cost_usd_total", {}, usage.cost),
    ]
    wrong: list[str] = []
    for name, labels, value in expected:
        grown = after.get(name, **labels) - (before.get(name, **labels) if before else 0)
        if value is not None and not _same(grown, value):
            wrong.append(f"{name}{labels or ''} grew by {grown:g}, not {value:g}")
    if wrong:
        raise AssertionError(f"What was counted is not what was used: {'; '.join(wrong)}.")


def assert_spans(collector: SpanCollector, *paths: str, within: float = 30, **attributes: Any) -> list[Span]:
    """Assert that spans came that are in each other: `assert_spans(collector, "POST /run > invoke_agent calculator")`.

    Args:
        collector: What takes them; it is waited for.
        *paths: Each the names of spans, outermost first, with " > " between; others may stand between them.
        within: Seconds to wait.
        **attributes: What the last span of each path has, with `__` for the dots of names.

    Returns:
        The last span of each path.

    Raises:
        AssertionError: One did not come; with all that did.
    """
    wanted = {name.replace("__", "."): value for name, value in attributes.items()}

    def found(path: str) -> Span | None:
        names = path.split(" > ")
        for span in collector.spans:
            outer = iter([one.name for one in collector.path(span)])
            has = all(span.attributes.get(name) == value for name, value in wanted.items())
            if span.name == names[-1] and has and all(name in outer for name in names):
                return span
        return None

    try:
        collector.wait(lambda _: all(found(path) for path in paths), within)
    except AssertionError as error:
        missing = next(path for path in paths if not found(path))
        raise AssertionError(f"There are no spans '{missing}' {wanted or ''}. {error}") from None
    return [span for path in paths if (span := found(path))]


def _usage(of: ExecutionResult | Usage) -> Usage:
    return of.usage if isinstance(of, ExecutionResult) else of


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(found, float) and isinstance(wanted, int | float):
        return abs(found - wanted) < _STEP
    return found == wanted
