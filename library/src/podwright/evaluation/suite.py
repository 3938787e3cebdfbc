"""A suite: the cases, variants, checks and gates of `evals/evals.yaml` in a component folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podwright.data.json_data import JsonMapping, JsonObject


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
    gates: Gates = Gates()
    conditions: Mapping[str, Callable[..., Any]] = field(
        default_factory=dict[str, Callable[..., Any]]
    )
    """The functions of `checks.py` that checks name."""
    around: Callable[[Case], Any] | None = None
    """The function `around_run` of `fixtures.py`: returns a context manager in which a run of a case happens."""

    @property
    def name(self) -> str:
        """The name of the component's folder."""
        return self.component.resolve().name

    @property
    def folder(self) -> Path:
        """The folder of the suite's files: `evals`."""
        return self.file.parent

    def checks_of(self, case: Case) -> list[JsonObject]:
        """The checks of a case: the suite's, then its own."""
        return [dict(check) for check in (*self.checks, *case.checks)]

    @asynccontextmanager
    async def around_run(self, case: Case) -> AsyncGenerator[None]:
        """Surround a run of a case as `fixtures.py` says."""
        manager = None if self.around is None else self.around(case)
        if manager is None:
            yield
        elif hasattr(manager, "__aenter__"):
            async with manager:
                yield
        else:
            with manager:
                yield
