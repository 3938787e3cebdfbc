"""The dashboard and the alert rules, parsed: they query metrics and labels that services export."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import promql_parser as promql
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.observability.support import DASHBOARD, RULES, TARGETS
from tests.service.exported_metrics import counted, exported

SCRAPE_LABELS = {"namespace", "job", "instance"}
"""Labels that Prometheus adds, from its configuration or from Kubernetes."""
VARIABLES = {"$__rate_interval": "1m", "$__range": "1h"}
"""Durations that Grafana fills into queries."""

Labels = frozenset[str]

UP = {"up": frozenset(SCRAPE_LABELS)}
"""The series that Prometheus makes for each target."""
EXPORTED = {name: labels | SCRAPE_LABELS for name, labels in exported().items()}


class Query:
    """A parsed PromQL expression.

    Args:
        expression: The query; it may contain Grafana's variables.
        series: The existing series: labels by name.
    """

    def __init__(self, expression: str, series: dict[str, Labels]) -> None:
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        self.metrics: set[str] = set()
        self._series = series
        self.labels = self._labels_of(promql.parse(expression))
        """Labels of the results; None for a number."""

    def _labels_of(self, node: Any) -> Labels | None:
        match node:
            case promql.VectorSelector():
                assert node.name in self._series, f"unknown metric: {node.name}"
                used = {matcher.name for matcher in node.matchers.matchers}
                assert used <= self._series[node.name], (
                    f"unknown labels of {node.name}: {used - self._series[node.name]}"
                )
                self.metrics.add(node.name)
                return self._series[node.name]
            case promql.MatrixSelector():
                return self._labels_of(node.vector_selector)
            case (
                promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr()
            ):
                return self._labels_of(node.expr)
            case promql.AggregateExpr():
                return self._grouped(node)
            case promql.Call():
                return self._called(node)
            case promql.BinaryExpr():
                return self._joined(node)
            case promql.NumberLiteral() | promql.StringLiteral():
                return None
            case _:
                raise AssertionError(
                    f"unsupported expression: {type(node).__name__}"
                )

    def _grouped(self, node: promql.AggregateExpr) -> Labels:
        inner = self._labels_of(node.expr)
        assert inner is not None, f"aggregation of a number: {node}"
        if node.modifier is None:
            return frozenset()
        named = frozenset(node.modifier.labels)
        assert named <= inner, (
            f"unknown labels in by/without: {set(named - inner)}: {node}"
        )
        return (
            named
            if node.modifier.type == promql.AggModifierType.By
            else inner - named
        )

    def _called(self, node: promql.Call) -> Labels | None:
        (inner,) = {
            labels
            for labels in map(self._labels_of, node.args)
            if labels is not None
        }
        if node.func.name == "histogram_quantile":
            assert "le" in inner, f"histogram_quantile needs buckets: {node}"
            return inner - {"le"}
        if node.func.name in ("rate", "increase"):
            (counter,) = node.args
            assert re.search(
                r"_(total|bucket|count|sum)$", counter.vector_selector.name
            ), f"rate of a non-counter: {node}"
        return inner

    def _joined(self, node: promql.BinaryExpr) -> Labels | None:
        left = self._labels_of(node.lhs)
        right = self._labels_of(node.rhs)
        if left is None or right is None:
            return left if right is None else right
        if str(node.op) == "or":
            return left | right
        on = node.modifier.matching if node.modifier else None
        if on is not None:
            assert str(node.op) == "and", f"unsupported matching: {node}"
            assert set(on.labels) <= left & right, (
                f"unknown labels in on: {node}"
            )
            return left
        assert left == right, (
            f"operands with different labels: {set(left ^ right)}: {node}"
        )
        return left


def recorded() -> dict[str, Labels]:
    """The series that recording rules produce, with their labels."""
    found = {
        rule["record"]: Query(rule["expr"], EXPORTED).labels
        for rule in RULES
        if "record" in rule
    }
    return {
        name: labels for name, labels in found.items() if labels is not None
    }


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_panel_queries_exported_metrics(target: dict[str, Any]) -> None:
    """Each query uses exported metrics and labels; its legend uses labels of the results."""
    query = Query(target["expr"], EXPORTED)
    assert query.labels is not None
    assert (
        set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        <= query.labels
    )


def test_grafana_knows_every_key_of_the_dashboard() -> None:
    """Grafana's own types read the dashboard, and no key is unknown to them."""
    register_default_plugins()
    known = json.loads(
        JSONEncoder().encode(Dashboard.from_json(copy.deepcopy(DASHBOARD)))
    )
    # Grafana writes `definition` for its user interface; its types leave it out.
    assert [
        place
        for place in unknown(DASHBOARD, known)
        if "/definition: " not in place
    ] == []


