"""Whether the components of new values have been evaluated, by the reports of `podwright eval`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from podwright.blueprints.files import from_json
from podwright.data.json_data import as_array, as_object
from podwright.data.text import os_error_reason
from podwright.errors import BlueprintValidationError, ConfigurationError
from podwright.evaluation.runs.variants import code_digest
from podwright_service.fleet.changes import BlueprintDigest, digest_of

FORMAT = "podwright.evaluation/1"
"""The value of `format` in a report."""
_SCORED = ("ok", "paused", "failed")
"""The status of rows that say something about the component."""
_ADVICE = "Give a file that `podwright eval PATH --json FILE` has written."


@dataclass(frozen=True, slots=True)
class Gate:
    """The outcome of a gate."""

    variant: str
    """The variant that it is about; empty if it is about the whole evaluation."""
    verdict: Literal["holds", "fails", "undecided"]
    sentence: str
    """What was found, and what would decide it."""


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """What a report says about blueprints."""

    file: str
    digests: Mapping[str, str]
    """The digests of the components that were tried, by the names of the variants."""
    sources: Mapping[str, str]
    """The digests of the files of their folders, of those that were tried as their folder has them."""
    gates: Sequence[Gate]
    is_complete: bool

    def objections(self, variant: str, *, strict: bool) -> list[str]:
        """Return why a variant may not be deployed; empty if it may.

        Args:
            variant: The name of the variant.
            strict: Whether an undecided gate counts as one that fails.
        """
        reasons = [
            gate.sentence
            for gate in self.gates
            if gate.variant in ("", variant)
            and (
                gate.verdict == "fails" or (strict and gate.verdict != "holds")
            )
        ]
        if not self.is_complete:
            reasons.append("the evaluation is incomplete")
        return [f"{self.file}, '{variant}': {reason}" for reason in reasons]


@dataclass(frozen=True, slots=True)
class RequiredEvaluations:
    """The reports that components of new values need to be deployed."""

    reports: Sequence[EvaluationReport]
    strict: bool
    """Whether an undecided gate counts as one that fails."""

    def check(
        self,
        values: Mapping[str, Any],
        sources: Mapping[str, str],
        digest_in_image: BlueprintDigest,
    ) -> None:
        """Check that components have been evaluated as they are in new values.

        Args:
            values: The new values.
            sources: Where each component that is to be deployed comes from, by its name in the values.
            digest_in_image: Looks at an image, if a blueprint is in one.

        Raises:
            ConfigurationError: A component has no report, or none whose gates let it pass; the message has all of them.
        """
        problems: list[str] = []
        unevaluated: list[str] = []
        for name, source in sources.items():
            digest = digest_of(values, name, digest_in_image)
            files: str | None = None
            if Path(source).is_dir():
                files = code_digest(Path(source))
            reasons = self._objections(digest, files)
            if reasons:
                problems.append(
                    f"The component '{name}': {'; '.join(reasons)}."
                )
                unevaluated.append(source)
        if problems:
            commands = ", ".join(
                f"`podwright eval {source} --json FILE`"
                for source in unevaluated
            )
            raise ConfigurationError(
                " ".join(problems),
                suggestion=f"Evaluate as it is now: {commands}, and give the report with --require-evaluation.",
            )

    def _objections(self, digest: str | None, files: str | None) -> list[str]:
        """Return why no report lets a component pass; empty if one does.

        Args:
            digest: Its digest; None if that is not known.
            files: The digest of the files of its folder; None if it has none.
        """
        if digest is None:
            return [
                "its digest is not known, because its image, or the lock in it, cannot be read"
            ]
        reasons: list[str] = []
        for report in self.reports:
            for variant, evaluated in report.digests.items():
                if evaluated != digest:
                    continue
                if files is not None and report.sources[variant] != files:
                    reasons.append(
                        f"{report.file}, '{variant}': tried with other files of the folder, or with other members"
                    )
                    continue
                objections = report.objections(variant, strict=self.strict)
                if not objections:
                    return []
                reasons += objections
        return reasons or [self._missing(digest)]

    def _missing(self, digest: str) -> str:
        known = ", ".join(
            f"{report.file} has {evaluated} ('{variant}')"
            for report in self.reports
            for variant, evaluated in report.digests.items()
        )
        return f"no report has its digest {digest}; {known or 'the reports have none'}"


def read_reports(paths: Sequence[str]) -> list[EvaluationReport]:
    """Read reports of `podwright eval --json`.

    Args:
        paths: Files, and folders of which all reports in JSON files count.

    Raises:
        ConfigurationError: A file cannot be read or is no report, or a folder has none.
    """
    reports: list[EvaluationReport] = []
    for path in paths:
        if not Path(path).is_dir():
            reports.append(_report(path, _read(path)))
            continue
        found = {
            str(file): _read(file) for file in sorted(Path(path).glob("*.json"))
        }
        in_folder = [
            _report(file, data)
            for file, data in found.items()
            if as_object(data).get("format") == FORMAT
        ]
        if not in_folder:
            raise ConfigurationError(
                f"The folder '{path}' has no report of an evaluation.",
                suggestion=f"Write one: `podwright eval PATH --json {path}/FILE.json`.",
            )
        reports += in_folder
    return reports


def _read(file: str | Path) -> Any:
    try:
        return from_json(Path(file).read_bytes())
    except OSError as error:
        reason = os_error_reason(error)
    except BlueprintValidationError as error:
        reason = error.problems[0].detail.rstrip(".")
    raise ConfigurationError(
        f"Cannot read the evaluation report '{file}': {reason}.",
        suggestion=_ADVICE,
    )


def _report(file: str, data: Any) -> EvaluationReport:
    """Return what a report says.

    Raises:
        ConfigurationError: It is none.
    """
    report = as_object(data)
    if report.get("format") != FORMAT:
        raise ConfigurationError(
            f"The file '{file}' is not an evaluation report: its `format` is not '{FORMAT}'.",
            suggestion=_ADVICE,
        )
    variants = dict(as_object(report.get("variants")))
    # a baseline that was evaluated in another report, whose gates are there
    for name in as_array(report.get("from_elsewhere")):
        variants.pop(name, None)
    return EvaluationReport(
        file=file,
        digests={
            name: str(as_object(variant).get("digest") or "")
            for name, variant in variants.items()
        },
        sources={
            name: str(as_object(variant).get("source") or "")
            for name, variant in variants.items()
        },
        gates=[
            *(_gate(as_object(gate)) for gate in as_array(report.get("gates"))),
            *_failed_cases(report),
        ],
        is_complete=not report.get("incomplete"),
    )


def _gate(data: Mapping[str, Any]) -> Gate:
    verdict = data.get("verdict")
    sentence = str(data.get("sentence") or "").rstrip(".")
    return Gate(
        str(data.get("variant") or ""),
        # a verdict of a later version is not taken for one that holds
        verdict if verdict in ("holds", "undecided") else "fails",
        sentence or f"{data.get('name')}: {verdict}",
    )


def _failed_cases(report: Mapping[str, Any]) -> list[Gate]:
    """Return a gate that fails for each variant and case that must pass, and has a failed run."""
    must = as_array(report.get("must"))
    failed: dict[tuple[str, str], None] = {}
    for each in as_array(report.get("rows")):
        row = as_object(each)
        case = str(row.get("case"))
        if case not in must or row.get("status") not in _SCORED:
            continue
        checks = as_array(row.get("checks"))
        if not all(as_object(check).get("passed") for check in checks):
            failed[str(row.get("variant")), case] = None
    return [
        Gate(variant, "fails", f"the case '{case}' must pass, and has failed")
        for variant, case in failed
    ]
