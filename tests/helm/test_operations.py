"""docs/operations.md: every alert has a section, and the values in its text exist."""

from __future__ import annotations

import re

import yaml
from tests.helm.conftest import CHART, Manifest
from tests.helpers import ROOT
from tests.observability.support import RULES

from podwright.errors import DOCS_URL

PAGE = (ROOT / "docs" / "operations.md").read_text()


def test_every_alert_has_a_section() -> None:
    """Each alert links to a section with its name, in the order of the file, and there are no other sections."""
    alerts = [rule for rule in RULES if "alert" in rule]
    assert re.findall(r"^### (\w+)$", PAGE, re.MULTILINE) == [
        rule["alert"] for rule in alerts
    ]
    for rule in alerts:
        assert (
            rule["annotations"]["runbook_url"]
            == f"{DOCS_URL}/operations.html#{rule['alert'].lower()}"
        )


def test_the_values_on_the_page_exist() -> None:
    """Settings and values in the page's text are those of the chart."""
    schema = (CHART / "values.schema.json").read_text()
    assert [
        name
        for name in set(re.findall(r"settings\.(\w+)", PAGE))
        if f'"{name}"' not in schema
    ] == []
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    paths = set(
        re.findall(
            r"`((?:apiKeys|prometheusRule|networkPolicy|drain|defaults)\.[\w.]+)`",
            PAGE,
        )
    )
    assert [
        path
        for path in paths
        if not has(values, path) and not has(values["defaults"], path)
    ] == []


def has(values: Manifest, path: str) -> bool:
    """Whether a value exists, such as `drain.timeout`."""
    key, _, below = path.partition(".")
    return key in values and (not below or has(values[key], below))
