"""Helm reads the YAML that Podwright writes as the same data, and Podwright reads Helm's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.helm.conftest import Helm
from tests.service.support import AGENT

from podwright import blueprints

TEXTS = [
    "y", "Y", "n", "N", "yes", "no", "on", "off", "true", "null", "~", "", " ", "<<", "=", "-", ".", "+",
    "1e3", "4821e73", "1E-7", "-.5", ".5e1", "0.1e1", "+1.", "0o14", "0O7", "014", "0x1F", "0X1f", "0b11", "0B1",
    "1_000", "-_0x_1", "1_e_5", "+.inf", ".NaN", "1:30", "2024-1-2", "2024-01-02", "2024-01-02 3:4:5", "0.1.0",
    "two\nlines", "two\nlines\n", "\nlines", " a\nb", "a\u2028\nb", "a\x85b", "a\tb\n", "# no\n# comment", "'\"\n",
]  # fmt: skip
"""Texts that some reader of YAML takes for something else."""
NUMBERISH = st.text("+-.0123456789_eExXoObBaf:yYnN~ \n", max_size=8)


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chart that renders what Helm reads from a YAML text, as JSON."""
    chart = tmp_path_factory.mktemp("chart") / "echo"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text(
        "{apiVersion: v2, name: echo, version: 0.1.0}"
    )
    (chart / "templates" / "echo.yaml").write_text(
        "{kind: Echo, metadata: {name: echo}, json: {{ fromYaml .Values.text | toJson | quote }},"
        " yaml: {{ fromJson .Values.json | toYaml | quote }}}"
    )
    return chart


def read_by_helm(helm: Helm, chart: Path, data: dict[str, Any]) -> Any:
    """What Helm reads from data that Podwright has written."""
    values = {"text": blueprints.to_yaml(data), "json": json.dumps(data)}
    (manifest,) = helm(values, chart=chart)
    return json.loads(manifest["json"])


def test_texts_stay_texts(helm: Helm, echo: Path) -> None:
    """Texts, also as keys, stay texts, and numbers numbers."""
    data = {
        "texts": TEXTS,
        "keys": dict.fromkeys(TEXTS, "x"),
        "numbers": [1e-07, 2.5e20, 0.1, -3, 12345678],
    }
    assert blueprints.from_yaml(blueprints.to_yaml(data)) == data
    assert read_by_helm(helm, echo, data) == data


def test_numbers_that_helm_writes(helm: Helm, echo: Path) -> None:
    """Small and large numbers in the output of Helm are read as numbers, and texts like them as texts."""
    data = {"numbers": [1e-07, 1.5e-9, 2.5e21, 0.1], "texts": ["1e-07", "1e3"]}
    values = {"text": "{}", "json": json.dumps(data)}
    (manifest,) = helm(values, chart=echo)
    assert "1e-07" in manifest["yaml"]
    assert blueprints.from_yaml(manifest["yaml"]) == data


# above, JSON has pairs of surrogates, which YAML has not, and Helm 3 gets its values as JSON here
CHARACTERS = st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])


@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(st.lists(NUMBERISH | st.text(CHARACTERS, max_size=8), min_size=10))
def test_any_text_stays_a_text(
    helm: Helm, echo: Path, texts: list[str]
) -> None:
    """Texts like numbers, and all others."""
    data = {"texts": texts}
    assert read_by_helm(helm, echo, data) == data


def test_the_digest_of_values_is_that_of_the_blueprint(helm: Helm) -> None:
    """The digest of a blueprint in rendered values, in which texts look like numbers, is the library's."""
    parameters = {
        "type": "object",
        "properties": {"y": {"type": "string", "enum": TEXTS}},
    }
    function = {"name": "plot", "parameters": parameters}
    tool = {
        "name": "plot",
        "schema": {"type": "function", "function": function},
    }
    config = {"model": "offline/echo", "temperature": 0.1}
    blueprint = {**AGENT, "config": config, "tools": [tool]}
    inline = blueprints.to_yaml(blueprint)
    source = {"inline": inline, "file": "blueprint.yaml"}
    manifests = helm({"components": {"x": {"blueprint": source}}})
    (annotations,) = (
        manifest["spec"]["template"]["metadata"]["annotations"]
        for manifest in manifests
        if manifest["kind"] == "Deployment"
    )
    digest = annotations["podwright.dev/blueprint-digest"]
    assert digest == blueprints.digest(blueprint)
