"""Alert rules and dashboard: Prometheus accepts the rules, and the chart installs both for a release."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.helm.conftest import Helm, Manifest
from tests.helpers import tool
from tests.observability.support import ALERTS, DASHBOARD, FOLDER

Promtool = Callable[..., None]


@pytest.fixture
def promtool() -> Promtool:
    """Runs Prometheus' checker, which must succeed."""
    program = tool("promtool")

    def run(*arguments: str | Path) -> None:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, cwd=FOLDER
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def test_promtool_accepts_the_rules(promtool: Promtool) -> None:
    """Prometheus' checker has no finding, and each alert fires as its unit tests expect."""
    promtool("check", "rules", "--lint-fatal", "alerts.yaml")
    promtool("test", "rules", "alerts_test.yaml")


def test_every_alert_is_tested() -> None:
    """Each alert has a unit test in which it fires, and one in which it does not."""
    tests = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
    rules = [case for test in tests for case in test.get("alert_rule_test", ())]
    cases = {(case["alertname"], bool(case["exp_alerts"])) for case in rules}
    assert {
        (alert, fires) for alert in ALERTS for fires in (True, False)
    } <= cases


HEALTHY = 120
"""Minutes before an outage."""
SERIES: dict[str, Callable[[int], dict[str, str]]] = {
    "PodwrightDown": lambda minutes: {
        'podwright_component_info{job="a", instance="x"}': f"1x{HEALTHY}",
        'up{job="a", instance="x"}': f"1x{HEALTHY - 1} 0x{minutes - 1} 1x90",
    },
    "PodwrightModelFailing": lambda minutes: {
        'podwright_model_calls_total{job="a", model="m", status="ok"}': f"0+6x{HEALTHY} {6 * HEALTHY}x{minutes - 1} "
        f"{6 * HEALTHY + 6}+6x90",
        'podwright_model_calls_total{job="a", model="m", status="failed"}': f"0x{HEALTHY} 6+6x{minutes - 1} "
        f"{6 * minutes}x90",
    },
    "PodwrightFailingFast": lambda minutes: {
        'podwright_runs_total{job="a", status="ok"}': f"0+6x{HEALTHY} {6 * HEALTHY}x{minutes - 1} "
        f"{6 * HEALTHY + 6}+6x90",
        'podwright_runs_total{job="a", status="failed"}': f"0x{HEALTHY} 6+6x{minutes - 1} {6 * minutes}x90",
    },
}
"""The series of an outage of so many minutes after healthy ones, a sample a minute, by alert."""
OUTAGES: list[tuple[str, int, int | None, int | None]] = [
    ("PodwrightDown", 2, None, None),
    ("PodwrightDown", 5, 4, 5),
    ("PodwrightDown", 15, 4, 15),
    ("PodwrightDown", 60, 4, 60),
    ("PodwrightModelFailing", 2, None, None),
    ("PodwrightModelFailing", 5, 3, 7),
    ("PodwrightModelFailing", 15, 3, 19),
    ("PodwrightModelFailing", 60, 3, 64),
    ("PodwrightFailingFast", 2, None, None),
    ("PodwrightFailingFast", 5, None, None),
    ("PodwrightFailingFast", 15, 11, 19),
    ("PodwrightFailingFast", 60, 11, 64),
]
"""Alert, minutes of an outage, and the minutes from its start at which the alert fires and ends."""


@pytest.mark.parametrize(("alert", "minutes", "fires", "ends"), OUTAGES)
def test_an_alert_fires_and_ends_with_its_outage(
    promtool: Promtool,
    tmp_path: Path,
    alert: str,
    minutes: int,
    fires: int | None,
    ends: int | None,
) -> None:
    """It fires while an outage lasts that people have to know of, and ends within minutes of it."""
    firing = range(fires or 0, ends or 0)
    expected = [
        {
            "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)',
            "eval_time": f"{HEALTHY + minute}m",
            "exp_samples": [{"value": int(minute in firing)}],
        }
        for minute in range(-5, minutes + 60)
    ]
    series = [
        {"series": name, "values": values}
        for name, values in SERIES[alert](minutes).items()
    ]
    test = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": expected,
    }
    file = tmp_path / "outage.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(FOLDER / "alerts.yaml")],
                "evaluation_interval": "1m",
                "tests": [test],
            }
        )
    )
    promtool("test", "rules", file)


@pytest.fixture
def installed(helm: Helm) -> dict[str, Manifest]:
    """The objects of a release with rules and dashboard, by kind."""
    rules = {
        "enabled": True,
        "labels": {"release": "p"},
        "costPerHour": 2.5,
        "disabled": ["PodwrightWaiting"],
    }
    values = {
        "components": {"a": {}, "b": {}},
        "prometheusRule": rules,
        "dashboard": {"enabled": True},
    }
    values["defaults"] = {
        "settings": {"docs_url": "https://docs.example/podwright/"}
    }
    return {
        each["kind"]: each
        for each in helm(values)
        if each["kind"] in ("PrometheusRule", "ConfigMap")
    }


def test_the_installed_rules(
    installed: dict[str, Manifest], promtool: Promtool, tmp_path: Path
) -> None:
    """Every series is limited to the release's components; the cost is the values', and a disabled alert is absent."""
    manifest = installed["PrometheusRule"]
    assert manifest["metadata"]["labels"]["release"] == "p"
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(manifest["spec"]))
    promtool("check", "rules", file)
    rules = [
        rule for group in manifest["spec"]["groups"] for rule in group["rules"]
    ]
    assert {rule["alert"] for rule in rules if "alert" in rule} == ALERTS - {
        "PodwrightWaiting"
    }
    for rule in rules:
        series = re.findall(r"\bup\b|podwright[_:][a-z_:0-9]+", rule["expr"])
        assert rule["expr"].count(
            'namespace="prod",job=~"fleet-a|fleet-b"'
        ) == len(series)
    (cost,) = [
        rule["expr"]
        for rule in rules
        if rule.get("alert") == "PodwrightCostPerHour"
    ]
    assert cost.endswith("> 2.5")
    (down,) = [
        rule["expr"] for rule in rules if rule.get("alert") == "PodwrightDown"
    ]
    assert "podwright_component_info" not in down, (
        "a component that never started has none"
    )
    runbooks = [
        rule["annotations"]["runbook_url"] for rule in rules if "alert" in rule
    ]
    assert all(
        runbook.startswith("https://docs.example/podwright/operations.html#")
        for runbook in runbooks
    )


def test_the_installed_dashboard(installed: dict[str, Manifest]) -> None:
    """The dashboard is that of the file, with a title and an id of the release."""
    dashboard = json.loads(
        installed["ConfigMap"]["data"]["fleet-dashboard.json"]
    )
    assert dashboard["title"] == "Podwright prod/fleet"
    assert dashboard["uid"] != DASHBOARD["uid"]
    assert {**dashboard, "title": "", "uid": ""} == {
        **DASHBOARD,
        "title": "",
        "uid": "",
    }
    assert (
        installed["ConfigMap"]["metadata"]["labels"]["grafana_dashboard"] == "1"
    )
