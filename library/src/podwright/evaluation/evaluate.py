"""`evaluate`: run the cases of a suite with its variants, and report what can be said of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any

from podwright.data.json_data import JsonMapping, to_text
from podwright.data.text import truncate
from podwright.errors import RunError
from podwright.evaluation.reports.report import Report
from podwright.evaluation.reports.row import SCORED, Row, RowStatus, Verdict
from podwright.evaluation.runs.answers import DEFAULT_BUDGET, PaidAnswers
from podwright.evaluation.runs.checks import (
    end_verdict,
    verdict_on,
    wants_end,
)
from podwright.evaluation.runs.judges import JudgeError, Judges
from podwright.evaluation.runs.outcome import Outcome
from podwright.evaluation.runs.plan import Job, Plan, make_plan
from podwright.evaluation.runs.stored_rows import StoredRows
from podwright.evaluation.runs.targets import Service
from podwright.evaluation.suite import Case, Suite
from podwright.folders.folder import Folder
from podwright.messages.usage import add_cost
from podwright.models.recorded_answers import Sample
from podwright.run.sync import run_sync

DEFAULT_CONCURRENCY = 8
"""Runs at once, if nobody says."""
_FIXTURES = "fixtures.py"
_AROUND = "around_run"
"""A function of that file, which returns a context manager for a run of a case."""
_FIXTURE_FAILED = "fixture_failed"
_FURTHER_TRIES = 2
"""How often a run is made again that a provider lets fail."""
_SHOWN_OUTPUT = 500
"""Characters of an answer that a row has."""
_HIDDEN_FAILURE = "A provider failed, and the component went on without it."
_NOTHING_LEFT = "Nothing is left of the budget of the evaluation."
_NOTHING_TO_COMPARE = RunError("the baseline has no answer to compare with.")


class Evaluation:
    """The runs of a suite's cases with its variants.

    Args:
        suite: The suite.
        targets: Services that answer as further variants, or as those of the suite that name an image.
        repeat: How often each case is run; by default as the suite says.
        budget: USD that may be paid; None for any amount.
        only: The names of the cases; by default all.
        variants: The names of the suite's variants; by default all. The baseline is always one of them.
        fresh: Whether nothing that is recorded is used.
        max_age: Seconds after which what is recorded is not used any more; None uses all.
        **options: As in `podwright.load`.

    Raises:
        ConfigurationError: A name is unknown, or a component cannot be loaded.
    """

    def __init__(
        self,
        suite: Suite,
        *,
        targets: Mapping[str, Service] | None = None,
        repeat: int | None = None,
        budget: float | None = DEFAULT_BUDGET,
        only: Collection[str] = (),
        variants: Collection[str] = (),
        fresh: bool = False,
        max_age: float | None = None,
        **options: Any,
    ) -> None:
        folder = suite.recorded
        self.answers = PaidAnswers(
            folder / "answers", budget, fresh=fresh, max_age=max_age
        )
        self._rows = StoredRows(folder, max_age)
        self.repeat = repeat or suite.repeat
        self.plan: Plan = make_plan(
            suite,
            self.answers.around,
            targets=targets or {},
            repeat=self.repeat,
            only=only,
            variants=variants,
            read_known=dict if fresh else self._rows.read,
            **options,
        )
        self._judges = Judges(self.plan.judges)
        fixtures = Folder(suite.folder).functions(_FIXTURES, {_AROUND})
        self._around_run = fixtures.get(_AROUND)
        self._baseline_outputs: dict[tuple[str, int], asyncio.Future[Any]] = {}

    async def run(
        self,
        on_row: Callable[[Row], None] = lambda row: None,
        concurrency: int = DEFAULT_CONCURRENCY,
    ) -> Report:
        """Make the runs that are not known, and return the report on all.

        Cancelling it keeps the rows and the answers that it has.

        Args:
            on_row: Called with each row, known ones first.
            concurrency: How many runs there are at once.

        Raises:
            RemoteError: A service does not answer at the start.
        """
        for target in self.plan.targets.values():
            await target.prepare()
        # so that the first run is not the one that loads the prices
        for model in self.plan.models():
            await model.prepare()
        loop = asyncio.get_running_loop()
        self._baseline_outputs = {
            job.place: loop.create_future() for job in self.plan.jobs
        }
        rows: dict[Job, Row] = {}

        def add(job: Job, row: Row) -> None:
            rows[job] = row
            on_row(row)

        for job in self.plan.jobs:
            if job in self.plan.known:
                add(job, self.plan.known[job])
                self._offer_output(job, self._known_output(job))
        limit = asyncio.Semaphore(concurrency)
        try:
            async with asyncio.TaskGroup() as group:
                for job in self.plan.to_run:
                    group.create_task(self._run_job(job, limit, add))
        except ExceptionGroup as errors:
            # the others are of the same fault
            raise errors.exceptions[0] from errors
        return Report.of(
            self.plan.suite,
            [rows[job] for job in self.plan.jobs],
            digests=self.plan.digests,
            sources=self.plan.sources,
            baseline=self.plan.baseline,
            repeat=self.repeat,
            made_at=datetime.now(UTC),
        )

    async def _run_job(
        self,
        job: Job,
        limit: asyncio.Semaphore,
        add: Callable[[Job, Row], None],
    ) -> None:
        other: Any = None
        if self._compares(job):
            # outside of the limit, which the baseline's run may wait for
            other = await self._baseline_outputs[job.place]
        async with limit:
            row, outcome = await self._make_row(job, other)
            for _ in range(_FURTHER_TRIES):
                if row.status == "error":
                    row, outcome = await self._make_row(job, other)
        self._rows.add(row)
        self._offer_output(job, outcome.output if row.is_scored else None)
        add(job, row)

    def _compares(self, job: Job) -> bool:
        checks = self.plan.suite.checks_of(job.case)
        is_baseline = job.variant == self.plan.baseline
        return not is_baseline and any("prefer" in check for check in checks)

    def _offer_output(self, job: Job, output: Any) -> None:
        """Let the runs that are compared with one of the baseline have its answer; None if it has none."""
        if job.variant == self.plan.baseline:
            self._baseline_outputs[job.place].set_result(output)

    def _known_output(self, job: Job) -> Any:
        with contextlib.suppress(OSError, ValueError):
            trace = json.loads(self._rows.trace_file(job.key).read_bytes())
            return trace["value"]
        return self.plan.known[job].output

    async def _make_row(self, job: Job, other: Any) -> tuple[Row, Outcome]:
        # variants that are the same have the same key, and each its own answers
        payer = f"{job.variant}: {job.key}"
        with self.answers.sample_of(payer, job.repeat) as sample:
            outcome = await self._outcome(job, sample)
        status = outcome.status
        error = (outcome.error_code, outcome.error)
        verdicts: list[Verdict] = []
        with self.answers.sample_of(f"{payer}: judges", job.repeat) as judged:
            if outcome.provider_error and status != "error":
                status = "error"
                error = (outcome.provider_error, _HIDDEN_FAILURE)
            elif status in SCORED and not sample.refused:
                try:
                    verdicts = await self._verdicts(job, outcome, other)
                except JudgeError as failure:
                    status = "error"
                    error = (failure.code, str(failure))
        if sample.refused or judged.refused:
            status = "budget"
            error = ("", _NOTHING_LEFT)
            verdicts = []
        row = self._row(
            job,
            outcome,
            status,
            sample,
            judged,
            verdicts=verdicts,
            error=error,
        )
        return row, outcome

    async def _outcome(self, job: Job, sample: Sample) -> Outcome:
        """Run a case, if something is left of the budget for a service."""
        target = self.plan.targets[job.variant]
        decisions = job.case.decisions
        if decisions is None:
            decisions = self.plan.suite.decisions
        if not target.is_local and self.answers.is_used_up():
            sample.refused += 1
            return Outcome("error")
        try:
            async with self._around(job.case):
                outcome = await target.run(job.case, decisions)
        except Exception as error:
            if self._around_run is None:
                raise
            # neither the case nor the others are to blame
            reason = f"{type(error).__name__}: {error}"
            outcome = Outcome(
                "error",
                error_code=_FIXTURE_FAILED,
                error=f"'{_AROUND}' of '{_FIXTURES}' failed: {truncate(reason, 300)}",
            )
        if not target.is_local:
            self.answers.count_elsewhere(sample, outcome.usage)
        return outcome

    @contextlib.asynccontextmanager
    async def _around(self, case: Case) -> AsyncGenerator[None]:
        """Surround a run of a case as `around_run` of `fixtures.py` says."""
        manager = self._around_run(case) if self._around_run else None
        if manager is None:
            yield
        elif isinstance(manager, AbstractAsyncContextManager):
            async with manager:
                yield
        else:
            with manager:
                yield

    async def _verdicts(
        self, job: Job, outcome: Outcome, other: Any
    ) -> list[Verdict]:
        """Return the verdicts on a run.

        Raises:
            JudgeError: A judge gave none.
        """
        suite = self.plan.suite
        checks = suite.checks_of(job.case)
        end = end_verdict(outcome, job.case.expect_error, checks)
        verdicts = [] if end is None else [end]
        if outcome.status == "failed":
            # there is nothing else to check
            checks = [check for check in checks if wants_end(check)]

        async def ask(check: JsonMapping, readable: JsonMapping) -> Verdict:
            return await self._judges.verdict(check, readable, other)

        for check in checks:
            if "prefer" in check and job.variant == self.plan.baseline:
                continue
            if "prefer" in check and other is None:
                raise JudgeError(check["prefer"], _NOTHING_TO_COMPARE)
            verdicts.append(
                await verdict_on(
                    check, outcome, job.case.inputs, suite.conditions, ask
                )
            )
        return verdicts

    def _row(
        self,
        job: Job,
        outcome: Outcome,
        status: RowStatus,
        sample: Sample,
        judged: Sample,
        *,
        verdicts: list[Verdict],
        error: tuple[str, str],
    ) -> Row:
        usage = outcome.usage
        trace = ""
        if status in SCORED:
            trace = self._rows.add_trace(job.key, outcome.trace().to_dict())
        code, message = error
        times = [
            each.oldest for each in (sample, judged) if each.oldest is not None
        ]
        return Row(
            key=job.key,
            variant=job.variant,
            case=job.case.name,
            repeat=job.repeat,
            status=status,
            checks=verdicts,
            cost=usage.cost,
            tokens=usage.total_tokens,
            model_calls=usage.model_calls,
            seconds=outcome.seconds,
            is_timed=sample.asked == sample.live and not sample.replayed,
            paid=add_cost(sample.paid, judged.paid) or 0.0,
            paid_judges=judged.paid,
            live_calls=sample.live + judged.live,
            replayed_calls=sample.replayed + judged.replayed,
            unpriced_calls=sample.unpriced + judged.unpriced,
            oldest_answer=min(times, default=None),
            output=truncate(to_text(outcome.output), _SHOWN_OUTPUT),
            error_code=code,
            error=message,
            trace=trace,
        )


async def aevaluate(
    suite: Suite,
    *,
    against: Report | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
    **options: Any,
) -> Report:
    """As `evaluate`, from asynchronous code; cancelling it keeps what it has paid for."""
    report = await Evaluation(suite, **options).run(concurrency=concurrency)
    if against is not None:
        report = report.with_baseline(against)
    return report


def evaluate(
    suite: Suite,
    *,
    against: Report | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
    **options: Any,
) -> Report:
    """Run the cases of a suite with its variants, and report what can be said of them.

        report = evaluate(Suite.load("desk"), repeat=3, budget=2.0)
        report.assert_gates()

    Answers are recorded in the suite's folder, in `.recorded`: what has not changed is paid for once, and an evaluation
    that was interrupted goes on at its next start.

    Args:
        suite: The suite.
        against: An earlier report, whose baseline is the one of this evaluation.
        concurrency: How many runs there are at once.
        **options: See `Evaluation`.

    Raises:
        ConfigurationError: A name is unknown, or a component cannot be loaded.
    """
    return run_sync(
        aevaluate(suite, against=against, concurrency=concurrency, **options)
    )
