"""A suite: the cases, variants, checks and gates of `evals/evals.yaml` in a component folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    to_json_bytes,
)
from podwright.evaluation.suite_reading.reader import read_suite

RECORDED = ".recorded"
"""The folder beside a suite of what evaluations have recorded."""


@dataclass(frozen=True, slots=True)
class Case:
    """An input, and what must be true of the runs that it leads to."""

    name: str
    inputs: str | JsonMapping
    """The input of the run: a text, or named inputs."""
    messages: Sequence[JsonMapping] = ()
    """Earlier turns of the conversation."""
    checks: Sequence[JsonMapping] = ()
    """Checks of this case alone, after those of the suite."""
    decisions: Sequence[JsonMapping] | None = None
    """What the person decides, in order: `decision`, `comment`, `values`; None takes those of the suite."""
    must: bool = False
    """Whether one failed run of it fails the evaluation."""
    expect_error: str = ""
    """The code of the error with which the run has to end; empty if it has to end without one."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A configuration of the component, or another component in its place."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values by place: `writer.instructions`, `writer.config.temperature`, `writer.tools.search.description`,
    `*.model`; texts of files are read."""
    blueprint: Path | None = None
    """A blueprint file or a component folder in place of the suite's own."""
    image: str = ""
    """An image whose container answers."""
    url: str = ""
    """A service that answers."""
    api_key_file: Path | None = None
    """A file with the API key of that service."""


@dataclass(frozen=True, slots=True)
class Gates:
    """What decides whether the evaluation succeeds; None is no gate."""

    pass_rate: float | None = None
    """The least share of runs that pass, of each variant: 0 to 1."""
    pass_rate_drop: float | None = None
    """By how much the share may be lower than the baseline's: 0 to 1."""
    cost_ratio: float | None = None
    """How many times the baseline's cost a run may cost."""
    p95_ratio: float | None = None
    """How many times as long as the baseline's the 95th percentile of the seconds of a run may be."""


@dataclass(frozen=True, slots=True)
class Suite:
    """The cases, variants, checks and gates of a component."""

    component: Path
    """The component's folder."""
    file: Path
    """The file that it was read from."""
    cases: Sequence[Case]
    variants: Mapping[str, Variant]
    """By name; at least one."""
    baseline: str = ""
    """The variant with which the others are compared; empty if there is one variant alone."""
    repeat: int = 1
    checks: Sequence[JsonMapping] = ()
    """Checks of every case."""
    decisions: Sequence[JsonMapping] = ()
    fakes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values or functions in place of tools and functions, by name."""
    judges: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """The blueprint files of the judges, by name."""
    conditions: Mapping[str, Callable[..., Any]] = field(
        default_factory=dict[str, Callable[..., Any]]
    )
    """The functions of `checks.py` that checks name, by name."""
    gates: Gates = Gates()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a suite, and check all of it that can be checked without a run.

        Args:
            path: A component folder with `evals/evals.yaml` or `.json`, or the file of a suite. The folder is trusted:
                its `agents.py`, and `checks.py` and other Python files that the suite names, are imported.

        Raises:
            BlueprintValidationError: The suite is invalid, with all problems; or a blueprint of the component is.
            ConfigurationError: There is no suite, or a file cannot be read.
        """
        suite = read_suite(Path(path))
        gates = as_object(suite.data.get("gates"))
        pass_rate = as_object(gates.get("pass_rate"))
        against_baseline = as_object(gates.get("against_baseline"))
        variants: dict[str, Variant] = {}
        for name, variant in suite.variants.items():
            variants[name] = Variant(name, **asdict(variant))
        return cls(
            component=suite.component,
            file=suite.file,
            cases=[Case(**case) for case in suite.cases],
            variants=variants,
            baseline=suite.baseline,
            repeat=suite.data.get("repeat", 1),
            checks=suite.data.get("checks", ()),
            decisions=suite.data.get("decisions", ()),
            fakes=suite.fakes,
            judges=suite.judges,
            conditions=suite.conditions,
            gates=Gates(
                pass_rate=pass_rate.get("at_least"), **against_baseline
            ),
        )

    @property
    def name(self) -> str:
        """The name of the component's folder."""
        return self.component.resolve().name

    @property
    def folder(self) -> Path:
        """The folder of the suite's files: `evals`."""
        return self.file.parent

    @property
    def recorded(self) -> Path:
        """The folder of what evaluations have recorded: answers, rows, traces, and the last report."""
        return self.folder / RECORDED

    def checks_of(self, case: Case) -> list[JsonObject]:
        """The checks of a case: the suite's, then its own."""
        return [dict(check) for check in (*self.checks, *case.checks)]

    def digest_of(self, case: Case) -> str:
        """Return a digest of what a case asks and checks: results with another one cannot be compared.

        Its name, whether it must pass, and the component are no part of it.
        """
        checks = self.checks_of(case)
        judges = {check.get("judge", check.get("prefer")) for check in checks}
        decisions = case.decisions
        if decisions is None:
            decisions = self.decisions
        content = [
            case.inputs,
            case.messages,
            checks,
            decisions,
            case.expect_error,
            [
                file.read_text(encoding="utf-8")
                for name, file in sorted(self.judges.items())
                if name in judges
            ],
        ]
        return hashlib.sha256(to_json_bytes(content)).hexdigest()[:32]
