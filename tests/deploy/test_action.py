"""The GitHub Action: its steps run as a runner of GitHub runs them, in a repository with a base branch."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers import COMMAND, NEWSROOM, ROOT, environment

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
PAGE = (ROOT / "docs" / "github-action.md").read_text()
EXPRESSION = re.compile(r"\$\{\{ (.*?) \}\}")

SETUP = """#!/bin/sh
echo "$@" >>"$LOG/setup"
if [ "$1" = venv ]; then
    for folder in "$@"; do :; done
    mkdir -p "$folder/bin"
    cp "$LOG/podwright" "$folder/bin/podwright"
fi
"""
"""In place of deploy/setup.sh: the packages are those of the tests."""

PODWRIGHT = f"""#!/bin/sh
if [ "$1" != eval ]; then exec {COMMAND} "$@"; fi
for each in "$@"; do echo "$each"; done >"$LOG/eval"
code=0
{COMMAND} "$@" || code=$?
exit "${{EVAL_CODE:-$code}}"
"""
"""The command, with a log of how evaluations were called; a provider that fails is only a code."""

SUITE = """
matrix: {"*.model": [offline/echo]}
cases:
  - name: moon
    inputs: {input: the moon}
    checks: [{name: contains, args: {value: "{output}", text: moon}}]
"""
"""A suite of the writer, which needs no provider."""

GH = """#!/bin/sh
for each in "$@"; do echo "$each"; done >>"$LOG/gh"
if [ "${GH_FAILS-}" ]; then exit 1; fi
case "$*" in *--jq*) echo "${COMMENT-}" ;; esac
"""
"""In place of GitHub's command: it prints the number of the comment, if there is one."""


def git(folder: Path, *arguments: str) -> str:
    """Run git, and return what it prints."""
    done = subprocess.run(
        [
            "git", "-c", "user.name=A", "-c", "user.email=a@example.com",
            "-c", "init.defaultBranch=main", *arguments,
        ],
        cwd=folder, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@dataclass
class Run:
    """A run of the action."""

    runner: Path
    outcomes: dict[str, str] = field(default_factory=dict[str, str])
    printed: str = ""

    @property
    def failed(self) -> list[str]:
        """The steps that failed."""
        return [
            step
            for step, outcome in self.outcomes.items()
            if outcome == "failure"
        ]

    @property
    def summary(self) -> str:
        """What the run shows."""
        return (self.runner / "summary").read_text()

    def logged(self, program: str) -> list[str]:
        """The arguments of the calls of a program, or of the last call of `podwright eval`."""
        log = self.runner / "log" / program
        return log.read_text().splitlines() if log.exists() else []


@dataclass
class Runner:
    """Runs the action in a clone, of which `base` is the commit of the base branch."""

    folder: Path
    clone: Path
    base: str

    def run(
        self,
        inputs: Mapping[str, str],
        *,
        is_pull: bool = True,
        **variables: str,
    ) -> Run:
        """Run all steps that have a script, as long as their conditions hold."""
        run = Run(self.folder)
        values = self._values(inputs, is_pull=is_pull)
        path = f"{self.folder / 'programs'}:{os.environ['PATH']}"
        for step in STEPS:
            if "run" not in step:
                continue
            if not holds(step.get("if", "success()"), values, run.outcomes):
                run.outcomes[step["id"]] = "skipped"
                continue
            own = {
                name: EXPRESSION.sub(lambda match: values[match[1]], value)
                for name, value in step["env"].items()
            }
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
                cwd=self.clone,
                env=environment(
                    **{"PATH": path, **self._variables(), **variables, **own}
                ),
                capture_output=True,
                text=True,
            )  # fmt: skip
            run.printed += done.stdout + done.stderr
            run.outcomes[step["id"]] = ("failure", "success")[
                done.returncode == 0
            ]
            for line in self._written("output"):
                name, _, value = line.partition("=")
                values[f"steps.{step['id']}.outputs.{name}"] = value
            for line in self._written("path"):
                path = f"{line}:{path}"
        return run

    def _values(
        self, inputs: Mapping[str, str], *, is_pull: bool
    ) -> dict[str, str]:
        values = {
            "github.token": "token",
            "github.event.pull_request": "object" if is_pull else "",
            "github.event.pull_request.number": "7" if is_pull else "",
            "github.event.pull_request.base.sha": self.base if is_pull else "",
            "steps.python.outputs.python-path": "/usr/bin/python3",
            "steps.install.outputs.reports": "",
        }
        for name, option in ACTION["inputs"].items():
            default = EXPRESSION.sub(
                lambda match: values[match[1]], option.get("default", "")
            )
            values[f"inputs.{name}"] = inputs.get(name, default)
        return values

    def _variables(self) -> dict[str, str]:
        return {
            "LOG": str(self.folder / "log"),
            "RUNNER_TEMP": str(self.folder / "temp"),
            "GITHUB_ACTION_PATH": str(self.folder / "action"),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_PATH": str(self.folder / "path"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "GITHUB_REPOSITORY": "owner/components",
            "GITHUB_WORKFLOW": "components",
            "GITHUB_JOB": "podwright",
        }

    def _written(self, name: str) -> list[str]:
        """The lines that a step has written to a file of the runner, which is then empty."""
        file = self.folder / name
        if not file.exists():
            return []
        lines = file.read_text().splitlines()
        file.unlink()
        return lines


