"""Evaluation: the same cases with several configurations of a component, and what can be said of the difference.

Example:
    from podwright.evaluation import Suite, evaluate

    report = evaluate(Suite.load("desk"), repeat=3, budget=2.0)
    print(report["small, short"].passed, report.compare("small, short").passed)
    report.assert_gates()
"""

from podwright.evaluation.evaluate import Evaluation, aevaluate, evaluate
from podwright.evaluation.reports.report import Report
from podwright.evaluation.reports.row import Row
from podwright.evaluation.suite import Case, Gates, Suite, Variant

__all__ = [
    "Case",
    "Evaluation",
    "Gates",
    "Report",
    "Row",
    "Suite",
    "Variant",
    "aevaluate",
    "evaluate",
]
