"""Dashboard and rules, parsed: what they ask is what the services export, with labels that there are at each place."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from podwright_service.observability.metrics import Metrics

FOLDER = Path(__file__).parents[2] / "deploy" / "observability"
OF_THE_SCRAPE = {"namespace", "job", "instance"}
"""Labels that Prometheus adds: those of its configuration, or of Kubernetes."""
SUFFIXES = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}
VARIABLES = {"$__rate_interval": "1m", "$__range": "1h"}
"""Times that Grafana puts into queries."""

Labels = frozenset[str]


def exported() -> dict[str, Labels]:
    """Each series that a service has, with its labels."""
    collectors = Metrics("x", "agent", ["x"], [], [], []).registry._collector_to_names
    return {
        f"{one._name}{suffix}": frozenset(one._labelnames) | OF_THE_SCRAPE | ({"le"} if suffix == "_bucket" else set())
        for one in collectors
        if isinstance(one, MetricWrapperBase)
        for suffix in SUFFIXES[str(one._type)]
    }


EXPORTED = exported()
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
TARGETS: dict[str, dict[str, Any]] = {
    f"{panel['id']}{target['refId']} {panel['title']}": target
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
}


class Query:
    """An expression, read as Prometheus reads it.

    Args:
        expression: In Grafana's or Prometheus' words.
        series: Labels by name, of the series that there are.
    """

    def __init__(self, expression: str, series: dict[str, Labels]) -> None:
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        self.metrics: set[str] = set()
        self._series = series
        self.labels = self._of(promql.parse(expression))
        """Those of its results; none of a number."""

    def _of(self, node: Any) -> Labels | None:
        match node:
            case promql.VectorSelector():
                assert node.name in self._series, f"no service exports {node.name}"
                asked = {matcher.name for matcher in node.matchers.matchers}
                assert asked <= self._series[node.name], f"{node.name} has no {asked - self._series[node.name]}"
                self.metrics.add(node.name)
                return self._series[node.name]
            case promql.MatrixSelector():
                return self._of(node.vector_selector)
            case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
                return self._of(node.expr)
            case promql.AggregateExpr():
                return self._grouped(node)
            case promql.Call():
                return self._called(node)
            case promql.BinaryExpr():
                return self._joined(node)
            case promql.NumberLiteral() | promql.StringLiteral():
                return None
            case _:
                raise AssertionError(f"not known here: {type(node).__name__}")

    def _grouped(self, node: promql.AggregateExpr) -> Labels:
        inner = self._of(node.expr)
        assert inner is not None, f"a number has no groups: {node}"
        if node.modifier is None:
            return frozenset()
        named = frozenset(node.modifier.labels)
        assert named <= inner, f"nothing here has {set(named - inner)}: {node}"
        return named if node.modifier.type == promql.AggModifierType.By else inner - named

    def _called(self, node: promql.Call) -> Labels | None:
        (inner,) = {labels for labels in map(self._of, node.args) if labels is not None}
        if node.func.name == "histogram_quantile":
            assert "le" in inner, f"quantiles are of buckets: {node}"
            return inner - {"le"}
        if node.func.name in ("rate", "increase"):
            (counter,) = node.args
            assert re.search(r"_(total|bucket|count|sum)$", counter.vector_selector.name), f"no counter: {node}"
        return inner

    def _joined(self, node: promql.BinaryExpr) -> Labels | None:
        left, right = self._of(node.lhs), self._of(node.rhs)
        if left is None or right is None:
            return left if right is None else right
        if str(node.op) == "or":
            return left | right
        on = node.modifier.matching if node.modifier else None
        assert on is None, f"not known here: {node}"
        assert left == right, f"the sides never match: {set(left ^ right)}: {node}"
        return left


def recorded() -> dict[str, Labels]:
    """What the rules record, with its labels."""
    found = {rule["record"]: Query(rule["expr"], EXPORTED).labels for rule in RULES if "record" in rule}
    return {name: labels for name, labels in found.items() if labels is not None}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_panel_asks_for_what_there_is(target: dict[str, Any]) -> None:
    """Each query names metrics and labels that a service exports; its legend shows labels that its results have."""
    query = Query(target["expr"], EXPORTED)
    assert query.labels is not None
    assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= query.labels


def test_grafana_reads_all_of_it() -> None:
    """Grafana's own types take the dashboard, and know every word of it."""
    register_default_plugins()
    known = json.loads(JSONEncoder().encode(Dashboard.from_json(copy.deepcopy(DASHBOARD))))
    # what Grafana shows of a variable's query: its types leave that out
    assert [one for one in unknown(DASHBOARD, known) if "/definition: " not in one] == []


