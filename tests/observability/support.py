"""The dashboard and the rules that Prometheus and Grafana read."""

from __future__ import annotations

import json
from typing import Any

import yaml
from tests.helpers import ROOT

FOLDER = ROOT / "deploy" / "observability"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
TARGETS: dict[str, dict[str, Any]] = {
    f"{panel['id']}{target['refId']} {panel['title']}": target
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
}
"""The queries of the dashboard's panels."""
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
ALERTS: set[str] = {rule["alert"] for rule in RULES if "alert" in rule}
