"""Alerts and dashboard: what Prometheus says of them, and what the chart makes of them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import ROOT, Helm, Manifest, tool

FOLDER = ROOT / "deploy" / "observability"


def rules() -> list[Manifest]:
    return [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]


def test_each_series_can_be_narrowed() -> None:
    """Wherever the rules name a metric, they have the matcher that the chart narrows to a release's components."""
    for rule in rules():
        assert rule["expr"].count('job=~".+"') == len(re.findall(r"podwright[_:][a-z_:0-9]+", rule["expr"]))


def test_panels_do_not_overlap() -> None:
    """The dashboard's panels have places and numbers of their own, and every one says what it shows."""
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        mine = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not mine & cells, panel["title"]
        assert max(x for x, _ in mine) < 24
        cells |= mine
        assert panel["type"] == "row" or panel["description"]


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run([tool("promtool"), *arguments], capture_output=True, text=True, cwd=FOLDER)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_rules() -> None:
    """Prometheus' own checker has nothing to say against the rules, and each alert does as its tests say."""
    promtool("check", "rules", "--lint-fatal", "alerts.yaml")
    promtool("test", "rules", "alerts_test.yaml")


def test_every_alert_is_tested() -> None:
    """Each alert has a test in which it fires, and one in which it does not."""
    cases = [
        case
        for each in yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
        for case in each["alert_rule_test"]
    ]
    for alert in (rule["alert"] for rule in rules() if "alert" in rule):
        fired = [bool(case["exp_alerts"]) for case in cases if case["alertname"] == alert]
        assert True in fired, alert
        assert False in fired, alert


@pytest.fixture
def installed(helm: Helm) -> dict[str, Any]:
    values = {
        "components": {"a": {}, "b": {}},
        "prometheusRule": {
            "enabled": True, "labels": {"release": "p"}, "costPerHour": 2.5, "disabled": ["PodwrightWaiting"],
        },
        "dashboard": {"enabled": True},
    }  # fmt: skip
    return {each["kind"]: each for each in helm(values) if each["kind"] in ("PrometheusRule", "ConfigMap")}


def test_the_chart_narrows_the_rules(installed: dict[str, Any], tmp_path: Path) -> None:
    """The installed rules are the file's, for this release's components, with its cost, without what is off."""
    rule = installed["PrometheusRule"]
    assert rule["metadata"]["labels"]["release"] == "p"
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rule["spec"]))
    promtool("check", "rules", file)
    found = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    names = {each.get("alert") for each in rules()}
    assert {each.get("alert") for each in found} == names - {"PodwrightWaiting"}
    for each in found:
        assert 'job=~".+"' not in each["expr"]
        assert 'namespace="prod",job=~"fleet-a|fleet-b"' in each["expr"]
    (cost,) = [each["expr"] for each in found if each.get("alert") == "PodwrightCostPerHour"]
    assert cost.endswith("> 2.5")


def test_the_chart_brings_the_dashboard(installed: dict[str, Any]) -> None:
    """The installed dashboard is that of the file, under a name and id of the release."""
    shown = json.loads(installed["ConfigMap"]["data"]["fleet-dashboard.json"])
    file = json.loads((FOLDER / "dashboard.json").read_text())
    assert shown["title"] == "Podwright prod/fleet"
    assert len(shown["uid"]) == 16
    assert shown["uid"] != file["uid"]
    assert {**shown, "title": "", "uid": ""} == {**file, "title": "", "uid": ""}
    assert installed["ConfigMap"]["metadata"]["labels"]["grafana_dashboard"] == "1"
