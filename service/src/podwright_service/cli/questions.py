"""Asking the person at the terminal what a run waits for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from podwright.blueprints.inputs import DeclaredInputs
from podwright.components import Component
from podwright.data.json_data import as_object, to_text
from podwright.data.text import truncate
from podwright.errors import (
    DECISION,
    ApprovalRequired,
    ConfigurationError,
    InputError,
    InputsError,
)
from podwright.folders.walks import check_decision_on
from podwright.messages.approvals import APPROVE, REJECT, Decision, Question
from podwright_service.cli.console import print_error, print_text
from podwright_service.cli.inputs import split_pair

_MAX_SHOWN = 200
"""Characters of a value that is shown before it may be changed."""


@dataclass(frozen=True, slots=True)
class DecisionOptions:
    """A decision on the command line, about the run whose context the inputs are."""

    name: str | None = None
    """One of the question's options; None to approve."""
    values: Sequence[str] = ()
    """Changed values as `NAME=VALUE`."""
    comment: str = ""

    def added_to(self, run_input: Any, question: Question | None = None) -> Any:
        """The context of a run that waits, with this decision; without one, the input as it is.

        Args:
            run_input: The input of the run.
            question: The question, whose schemas tell which values are data and no texts; None if it is not known.

        Raises:
            InputError: The input is no context, or a value has no name.
        """
        if self == NO_DECISION:
            return run_input
        context = as_object(run_input)
        if not context:
            raise InputError(
                "There is nothing to decide: the input is not the context of a run that waits.",
                suggestion="Give the context with --inputs @FILE, as `podwright run` prints it.",
            )
        values = parse_values(question or Question(""), self.values)
        decision = Decision(self.name or APPROVE, self.comment, values)
        return {**context, DECISION: decision.to_dict()}


NO_DECISION = DecisionOptions()
"""The command line has no decision."""


def can_ask() -> bool:
    """Whether a person is at the terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(
    pause: ApprovalRequired, component: Component | None = None
) -> Decision | None:
    """What the person at the terminal decides; None if there is no more input.

    Args:
        pause: The pause of the run.
        component: What runs, whose tools check the decision too; None if it is elsewhere.
    """
    question = pause.question or Question(pause.message)
    print_text(question.message, sys.stderr)
    while True:
        try:
            decision = _read_decision(question)
            if component is None:
                question.check(decision)
            else:
                check_decision_on(component, question, decision)
            return decision
        except InputsError as error:
            print_error(error)
        except EOFError:
            return None


def _read_decision(question: Question) -> Decision:
    options = ", ".join(question.options)
    name = _read(f"Decide ({options}): ")
    # a wrong one is asked for again at once
    question.check(Decision(name))
    values: dict[str, Any] = {}
    if name != REJECT:
        values = _read_values(question)
    comment = _read("Comment (Enter for none): ")
    return Decision(name, comment, values)


def _read_values(question: Question) -> dict[str, Any]:
    """The values that the person changes."""
    texts: dict[str, Any] = {}
    for name, entry in question.edit.items():
        shown = truncate(to_text(entry.get("value")), _MAX_SHOWN)
        text = _read(f"{name} is {shown}; another value (Enter keeps it): ")
        if text:
            texts[name] = text
    return _converted(question, texts)


def _converted(question: Question, texts: dict[str, Any]) -> dict[str, Any]:
    """Texts as the values that the schemas of a question want."""
    schemas = {
        name: as_object(entry.get("schema"))
        for name, entry in question.edit.items()
    }
    return dict(DeclaredInputs("", schemas).convert_texts(texts))


def _read(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()


def parse_values(question: Question, pairs: Sequence[str]) -> dict[str, Any]:
    """The changed values of `NAME=VALUE` arguments; JSON for a value that is no text.

    Raises:
        InputError: A pair has no name.
    """
    texts: dict[str, Any] = {}
    for pair in pairs:
        name, value = split_pair(pair, "--value")
        texts[name] = value
    return _converted(question, texts)


def question_of(approval: dict[str, Any] | None) -> Question:
    """The question that a background run waits for.

    Raises:
        ConfigurationError: It waits for none.
    """
    if approval is None:
        raise ConfigurationError(
            "The run waits for no decision.",
            suggestion="Look at it with `podwright runs show`.",
        )
    return Question.from_dict(approval)