def unknown(written: Any, known: Any, place: str = "") -> list[str]:
    """What is written and not known, by its place."""
    match written, known:
        case dict(), dict():
            return [one for key in written for one in unknown(written[key], known.get(key), f"{place}/{key}")]
        case list(), list() if len(written) == len(known):
            return [
                one
                for number, pair in enumerate(zip(written, known, strict=True))
                for one in unknown(*pair, f"{place}/{number}")
            ]
        case _:
            return [] if written == known else [f"{place}: {written!r}"]


def test_no_metric_is_left_out() -> None:
    """Each metric of a service is in a panel."""
    shown = {metric for target in TARGETS.values() for metric in Query(target["expr"], EXPORTED).metrics}
    assert {re.sub("_(bucket|count|sum)$", "", name) for name in EXPORTED} == {
        re.sub("_(bucket|count|sum)$", "", name) for name in shown
    }


def test_variables_are_labels() -> None:
    """Each of the dashboard's variables takes its values from a label that its metric has, and narrows every panel."""
    names = set[str]()
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
            assert asked
            assert asked[2] in (Query(asked[1], EXPORTED).labels or ())
            assert variable["query"]["query"] == variable["definition"]
            names.add(variable["name"])
    for title, target in TARGETS.items():
        assert names == set(re.findall(r'=~"\$(\w+)"', target["expr"])), title


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_asks_for_what_there_is(rule: dict[str, Any]) -> None:
    """Each rule names what is exported or recorded, by component; its text shows labels that the alert has."""
    query = Query(rule["expr"], {**EXPORTED, **recorded()})
    assert query.labels is not None
    assert query.labels >= {"namespace", "job", "component"}
    texts = " ".join(rule.get("annotations", {}).values())
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= query.labels


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("podwright_run_total", "no service exports"),
        ('podwright_runs_total{state="ok"}', "has no"),
        ("sum by (model) (podwright_runs_total)", "nothing here has"),
        ("rate(podwright_runs_waiting[5m])", "no counter"),
        ("histogram_quantile(0.9, sum by (job) (podwright_run_duration_seconds_bucket))", "of buckets"),
        ("sum by (job) (podwright_runs_total) / podwright_runs_total", "never match"),
    ],
)
def test_what_would_be_found(expression: str, fault: str) -> None:
    """A metric, a label, a group or a pair that there is not is told."""
    with pytest.raises(AssertionError, match=fault):
        Query(expression, EXPORTED)


ASKED = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""What Prometheus 3 asks for; Prometheus 2 knows no escaping."""


def test_prometheus_3_is_answered() -> None:
    """The page that Prometheus 3 asks for is OpenMetrics, whole, and says so."""
    metrics = Metrics("writer", "agent", ["writer"], [], [], ["/run"])
    metrics.request("POST", "/run", 200, 0.1)
    content, media_type = metrics.page(ASKED)
    assert media_type.startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in text_string_to_metric_families(content.decode())}
    (sample,) = [one for one in families["podwright_http_requests"].samples if one.name.endswith("_total")]
    assert (sample.labels["route"], sample.value) == ("/run", 1)