def unknown(written: Any, known: Any, place: str = "") -> list[str]:
    """The values of `written` that `known` does not have, each with its place."""
    match written, known:
        case dict(), dict():
            return [
                entry
                for key in written
                for entry in unknown(
                    written[key], known.get(key), f"{place}/{key}"
                )
            ]
        case list(), list() if len(written) == len(known):
            return [
                entry
                for number, pair in enumerate(zip(written, known, strict=True))
                for entry in unknown(*pair, f"{place}/{number}")
            ]
        case _:
            return [] if written == known else [f"{place}: {written!r}"]


def test_every_metric_is_in_a_panel() -> None:
    """The dashboard shows each exported metric."""
    shown = {
        metric
        for target in TARGETS.values()
        for metric in Query(target["expr"], EXPORTED).metrics
    }
    assert {re.sub("_(bucket|count|sum)$", "", name) for name in EXPORTED} == {
        re.sub("_(bucket|count|sum)$", "", name) for name in shown
    }


def test_dashboard_variables_filter_every_panel() -> None:
    """Each variable takes its values from an existing label, and every query uses it."""
    names = set[str]()
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            definition = re.fullmatch(
                r"label_values\((.*), (\w+)\)", variable["definition"]
            )
            assert definition
            assert definition[2] in (
                Query(definition[1], EXPORTED).labels or ()
            )
            assert variable["query"]["query"] == variable["definition"]
            names.add(variable["name"])
    for title, target in TARGETS.items():
        metrics = Query(target["expr"], EXPORTED).metrics
        filtered = {
            name
            for name in names
            if all(name in EXPORTED[metric] for metric in metrics)
        }
        assert filtered == set(re.findall(r'=~"\$(\w+)"', target["expr"])), (
            title
        )


@pytest.mark.parametrize(
    "rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"]
)
def test_a_rule_queries_exported_metrics(rule: dict[str, Any]) -> None:
    """Each rule uses existing series, grouped by job, and by component if they have it; its texts use their labels."""
    query = Query(rule["expr"], {**EXPORTED, **UP, **recorded()})
    assert query.labels is not None
    assert query.labels >= (
        {"namespace", "job"}
        if "up" in query.metrics
        else {"namespace", "job", "component"}
    )
    texts = " ".join(rule.get("annotations", {}).values())
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= query.labels


PROMETHEUS_3_ACCEPT = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""The `Accept` header of Prometheus 3."""


def test_prometheus_3_reads_a_scrape() -> None:
    """Prometheus 3 gets a complete OpenMetrics document with that media type."""
    content, media_type = counted().render(PROMETHEUS_3_ACCEPT)
    assert media_type.startswith("application/openmetrics-text; version=1.0.0")
    families = {
        family.name: family
        for family in text_string_to_metric_families(content.decode())
    }
    sample, began = families["podwright_http_requests"].samples
    assert (sample.labels["route"], sample.value) == ("/run", 1)
    assert (began.name, began.labels) == (
        "podwright_http_requests_created",
        sample.labels,
    )
