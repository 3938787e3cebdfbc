"""The plan of an evaluation: which runs there are, which of them are known, and what their variants answer with."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from podwright.components import Component
from podwright.data.text import did_you_mean
from podwright.errors import ConfigurationError
from podwright.evaluation.reports.row import Row
from podwright.evaluation.runs.targets import (
    LocalTarget,
    Service,
    ServiceTarget,
    Target,
)
from podwright.evaluation.runs.variants import (
    client_of,
    code_digest,
    configuration_of,
    digest_of,
    load_judge,
    load_variant,
)
from podwright.evaluation.suite import Case, Suite, Variant
from podwright.folders.walks import component_digest, models_of
from podwright.models import Model

_FORMAT = 1
"""The version of what a row's key stands for: a change of it lets every run be made again."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A run that the evaluation consists of."""

    variant: str
    case: Case
    repeat: int
    key: str

    @property
    def place(self) -> tuple[str, int]:
        """What it has in common with the runs of other variants that it is compared with."""
        return self.case.name, self.repeat


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs of an evaluation, in the order in which they begin."""

    suite: Suite
    targets: Mapping[str, Target]
    """What answers, by the name of the variant."""
    judges: Mapping[str, Component]
    """The agents that judge, by name."""
    jobs: Sequence[Job]
    known: Mapping[Job, Row]
    """The rows of earlier starts that are results of these runs."""

    @property
    def to_run(self) -> list[Job]:
        """The runs that have to be made."""
        return [job for job in self.jobs if job not in self.known]

    @property
    def baseline(self) -> str:
        """The variant that the others are compared with."""
        return self.suite.baseline or next(iter(self.targets))

    @property
    def digests(self) -> dict[str, str]:
        """The digests of the variants, by name."""
        return {name: target.digest for name, target in self.targets.items()}

    @property
    def sources(self) -> dict[str, str]:
        """The digests of the folders' files, of variants that are what a folder has, by name."""
        return {name: target.source for name, target in self.targets.items()}

    def components(self) -> Iterator[Component]:
        """Yield the components that run in this process, judges last."""
        for target in self.targets.values():
            if isinstance(target, LocalTarget):
                yield target.component
        yield from self.judges.values()

    def models(self) -> list[Model]:
        """Return the models that are called from this process, each once."""
        models: dict[Model, None] = {}
        for component in self.components():
            models |= dict.fromkeys(models_of(component))
        return list(models)


def make_plan(
    suite: Suite,
    wrap: Callable[[Model], Model],
    *,
    targets: Mapping[str, Service],
    repeat: int,
    only: Collection[str],
    variants: Collection[str],
    read_known: Callable[[], Mapping[str, Row]],
    **options: Any,
) -> Plan:
    """Return the runs of a suite's cases with its variants, all variants of a case side by side.

    So an evaluation that is interrupted can compare what it has.

    Args:
        suite: The suite.
        wrap: What the models are wrapped in.
        targets: Services that answer, by the names of variants: of the suite's, or further ones.
        repeat: How often each case is run.
        only: The names of the cases; all if there are none.
        variants: The names of the variants of the suite; all if there are none.
        read_known: Returns the rows of earlier starts.
        **options: As in `podwright.load`.

    Raises:
        ConfigurationError: A name is unknown, or a component cannot be loaded.
    """
    cases = _chosen({case.name: case for case in suite.cases}, only, "case")
    chosen = _chosen(suite.variants, variants, "variant")
    if variants and suite.baseline:
        # without it there is nothing to compare with
        chosen = {suite.baseline: suite.variants[suite.baseline], **chosen}
    built = {
        name: _target_of(suite, variant, targets.get(name), wrap, options)
        for name, variant in chosen.items()
    }
    for name in targets.keys() - built.keys():
        built[name] = ServiceTarget(targets[name])
    judges = {
        name: load_judge(path, wrap) for name, path in suite.judges.items()
    }
    common = _common_of(suite, judges)
    baseline = suite.baseline or next(iter(built))
    configurations = {
        name: _configuration_of(suite, suite.variants.get(name), target)
        for name, target in built.items()
    }

    def key_of(name: str, case: Case, number: int) -> str:
        """Return the key of a run: a digest of all that decides about it."""
        answers = [configurations[name]]
        checks = suite.checks_of(case)
        if name != baseline and any("prefer" in check for check in checks):
            answers.append(configurations[baseline])
        decisions = (
            suite.decisions if case.decisions is None else case.decisions
        )
        described = {**asdict(case), "decisions": decisions, "must": False}
        return digest_of(common, answers, described, checks, number)

    jobs = [
        Job(name, case, number, key_of(name, case, number))
        for number in range(repeat)
        for case in cases.values()
        for name in built
    ]
    rows = read_known()
    known = {
        # the variant may have had another name, and others may be the same
        job: replace(rows[job.key], variant=job.variant)
        for job in jobs
        if job.key in rows
    }
    return Plan(suite, built, judges, jobs, known)


