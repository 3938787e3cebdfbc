"""The report of an evaluation: what its rows say of variants, of their differences, and of the gates."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Self

from podwright.data.files import replace_file
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    to_json_bytes,
)
from podwright.data.text import did_you_mean, os_error_reason
from podwright.errors import ConfigurationError
from podwright.evaluation.reports.gates import Gate, gates_of
from podwright.evaluation.reports.row import Row
from podwright.evaluation.reports.statistics import (
    Difference,
    Rate,
    Ratio,
    detectable_loss,
    difference_of,
    percentile,
    rate_of,
    ratio_of,
)
from podwright.evaluation.suite import Gates, Suite

FORMAT: Final = "podwright.evaluation/1"
"""The format of a saved report."""
FAILED: Final = 1
"""The exit code if a gate fails."""
INCOMPLETE: Final = 4
"""The exit code if runs are missing."""
_PICO: Final = 12
"""Digits of amounts in USD, as in `Usage`."""


@dataclass(frozen=True, slots=True)
class VariantReport:
    """What the runs of a variant say."""

    name: str
    digest: str
    """The digest of its blueprint; empty if it is not known."""
    source: str
    """The digest of the files of its folder, if it is the component as that has it; else empty."""
    passed: Rate | None
    """The share of its runs that pass; None if none is scored."""
    cost: float | None
    """The mean cost of a run in USD; None if one is unknown."""
    p50: float | None
    """The median of the seconds of its live runs; None if there are none."""
    p95: float | None
    """Their 95th percentile."""
    runs: int
    """The runs that are scored."""
    errors: int
    """The runs that say nothing about it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A variant and the baseline, over the cases that both have."""

    passed: Difference | None
    """By how much more runs pass; None without a common case."""
    cost: Ratio | None
    """How many times as much a run costs; None if a price is unknown."""
    p95: float | None
    """How many times as long the slowest runs take; None without live runs of both."""
    timed_runs: int
    """The live runs of the one of the two that has fewer."""


@dataclass(frozen=True)
class Report:
    """What an evaluation has found.

    `report["small, short"].passed` is a rate with its interval, `report.compare("small, short")` the comparison with
    the baseline.
    """

    suite: str
    """The name of the component's folder."""
    repeat: int
    """How often each case was run."""
    cases: Sequence[str]
    must: Sequence[str]
    """The cases of which no run may fail."""
    baseline: str
    """The variant with which the others are compared."""
    digests: Mapping[str, str]
    """The digests of the variants, in their order."""
    gate_values: Gates
    rows: Sequence[Row]
    made_at: str
    """When it was made: ISO 8601, in UTC."""
    from_elsewhere: Sequence[str] = field(default=())
    """The variants that another report has."""
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    """The digests of folders' files; see `VariantReport.source`."""
    case_digests: Mapping[str, str] = field(default_factory=dict[str, str])
    """A digest of what each case asks and checks, by its name; empty in a report of an earlier release."""

    @classmethod
    def of(
        cls,
        suite: Suite,
        rows: Sequence[Row],
        *,
        digests: Mapping[str, str],
        baseline: str,
        repeat: int,
        made_at: datetime,
        sources: Mapping[str, str] | None = None,
    ) -> Self:
        """Return the report on the rows of a suite.

        Args:
            suite: The suite.
            rows: Its rows, one for each variant, case and repetition, in any order.
            digests: The digests of the variants, in their order.
            baseline: The variant with which the others are compared.
            repeat: How often each case was run.
            made_at: When.
            sources: The digests of folders' files, by the names of the variants; see `VariantReport.source`.
        """
        chosen = {row.case for row in rows}
        cases = [case for case in suite.cases if case.name in chosen]
        places = {case.name: place for place, case in enumerate(cases)}
        variants = {name: place for place, name in enumerate(digests)}

        def place_of(row: Row) -> tuple[int, int, int]:
            case = places.get(row.case, len(places))
            return case, variants.get(row.variant, len(variants)), row.repeat

        return cls(
            suite.name,
            repeat,
            [case.name for case in cases],
            [case.name for case in cases if case.must],
            baseline,
            dict(digests),
            suite.gates,
            sorted(rows, key=place_of),
            made_at.isoformat(timespec="seconds"),
            sources=dict(sources or {}),
            case_digests={case.name: suite.digest_of(case) for case in cases},
        )

    # --- Variants

    @cached_property
    def variants(self) -> Mapping[str, VariantReport]:
        """What is said of the variants, by name, in their order."""
        return {name: self._variant(name) for name in self.digests}

    @cached_property
    def rows_by_case(self) -> Mapping[str, Mapping[str, Sequence[Row]]]:
        """The rows that are scored, by variant and case."""
        found: dict[str, dict[str, list[Row]]] = {
            name: {} for name in self.digests
        }
        for row in self.rows:
            if row.is_scored and row.variant in found:
                found[row.variant].setdefault(row.case, []).append(row)
        return found

    @cached_property
    def _unscored(self) -> Mapping[str, int]:
        counts: defaultdict[str, int] = defaultdict(int)
        for row in self.rows:
            counts[row.variant] += not row.is_scored
        return counts

    def __getitem__(self, variant: str) -> VariantReport:
        """What is said of a variant.

        Raises:
            ConfigurationError: There is none of this name.
        """
        if variant not in self.variants:
            raise ConfigurationError(
                f"The report has no variant '{variant}'.",
                suggestion=did_you_mean(variant, [*self.variants])
                or f"It has: {', '.join(self.variants)}.",
            )
        return self.variants[variant]

    def _variant(self, name: str) -> VariantReport:
        by_case = self.rows_by_case[name]
        rows = [row for case in by_case.values() for row in case]
        seconds = _seconds(rows)
        return VariantReport(
            name,
            self.digests[name],
            self.sources.get(name, ""),
            rate_of(_passed(by_case, [*by_case])) if rows else None,
            _mean_cost(rows),
            percentile(seconds, 0.5),
            percentile(seconds, 0.95),
            len(rows),
            self._unscored.get(name, 0),
        )

    def compare(self, variant: str) -> Comparison:
        """Compare a variant with the baseline.

        Raises:
            ConfigurationError: There is none of this name.
        """
        new = self[variant]
        old = self[self.baseline]
        before = self.rows_by_case[old.name]
        after = self.rows_by_case[new.name]
        common = [
            case for case in self.cases if case in before and case in after
        ]
        if not common:
            return Comparison(None, None, None, 0)
        old_seconds = _seconds([row for case in common for row in before[case]])
        new_seconds = _seconds([row for case in common for row in after[case]])
        old_p95 = percentile(old_seconds, 0.95)
        new_p95 = percentile(new_seconds, 0.95)
        ratio: float | None = None
        if old_p95 and new_p95 is not None:
            ratio = new_p95 / old_p95
        return Comparison(
            difference_of(_passed(before, common), _passed(after, common)),
            _cost_ratio(before, after, common),
            ratio,
            min(len(old_seconds), len(new_seconds)),
        )

    # --- What a person should look at

    def worse_cases(self) -> list[str]:
        """Say which cases always passed with the baseline and never do with a variant, and why."""
        found: list[str] = []
        before = self.rows_by_case[self.baseline]
        for name, by_case in self.rows_by_case.items():
            for case, rows in by_case.items():
                old = before.get(case, ())
                always = old and all(row.passed for row in old)
                if always and not any(row.passed for row in rows):
                    found.append(
                        f"{case} {len(old)}/{len(old)} → 0/{len(rows)} ({name}): {rows[0].reasons()[0]}"
                    )
        return found

    def flaky_cases(self) -> list[str]:
        """Say which cases pass at times only, with each variant."""
        found: list[str] = []
        for name, by_case in self.rows_by_case.items():
            for case, rows in by_case.items():
                passed = sum(row.passed for row in rows)
                if 0 < passed < len(rows):
                    found.append(f"{case} {passed}/{len(rows)} ({name})")
        return found

    @cached_property
    def incomplete(self) -> list[str]:
        """What is missing: runs that providers or the budget have kept from being made, by their reasons."""
        counts: defaultdict[str, int] = defaultdict(int)
        for row in self._own_rows:
            if not row.is_scored:
                counts[row.error or row.error_code or row.status] += 1
        expected = (
            len(self.cases)
            * self.repeat
            * (len(self.digests) - len(self.from_elsewhere))
        )
        missing = expected - len(self._own_rows)
        if missing > 0:
            counts["Not begun."] += missing
        return [f"{count} runs: {reason}" for reason, count in counts.items()]

    def failed_must(self) -> list[str]:
        """Say which cases have a failed run that must have none."""
        must = {*self.must}
        failed = {
            (row.case, row.variant): row.reasons()[0]
            for row in self._own_rows
            if row.case in must and row.is_scored and not row.passed
        }
        return [
            f"{case} must pass, and fails with {variant}: {why}"
            for (case, variant), why in failed.items()
        ]

    def detectable_loss(self) -> float | None:
        """Return which loss against the baseline this evaluation would find in four of five tries: 0 to 1."""
        passed = self[self.baseline].passed
        if passed is None or len(self.digests) == 1:
            return None
        return detectable_loss(passed.cases, self.repeat, passed.value)

    # --- Gates

    @cached_property
    def gates(self) -> Sequence[Gate]:
        """What the gates say of the variants."""
        return list(gates_of(self))

    def failures(self, *, strict: bool = False) -> list[str]:
        """Say why the evaluation fails; empty if it does not.

        Args:
            strict: Whether a gate that is undecided fails, too.
        """
        failed = [
            gate.sentence
            for gate in self.gates
            if gate.verdict == "fails"
            or (strict and gate.verdict == "undecided")
        ]
        return [*self.failed_must(), *failed]

    def exit_code(self, *, strict: bool = False) -> int:
        """Return the exit code of the command: 1 if it fails, 4 if it is incomplete, else 0.

        Args:
            strict: See `failures`.
        """
        if self.failures(strict=strict):
            return FAILED
        return INCOMPLETE if self.incomplete else 0

    def assert_gates(self, *, strict: bool = False) -> None:
        """Check that the evaluation is complete and does not fail.

        Args:
            strict: See `failures`.

        Raises:
            AssertionError: With all reasons.
        """
        reasons = [*self.failures(strict=strict), *self.incomplete]
        if reasons:
            raise AssertionError("\n".join(reasons))

    # --- What it has cost

    @cached_property
    def paid(self) -> float:
        """USD that the runs have cost, judges included, without answers that others have paid for."""
        return _sum([row.paid for row in self._own_rows])

    @cached_property
    def paid_judges(self) -> float:
        """The part of `paid` that judges have cost."""
        return _sum([row.paid_judges for row in self._own_rows])

    @cached_property
    def unpriced_calls(self) -> int:
        """Model calls that were made whose price is unknown, so that `paid` is without them."""
        return sum(row.unpriced_calls for row in self._own_rows)

    @cached_property
    def _own_rows(self) -> list[Row]:
        return [
            row for row in self.rows if row.variant not in self.from_elsewhere
        ]

    @cached_property
    def live_calls(self) -> int:
        """Model calls that were made."""
        return sum(row.live_calls for row in self._own_rows)

    @cached_property
    def replayed_calls(self) -> int:
        """Model calls that recorded answers stood for."""
        return sum(row.replayed_calls for row in self._own_rows)

    @cached_property
    def oldest_answer(self) -> float | None:
        """When the oldest replayed answer was given, in seconds since 1970; None if none was replayed."""
        times = [
            row.oldest_answer
            for row in self._own_rows
            if row.oldest_answer is not None
        ]
        return min(times, default=None)

    # --- Another report as the baseline

    def with_baseline(self, other: Report) -> Report:
        """Return this report with the baseline of another one as its own.

        The variant is named after the baseline and the day of the other report. Cases are paired by their names; those
        that one of the two lacks, or that ask or check something else by now, are left out of comparisons.

        Args:
            other: The other report.
        """
        name = title = f"{other.baseline} ({other.made_at[:10]})"
        number = 2
        while name in self.digests:
            name = f"{title} {number}"
            number += 1
        comparable = {*self.cases} - {*changed_cases(other, self.case_digests)}
        rows = [
            replace(row, variant=name)
            for row in other.rows
            if row.variant == other.baseline and row.case in comparable
        ]
        return replace(
            self,
            baseline=name,
            digests={name: other[other.baseline].digest, **self.digests},
            sources={name: other[other.baseline].source, **self.sources},
            rows=[*rows, *self.rows],
            from_elsewhere=[name, *self.from_elsewhere],
        )

    def blessed(self, variant: str | None = None) -> Report:
        """Return the report on one variant alone, without what models have said: a baseline for later ones.

        Args:
            variant: The variant; by default the baseline.

        Raises:
            ConfigurationError: There is none of this name, or it is incomplete.
        """
        name = variant or self.baseline
        if self[name].errors or self[name].passed is None:
            raise ConfigurationError(
                f"The variant '{name}' is incomplete, so it is no baseline.",
                suggestion="Run `podwright eval` again.",
            )
        rows = [
            replace(
                row,
                output="",
                trace="",
                error="",
                checks=[replace(check, reason="") for check in row.checks],
            )
            for row in self.rows
            if row.variant == name
        ]
        return replace(
            self,
            baseline=name,
            digests={name: self.digests[name]},
            sources={name: self[name].source},
            rows=rows,
            from_elsewhere=(),
        )

    # --- Files

    def to_dict(self) -> JsonObject:
        """The report as JSON data."""
        return {
            "format": FORMAT,
            "suite": self.suite,
            "made_at": self.made_at,
            "repeat": self.repeat,
            "cases": list(self.cases),
            "case_digests": dict(self.case_digests),
            "must": list(self.must),
            "baseline": self.baseline,
            "variants": {
                name: asdict(found) for name, found in self.variants.items()
            },
            "comparisons": {
                name: asdict(self.compare(name))
                for name in self.digests
                if name != self.baseline
            },
            "gate_values": asdict(self.gate_values),
            "gates": [asdict(gate) for gate in self.gates],
            "incomplete": list(self.incomplete),
            "exit_code": self.exit_code(),
            "paid": self.paid,
            "paid_judges": self.paid_judges,
            "live_calls": self.live_calls,
            "replayed_calls": self.replayed_calls,
            "unpriced_calls": self.unpriced_calls,
            "from_elsewhere": list(self.from_elsewhere),
            "rows": [row.to_dict() for row in self.rows],
        }

    @classmethod
    def from_dict(cls, data: JsonMapping) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            ConfigurationError: It is no report, or one of a newer format.
        """
        if data.get("format") != FORMAT:
            raise ConfigurationError(
                f"This is no report of the format {FORMAT}.",
                suggestion="Name a file that `podwright eval --json FILE` wrote.",
            )
        try:
            report = cls(
                data["suite"],
                data["repeat"],
                data["cases"],
                data["must"],
                data["baseline"],
                {
                    name: each["digest"]
                    for name, each in data["variants"].items()
                },
                Gates(**data["gate_values"]),
                [Row.from_dict(row) for row in data["rows"]],
                data["made_at"],
                data["from_elsewhere"],
                {
                    name: each["source"]
                    for name, each in data["variants"].items()
                },
                data.get("case_digests", {}),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"The report is damaged: {type(error).__name__} {error}."
            ) from error
        if report.baseline not in report.digests:
            raise ConfigurationError(
                f"The report is damaged: it lacks its baseline '{report.baseline}'."
            )
        return report

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a saved report.

        Raises:
            ConfigurationError: It cannot be read, or is no report.
        """
        try:
            data: Any = json.loads(Path(path).read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"Cannot read the report '{path}': {os_error_reason(error)}."
            ) from error
        return cls.from_dict(as_object(data))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report; an earlier file is replaced as a whole.

        Raises:
            ConfigurationError: It cannot be written.
        """
        try:
            replace_file(Path(path), to_json_bytes(self.to_dict()).decode())
        except OSError as error:
            raise ConfigurationError(
                f"Cannot write the report '{path}': {os_error_reason(error)}."
            ) from error


def changed_cases(report: Report, digests: Mapping[str, str]) -> list[str]:
    """Return the cases of a report that ask or check something else by now.

    Args:
        report: The report.
        digests: The digests of the cases by now, by their names.
    """
    return [
        name
        for name, digest in report.case_digests.items()
        if digests.get(name, digest) != digest
    ]


def _passed(
    by_case: Mapping[str, Sequence[Row]], cases: Sequence[str]
) -> list[list[bool]]:
    return [[row.passed for row in by_case[case]] for case in cases]


def _sum(amounts: Sequence[float]) -> float:
    """Return a sum in USD that does not depend on the order."""
    return round(math.fsum(amounts), _PICO)


def _mean_cost(rows: Sequence[Row]) -> float | None:
    costs = [row.cost for row in rows if row.cost is not None]
    if not rows or len(costs) < len(rows):
        return None
    return fmean(costs)


def _cost_ratio(
    before: Mapping[str, Sequence[Row]],
    after: Mapping[str, Sequence[Row]],
    cases: Sequence[str],
) -> Ratio | None:
    old = [_mean_cost(before[case]) for case in cases]
    new = [_mean_cost(after[case]) for case in cases]
    known_old = [cost for cost in old if cost is not None]
    known_new = [cost for cost in new if cost is not None]
    if len(known_old) < len(cases) or len(known_new) < len(cases):
        return None
    return ratio_of(known_old, known_new)


def _seconds(rows: Sequence[Row]) -> list[float]:
    """Return how long runs took all of whose answers a model has given just then."""
    return [row.seconds for row in rows if row.is_timed]
