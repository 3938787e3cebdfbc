"""`podwright deploy render --require-evaluation`: a component is deployed as it was evaluated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import yaml
from tests.helpers import ROOT
from tests.service.support import AGENT, Shell

from podwright import load
from podwright.errors import ConfigurationError
from podwright.evaluation.runs.variants import code_digest
from podwright.folders.walks import component_digest
from podwright_service.fleet.evaluations import (
    RequiredEvaluations,
    read_reports,
)

NAMES = ("researcher", "reviewer", "writer", "newsroom")


def report(
    *gates: tuple[str, str],
    incomplete: bool = False,
    folders: Sequence[Path] = (),
    **digests: str,
) -> dict[str, Any]:
    """A report with the digests of variants, and the variants and verdicts of gates.

    The variants are what folders have, in their order, as far as there are folders.
    """
    sources = dict(zip(digests, map(code_digest, folders), strict=False))
    return {
        "format": "podwright.evaluation/1",
        "component": "any",
        "variants": {
            name: {"digest": digests[name], "source": sources.get(name, "")}
            for name in digests
        },
        "gates": [
            {
                "name": "pass_rate",
                "variant": variant,
                "verdict": verdict,
                "sentence": f"{variant} {verdict}",
            }
            for variant, verdict in gates
        ],
        "incomplete": incomplete,
        "baseline": "",
        "made_at": "2026-11-29T12:00:00Z",
    }


@pytest.fixture
def writer(newsroom: Path) -> Path:
    """A component without parts."""
    return newsroom / "writer"


@pytest.fixture
def current(writer: Path) -> str:
    """The digest of the component as it is."""
    return component_digest(load(writer))


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A workflow with members and code."""
    return Path(copytree(DESK, tmp_path / "desk"))


DESK = ROOT / "service/src/podwright_service/scaffold/examples/desk"
OTHER = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("gates", "incomplete", "strict", "passes"),
    [
        ([("now", "holds")], False, False, True),
        ([], False, True, True),
        ([("now", "undecided")], False, False, True),
        ([("now", "undecided")], False, True, False),
        ([("now", "fails")], False, False, False),
        ([("now", "holds"), ("now", "fails")], False, False, False),
        ([("later", "fails")], False, True, True),
        ([("", "fails")], False, False, False),
        ([("now", "holds")], True, False, False),
        ([("now", "a new verdict")], False, False, False),
    ],
)
def test_what_a_report_lets_pass(
    shell: Shell,
    writer: Path,
    current: str,
    tmp_path: Path,
    *,
    gates: list[tuple[str, str]],
    incomplete: bool,
    strict: bool,
    passes: bool,
) -> None:
    """The gates of the variant that is deployed decide, and those of the whole evaluation."""
    data = report(
        *gates,
        incomplete=incomplete,
        folders=[writer],
        now=current,
        later=OTHER,
    )
    (tmp_path / "report.json").write_text(json.dumps(data))
    options = ["--require-evaluation", "report.json"]
    if strict:
        options.append("--strict")
    done = shell("deploy", "render", str(writer), *options)
    assert (done.returncode == 0) == passes, done.stderr
    if passes:
        assert "writer" in yaml.safe_load(done.stdout)["components"]
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert "report.json" in done.stderr
        assert f"podwright eval {writer}" in done.stderr


@pytest.mark.parametrize(
    ("must", "status", "passed", "passes"),
    [
        ("hard", "ok", False, False),
        ("hard", "failed", False, False),
        ("hard", "ok", True, True),
        ("easy", "ok", False, True),
    ],
)
def test_a_case_that_must_pass(
    shell: Shell,
    writer: Path,
    current: str,
    tmp_path: Path,
    *,
    must: str,
    status: str,
    passed: bool,
    passes: bool,
) -> None:
    """One failed run of it is enough, whatever the gates say."""
    row = {
        "variant": "now",
        "case": "hard",
        "status": status,
        "checks": [{"label": "kind", "passed": passed}],
    }
    data = {
        **report(("now", "holds"), folders=[writer], now=current),
        "must": [must],
        "rows": [{**row, "checks": []}, row],
    }
    (tmp_path / "report.json").write_text(json.dumps(data))
    done = shell(
        "deploy", "render", str(writer), "--require-evaluation", "report.json"
    )
    assert (done.returncode == 0) == passes, done.stderr
    assert ("'hard' must pass" in done.stderr) == (not passes)


def test_a_baseline_of_another_report(
    shell: Shell, writer: Path, current: str, tmp_path: Path
) -> None:
    """A report lets nothing pass that it only compares with, because it has no gates for it."""
    data = {**report(then=current, now=OTHER), "from_elsewhere": ["then"]}
    (tmp_path / "report.json").write_text(json.dumps(data))
    done = shell(
        "deploy", "render", str(writer), "--require-evaluation", "report.json"
    )
    assert done.returncode == 1
    assert current in done.stderr