def holds(
    condition: str, values: Mapping[str, str], outcomes: Mapping[str, str]
) -> bool:
    """Whether a condition of the action holds: terms joined by `&&`."""
    condition = EXPRESSION.sub(lambda match: match[1], condition)
    return all(
        _term_holds(term.strip(), values, outcomes)
        for term in condition.split("&&")
    )


def _term_holds(
    term: str, values: Mapping[str, str], outcomes: Mapping[str, str]
) -> bool:
    if term == "!cancelled()":
        return True
    if term == "success()":
        return "failure" not in outcomes.values()
    match = re.fullmatch(r"([\w.-]+)(?: (==|!=) '(.*)')?", term)
    assert match, term
    name, operator, literal = match.groups()
    outcome = re.fullmatch(r"steps\.(\w+)\.outcome", name)
    value = outcomes[outcome[1]] if outcome else values[name]
    if operator is None:
        return bool(value)
    return (value == literal) == (operator == "==")


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A runner with a clone, as a checkout of depth 1, of a repository with two components."""
    upstream = tmp_path / "upstream"
    for name in ("writer", "reviewer"):
        shutil.copytree(NEWSROOM / name, upstream / name)
        offline = upstream / name / "blueprint.json"
        text = re.sub(r'"openai/[^"]*"', '"offline/echo"', offline.read_text())
        offline.write_text(text)
    (upstream / "writer" / "evals").mkdir()
    (upstream / "writer" / "evals" / "evals.yaml").write_text(SUITE)
    git(upstream, "init", "--quiet")
    git(upstream, "add", ".")
    git(upstream, "commit", "--quiet", "--message", "Components")
    base = git(upstream, "rev-parse", "HEAD")
    git(upstream, "checkout", "--quiet", "-b", "change")
    blueprint = upstream / "writer" / "blueprint.json"
    data = json.loads(blueprint.read_text())
    data["instructions"] += " Be brief."
    blueprint.write_text(json.dumps(data))
    git(upstream, "commit", "--quiet", "--all", "--message", "Change")
    clone = tmp_path / "clone"
    git(
        tmp_path, "clone", "--quiet", "--depth=1", "--branch=change",
        upstream.as_uri(), str(clone),
    )  # fmt: skip
    action = tmp_path / "action"
    (action / "deploy" / "image").mkdir(parents=True)
    shutil.copy(ROOT / "deploy" / "action.sh", action / "deploy")
    for lock in (ROOT / "deploy" / "image").glob("*.lock"):
        shutil.copy(lock, action / "deploy" / "image")
    (tmp_path / "log").mkdir()
    (tmp_path / "temp").mkdir()
    (tmp_path / "programs").mkdir()
    for file, text in {
        "action/deploy/setup.sh": SETUP,
        "log/podwright": PODWRIGHT,
        "programs/gh": GH,
    }.items():
        (tmp_path / file).write_text(text)
        (tmp_path / file).chmod(0o755)
    return Runner(tmp_path, clone, base)


def reports_of(run: Run) -> Path:
    """The folder of reports of a run."""
    [folder] = (run.runner / "temp" / "podwright").glob("run.*/reports")
    return folder


@pytest.mark.servers
def test_a_pull_request(runner: Runner) -> None:
    """Components are validated, compared and evaluated, and one comment has all of it."""
    inputs = {
        "paths": "\n  writer\n\nreviewer\n",
        "against": "base",
        "budget": "2",
    }
    run = runner.run(inputs)
    assert run.failed == [], run.printed
    assert run.outcomes["release"] == "skipped"
    for line in (
        "### validate `writer`: passed",
        "### sync --check `reviewer`: passed",
        "### diff `writer`: passed",
        "    compatible: /instructions",
        "### Evaluation of writer",
        "`reviewer` has no evals/, so it is not evaluated.",
    ):
        assert line in run.summary
    folder = reports_of(run)
    [evaluation] = folder.glob("writer.*")
    assert run.logged("eval") == [
        "eval", "writer", "--budget", "2", "--yes",
        "--against", f"{folder}/../base/writer",
        "--json", str(evaluation / "report.json"),
        "--junit", str(evaluation / "junit.xml"),
        "--markdown", str(evaluation / "report.md"),
    ]  # fmt: skip
    comment = (folder / "comment.md").read_text()
    assert comment.startswith("<!-- podwright:")
    assert (folder / "report.md").read_text().strip() in comment
    assert "repos/owner/components/issues/7/comments" in run.logged("gh")
    assert f"body=@{folder / 'comment.md'}" in run.logged("gh")
    assert "POST" in run.logged("gh")
    assert all(
        "--no-deps" in line or "--require-hashes" in line
        for line in run.logged("setup")[1:]
    )


@pytest.mark.servers
def test_a_breaking_change(runner: Runner) -> None:
    """It fails the job only if that is asked for; what comes after it is done nevertheless."""
    file = runner.clone / "reviewer" / "blueprint.json"
    data = json.loads(file.read_text())
    data["inputs"] = {"deadline": {"type": "string"}}
    file.write_text(json.dumps(data))
    subprocess.run(
        [COMMAND, "deploy", "render", "writer", "-o", str(runner.folder / "fleet.yaml")],
        cwd=runner.clone, env=environment(), check=True, capture_output=True,
    )  # fmt: skip
    inputs = {
        "paths": "reviewer\nwriter",
        "values": "../fleet.yaml",
        "fail-on-breaking": "true",
    }
    run = runner.run(inputs)
    assert run.failed == ["diff"], run.printed
    assert "### diff `reviewer`: failed" in run.summary
    assert "### deploy diff `../fleet.yaml`: passed" in run.summary
    assert run.outcomes["evaluate"] == run.outcomes["comment"] == "success"
    run = runner.run({**inputs, "fail-on-breaking": "false"})
    assert run.failed == []


@pytest.mark.servers
def test_an_invalid_component(runner: Runner) -> None:
    """It is not evaluated, which costs money, and the comment says what is wrong."""
    (runner.clone / "writer" / "blueprint.json").write_text("{}")
    run = runner.run({"paths": "writer"})
    assert "validate" in run.failed
    assert run.outcomes["evaluate"] == "skipped"
    assert run.logged("eval") == []
    assert "### validate `writer`: failed" in run.summary
    assert run.outcomes["comment"] == "success"


@pytest.mark.servers
@pytest.mark.parametrize(
    ("code", "text"),
    [("1", "a gate"), ("4", "incomplete"), ("2", "ended with 2")],
)
def test_an_evaluation_that_fails(runner: Runner, code: str, text: str) -> None:
    """A gate that fails and an evaluation that is incomplete fail the job, with the report in the comment."""
    inputs = {"paths": "writer", "strict": "true"}
    run = runner.run(inputs, is_pull=False, EVAL_CODE=code)
    assert run.failed == ["evaluate"], run.printed
    assert re.search(f"::error title=podwright::.*{text}", run.printed)
    assert "--strict" in run.logged("eval")
    assert "--against" not in run.logged("eval")
    assert "### Evaluation of writer" in run.summary
    assert "There is no base to compare with." in run.summary
    assert run.outcomes["comment"] == "skipped"


@pytest.mark.servers
def test_a_gate_that_fails(runner: Runner) -> None:
    """The job fails, and the comment says which case is no longer right."""
    suite = runner.clone / "writer" / "evals" / "evals.yaml"
    suite.write_text(
        SUITE.replace("text: moon", "text: sun") + "    must: true\n"
    )
    run = runner.run({"paths": "writer"})
    assert run.failed == ["evaluate"], run.printed
    assert "moon must pass" in run.summary
    assert run.outcomes["comment"] == "success"


@pytest.mark.servers
def test_inputs_are_no_code(runner: Runner) -> None:
    """Names with spaces, quotes and substitutions are names."""
    name = "the $(touch hacked) 'writer'"
    shutil.copytree(runner.clone / "writer", runner.clone / name)
    inputs = {
        "paths": name,
        "base": "$(touch hacked)",
        "against": "$(touch hacked)",
    }
    run = runner.run(inputs)
    assert run.failed == ["diff", "evaluate"], run.printed
    assert "$(touch hacked)" in run.logged("eval")
    assert f"validate `{name}`: passed" in run.summary
    assert not list(runner.folder.rglob("hacked"))


@pytest.mark.servers
def test_options_that_name_nothing(runner: Runner) -> None:
    """A missing path and an unknown flavour fail before anything is installed."""
    for inputs in ({"paths": " \n"}, {"paths": "writer", "flavour": "../x"}):
        run = runner.run(inputs)
        assert run.failed == ["install"]
        assert "::error title=podwright::" in run.printed
        assert set(run.outcomes.values()) == {"failure", "skipped"}
        assert run.logged("setup") == []


@pytest.mark.servers
def test_dependencies_of_components(runner: Runner) -> None:
    """They are installed with what Podwright itself has, those of a lock before others."""
    for name, files in {
        "writer": ["requirements.lock", "requirements.txt"],
        "reviewer": ["requirements.txt"],
    }.items():
        for file in files:
            (runner.clone / name / file).touch()
    run = runner.run({"paths": "writer\nreviewer", "flavour": "full"})
    installed = [
        line for line in run.logged("setup") if "--constraints" in line
    ]
    assert [line.split()[-1] for line in installed] == [
        str(runner.clone / "writer" / "requirements.lock"),
        str(runner.clone / "reviewer" / "requirements.txt"),
    ]
    assert all("requirements-full.lock" in line for line in installed)


def comment(
    runner: Runner, report: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the step that writes the comment."""
    (runner.folder / "report.md").write_text(report)
    return subprocess.run(
        [ROOT / "deploy" / "action.sh", "comment"],
        env=environment(
            PATH=f"{runner.folder / 'programs'}:{os.environ['PATH']}",
            LOG=str(runner.folder / "log"),
            REPORTS=str(runner.folder),
            PULL_REQUEST="7",
            GITHUB_REPOSITORY="owner/components",
            GITHUB_WORKFLOW="components",
            GITHUB_JOB="podwright",
            **variables,
        ),
        capture_output=True,
        text=True,
    )  # fmt: skip