def _chosen(
    all_of_them: Mapping[str, Any], names: Collection[str], what: str
) -> dict[str, Any]:
    """Return those with these names, all without any, in their own order.

    Raises:
        ConfigurationError: There is none of a name.
    """
    for name in names:
        if name not in all_of_them:
            raise ConfigurationError(
                f"The suite has no {what} '{name}'.",
                suggestion=did_you_mean(name, [*all_of_them])
                or f"It has: {', '.join(all_of_them)}.",
            )
    return {
        name: value
        for name, value in all_of_them.items()
        if not names or name in names
    }


def _target_of(
    suite: Suite,
    variant: Variant,
    service: Service | None,
    wrap: Callable[[Model], Model],
    options: Mapping[str, Any],
) -> Target:
    if service is not None:
        return ServiceTarget(service)
    if variant.url:
        return ServiceTarget(client_of(variant))
    if variant.image:
        raise ConfigurationError(
            f"The variant '{variant.name}' is the image '{variant.image}', and nothing has started it.",
            suggestion="Use `podwright eval`, or give a ComponentContainer in `targets`.",
        )
    component = load_variant(suite, variant, wrap, **options)
    digest = component_digest(component)
    source = _source_of(suite, variant, component, options)
    return LocalTarget(component, digest, source)


def _source_of(
    suite: Suite,
    variant: Variant,
    component: Component,
    options: Mapping[str, Any],
) -> str:
    """Return the digest of the files of a variant's folder, if it is the component as that has it; else empty."""
    folder = variant.blueprint or suite.component
    if not folder.is_dir():
        return ""
    if variant.changes:
        as_it_is = load_variant(suite, Variant(""), _unchanged, **options)
        if configuration_of(component) != configuration_of(as_it_is):
            return ""
    return code_digest(folder)


def _unchanged(model: Model) -> Model:
    return model


def _common_of(suite: Suite, judges: Mapping[str, Component]) -> list[Any]:
    """Return what decides about all runs of a suite, as JSON data."""
    fakes = {
        name: "function" if callable(fake) else fake
        for name, fake in suite.fakes.items()
    }
    return [
        _FORMAT,
        code_digest(suite.component),
        # functions for checks and fakes
        [
            file.read_text(encoding="utf-8")
            for file in sorted(suite.folder.glob("*.py"))
        ],
        fakes,
        {name: configuration_of(judge) for name, judge in judges.items()},
    ]


def _configuration_of(
    suite: Suite, variant: Variant | None, target: Target
) -> Any:
    """Return what decides about the answers of a variant, as JSON data.

    That of a service is always another one, because nobody knows which code it has now.
    """
    if not isinstance(target, LocalTarget):
        return os.urandom(16).hex()
    found = configuration_of(target.component)
    folder = variant.blueprint if variant is not None else None
    if folder is not None and folder.is_dir():
        found.append(code_digest(folder))
    return found