def test_each_component_needs_one(
    shell: Shell, newsroom: Path, tmp_path: Path
) -> None:
    """All components without a report are named at once, with the digests that were wanted and found."""
    folders = {name: str(newsroom / name) for name in NAMES}
    agents = {name: load(newsroom / name) for name in NAMES[:3]}
    digests = {
        name: component_digest(component) for name, component in agents.items()
    }
    flow = component_digest(load(newsroom / "newsroom", agents=agents))
    (tmp_path / "reports").mkdir()
    for name in ("researcher", "writer"):
        file = tmp_path / "reports" / f"{name}.json"
        data = report(folders=[newsroom / name], now=digests[name])
        file.write_text(json.dumps(data))
    (tmp_path / "reports" / "prices.json").write_text("{}")
    options = ["--output", "fleet.yaml", "--require-evaluation", "reports"]
    done = shell("deploy", "render", *folders.values(), *options)
    assert done.returncode == 1
    assert not (tmp_path / "fleet.yaml").exists()
    for name in ("reviewer", "newsroom"):
        assert f"'{name}'" in done.stderr
        assert f"podwright eval {folders[name]} --json" in done.stderr
    assert flow in done.stderr
    assert all(digest in done.stderr for digest in digests.values())
    assert "'writer':" not in done.stderr
    (tmp_path / "more.json").write_text(
        json.dumps(
            report(
                folders=[newsroom / "reviewer", newsroom / "newsroom"],
                first=digests["reviewer"],
                second=flow,
            )
        )
    )
    options += ["--require-evaluation", "more.json"]
    done = shell("deploy", "render", *folders.values(), *options)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "fleet.yaml").exists()


def test_a_changed_prompt_needs_a_new_one(shell: Shell, tmp_path: Path) -> None:
    """A report is about what was evaluated, and not about what its folder has become."""
    folder = tmp_path / "adder"
    folder.mkdir()
    file = folder / "blueprint.json"
    file.write_text(json.dumps({**AGENT, "name": "adder"}))
    evaluated = component_digest(load(folder))
    data = report(folders=[folder], now=evaluated)
    (tmp_path / "report.json").write_text(json.dumps(data))
    options = ["--require-evaluation", "report.json"]
    assert shell("deploy", "render", "adder", *options).returncode == 0
    changed = {**AGENT, "name": "adder", "instructions": "Subtract."}
    file.write_text(json.dumps(changed))
    done = shell("deploy", "render", "adder", *options)
    assert done.returncode == 1
    assert evaluated in done.stderr
    assert component_digest(load(folder)) in done.stderr


def test_a_changed_member_needs_a_new_one(
    shell: Shell, desk: Path, tmp_path: Path
) -> None:
    """The digest of a workflow does not have its members' prompts, nor its code: the files of its folder count too."""
    data = report(folders=[desk], now=component_digest(load(desk)))
    (tmp_path / "report.json").write_text(json.dumps(data))
    options = ["--require-evaluation", "report.json"]
    rendered = shell("deploy", "render", str(desk), *options)
    assert rendered.returncode == 0, rendered.stderr
    critic = desk / "agents" / "critic.json"
    text = critic.read_text()
    critic.write_text(text.replace("You judge", "Judge", 1))
    done = shell("deploy", "render", str(desk), *options)
    assert done.returncode == 1
    assert "other files" in done.stderr
    critic.write_text(text)
    (desk / "evals").mkdir()
    (desk / "evals" / "evals.yaml").write_text("cases: []")
    assert shell("deploy", "render", str(desk), *options).returncode == 0
    data = report(now=component_digest(load(desk)))
    (tmp_path / "report.json").write_text(json.dumps(data))
    done = shell("deploy", "render", str(desk), *options)
    assert done.returncode == 1
    assert "other members" in done.stderr


@pytest.mark.parametrize(
    ("in_image", "passes"), [("now", True), (OTHER, False), (None, False)]
)
def test_a_component_in_an_image(
    current: str, tmp_path: Path, *, in_image: str | None, passes: bool
) -> None:
    """What counts is the digest in the image; one that cannot be read is not taken for the right one."""
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report(now=current)))
    required = RequiredEvaluations(read_reports([str(file)]), strict=False)
    image = {"repository": "registry.example/writer", "tag": "1"}
    values = {"components": {"writer": {"image": image}}}
    looked_at: list[str] = []

    def look(reference: str) -> str | None:
        looked_at.append(reference)
        return current if in_image == "now" else in_image

    if passes:
        required.check(values, {"writer": "writer"}, look)
    else:
        with pytest.raises(ConfigurationError):
            required.check(values, {"writer": "writer"}, look)
    assert looked_at == ["registry.example/writer:1"]


@pytest.mark.parametrize(
    "text",
    [None, "", "[]", "{}", '{"format": "podwright.evaluation/2"}', "\xff"],
)
def test_what_is_no_report(
    shell: Shell, writer: Path, tmp_path: Path, text: str | None
) -> None:
    """A missing file, and one that is no report, are errors that name it."""
    if text is not None:
        (tmp_path / "report.json").write_bytes(text.encode("latin-1"))
    done = shell(
        "deploy", "render", str(writer), "--require-evaluation", "report.json"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "'report.json'" in done.stderr
    assert "Suggestion: " in done.stderr


def test_options_without_reports(
    shell: Shell, writer: Path, tmp_path: Path
) -> None:
    """A folder without reports lets nothing pass, and `--strict` is about reports."""
    (tmp_path / "reports").mkdir()
    for options in (["--require-evaluation", "reports"], ["--strict"]):
        done = shell("deploy", "render", str(writer), *options)
        assert (done.returncode, done.stdout) == (1, "")
        assert "--require-evaluation" in done.stderr or "--json" in done.stderr