@pytest.mark.servers
def test_the_comment(runner: Runner) -> None:
    """An earlier one is replaced, a long one is cut, and one that is not permitted fails nothing."""
    assert comment(runner, "Short.", COMMENT="12\n34").returncode == 0
    calls = (runner.folder / "log" / "gh").read_text().splitlines()
    assert (
        calls[calls.index("PATCH") - 2]
        == "repos/owner/components/issues/comments/34"
    )
    assert "POST" not in calls
    assert comment(runner, "ä" * 100_000).returncode == 0
    text = (runner.folder / "comment.md").read_text()
    assert 60_000 < len(text) < 65_536
    assert text.endswith("summary of the run.\n")
    refused = comment(runner, "Short.", GH_FAILS="yes")
    assert refused.returncode == 0
    assert refused.stdout.startswith("::warning ")


def test_no_script_has_an_expression() -> None:
    """Inputs and events reach scripts as variables, because an expression in a script could be code."""
    scripts = [step["run"] for step in STEPS if "run" in step]
    assert len(scripts) > 5
    assert not [script for script in scripts if "${{" in script]
    assert {step["shell"] for step in STEPS if "run" in step} == {"bash"}


def test_the_page_has_all_inputs() -> None:
    """The table of inputs has each with its default, and the example names only those that exist."""
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.*?)\| ", PAGE, re.MULTILINE))
    assert rows.keys() == ACTION["inputs"].keys()
    for name, option in ACTION["inputs"].items():
        default = option.get("default", "")
        if "${{" not in default:
            assert rows[name].strip("` ") == default
    [workflow] = re.findall(
        r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )
    [job] = yaml.safe_load(workflow)["jobs"].values()
    [own] = [step for step in job["steps"] if "podwright@" in step["uses"]]
    assert own["with"].keys() <= ACTION["inputs"].keys()
    used = "".join(str(step) for step in STEPS)
    assert all(f"inputs.{name} " in used for name in ACTION["inputs"])
