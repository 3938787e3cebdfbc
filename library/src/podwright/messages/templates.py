"""Templates: `{name}` and `{name.field}`, replaced in one pass; `{{name}}` is the text `{name}`.

A field is the key of an object or the index of a list: `{ticket.category}`, `{items.0.name}`, `{ticket["a key"]}`;
`podwright.data.names` has the rule. Templates have no other expressions; a value that looks like a template stays text.
Braces that are not around a name stay as they are, because prompts have JSON, code and LaTeX in them. The exception is
JSON whose braces are all doubled, as in a format string of Python: `{{"city": "{name}"}}` is `{"city": "…"}`.

`{run.date}` and the like are of the run that fills the template, also if the context has a value called `run`: a caller
who gives one is not believed to be somebody else.

No name stays unfilled: it is an error if the context lacks it. So is a text in braces that names a value in a way that
is not filled, such as `{ticket.a key}`. Brackets after an unknown name are code: `{row["x"]}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, cast

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    copy_json,
    walk_json,
)
from podwright.data.media import to_shown_text
from podwright.data.names import (
    EXPRESSION,
    RUN,
    RUN_FIELDS,
    Expression,
    find_name,
    normal_form,
    parse_expression,
    read_literally,
)
from podwright.data.text import did_you_mean, most_similar, truncate
from podwright.errors import ContextError
from podwright.location import current

Context = Mapping[str, Any]
"""Values by name."""
_Match = re.Match[str]

_NAME = re.compile(rf"(?<!\{{)(\{{++)({EXPRESSION})(\}}++)")
"""What may be a name, perhaps with fields, with all braces around it. An odd number of pairs is a value; each two pairs
are one pair of braces."""
_IN_BRACES = re.compile(r"(?<!\{)(\{++)([^{}\n]{1,200})(\}++)")
"""A text with all braces around it."""
_BRACES = re.compile(rf"{_NAME.pattern}|\{{++|\}}++")
"""A name, or braces that are not around a name."""
_DOUBLED_OBJECT = re.compile(r'(?<!\{)\{\{\s*+"[^"\n]*+"\s*+:')
"""The start of a JSON object with doubled braces."""

_LATEX = re.compile(
    r"(?:\\[A-Za-z]++\*?(?:\[[^\]\n]*\])?(?:\{[^{}\n]*+\})*_?|(?<![A-Za-z0-9_])[A-Za-z]_)$"
)
"""What stands before the braces of an argument or an index in LaTeX: `\\frac{a}{b}`, `\\sum_{i}`, `x_{i}`."""
_CODE_LENGTH = 60
"""Characters before a name in which such code is looked for."""

_MAX_CHARACTERS = 4_000_000
"""Limit of the filled-in text."""
_MAX_REPEATED = 100_000
"""Characters that may be filled in again: a template that repeats a long value could use up the memory."""


def names(template: str) -> list[str]:
    """The names of the values in a template without their fields, in order, each once."""
    found: dict[str, None] = {}
    for match in _NAME.finditer(template):
        expression = _value_in(match)
        if expression is not None:
            found[expression.name] = None
    return list(found)


def expressions(template: str, known: Collection[str] = ()) -> list[Expression]:
    """The names in a template with their fields, in order, each once.

    Those of `${HOME}` and of LaTeX are only names if they are known: else they stay text.
    """
    found: dict[str, Expression] = {}
    for match in _NAME.finditer(template):
        expression = _value_in(match)
        if expression is None or expression.text in found:
            continue
        is_known = find_name(expression.name, known) is not None
        if is_known or not _is_code(template, match.start()):
            found[expression.text] = expression
    return list(found.values())


def expressions_in(
    data: object, known: Collection[str] = ()
) -> list[Expression]:
    """The names with their fields in all texts of JSON data, such as a blueprint, in order, each once.

    Args:
        data: The data.
        known: See `expressions`.
    """
    found: dict[str, Expression] = {}
    for _, value, _ in walk_json(data):
        if isinstance(value, str):
            for expression in expressions(value, known):
                found.setdefault(expression.text, expression)
    return list(found.values())


def _value_in(match: _Match) -> Expression | None:
    """The name with its fields in a match, if it is a value and no literal text."""
    if _pairs(match) % 2 == 0:
        return None
    return parse_expression(match[2])


def unfilled_values(
    template: str,
    known: Collection[str],
    has_fields: Callable[[Expression], bool],
) -> Iterator[tuple[str, Expression]]:
    """The texts in braces that name a known value, but are written in a way that is not filled.

    Args:
        template: The template.
        known: The known names.
        has_fields: Whether the value of a known name certainly has some fields.

    Yields:
        The text, and the expression that fills it.
    """
    by_form = {normal_form(name): name for name in known}
    seen = set[str]()
    for match in _IN_BRACES.finditer(template):
        text = match[2]
        if text in seen or _pairs(match) % 2 == 0:
            continue
        seen.add(text)
        expression = parse_expression(text)
        if expression and normal_form(expression.name) in by_form:
            continue
        meant = read_literally(text, by_form, has_fields)
        if meant is not None:
            yield text, meant


def _is_code(template: str, start: int) -> bool:
    """Whether what stands before the braces at a position shows that they are not those of a template."""
    before = template[max(0, start - _CODE_LENGTH) : start]
    if before.endswith(("$", "^")):
        return True
    return _LATEX.search(before) is not None


def fill(
    template: str,
    context: Context,
    where: str,
    *,
    longest: int | None = None,
) -> str:
    """Replace each name by its value as text, and undouble literal braces; all other braces stay.

    Args:
        template: The template.
        context: The values.
        where: The subject of an error: "Step 'write'".
        longest: Characters of a value that are shown; None for all.

    Raises:
        ContextError: The context lacks a name or a field, or the text would exceed 4 million characters, or repeat
            values of more than 100 000.
    """
    if "{" not in template:
        return template
    _refuse_unfilled(template, context, where)
    filler = _Filler(context, where, longest)
    return _substitute(template, context, filler.text)


def split(
    template: str, known: Collection[str]
) -> tuple[str, list[Expression]]:
    """Return the text of a template without its values, and the expressions that fill it, one for each place.

    Args:
        template: The template.
        known: The names that have a value.
    """
    places: list[Expression] = []

    def leave_out(expression: Expression) -> str:
        places.append(expression)
        return ""

    return _substitute(template, known, leave_out), places


def _substitute(
    template: str, known: Collection[str], text_of: Callable[[Expression], str]
) -> str:
    """Replace each expression by a text, and undouble literal braces.

    Args:
        template: The template.
        known: The names that have a value.
        text_of: Returns the text for an expression.
    """

    def replace(match: _Match) -> str:
        expression = parse_expression(match[2])
        if expression is None:
            return match[0]
        if _pairs(match) % 2 == 0:
            return _inside_braces(match, expression.text)
        is_own = find_name(expression.name, known) is not None
        is_of_run = expression.is_of_run and not _is_code(
            match.string, match.start()
        )
        if not is_own and not is_of_run:
            # only code may lack a value
            return _inside_braces(match, f"{{{expression.text}}}")
        return _inside_braces(match, text_of(expression))

    return _NAME.sub(replace, _undouble_objects(template))


def _refuse_unfilled(template: str, context: Context, where: str) -> None:
    """Raise the error about a name that would stay in the text, if there is one."""

    def has_fields(expression: Expression) -> bool:
        try:
            value_of(expression, context, where)
        except ContextError:
            return False
        return True

    for text, meant in unfilled_values(template, context, has_fields):
        raise ContextError(
            f"{where} uses '{{{text}}}', which is not a valid expression.",
            suggestion=f"Write '{{{meant.text}}}'.",
        )
    for expression in expressions(template, context):
        is_known = _find_value(expression, context) is not None
        if not is_known and not expression.is_indexed:
            raise _missing_name_error(expression, context, where)


def fill_data(value: Any, context: Context, where: str) -> Any:
    """Fill the texts in JSON data; a text that is nothing but one name becomes the value itself.

    `{"order": "{ticket.order}", "note": "From {customer}"}` keeps an order that is a number a number.

    Raises:
        ContextError: See `fill`.
    """
    if isinstance(value, dict):
        members = cast("JsonObject", value)
        return {
            key: fill_data(item, context, where)
            for key, item in members.items()
        }
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [fill_data(item, context, where) for item in items]
    if not isinstance(value, str):
        return value
    expression = only_name(value)
    if expression is None or (
        expression.is_indexed and _find_value(expression, context) is None
    ):
        return fill(value, context, where)
    return copy_json(value_of(expression, context, where))


def only_name(text: str) -> Expression | None:
    """Return the name with fields that a text is nothing but; None if it is anything else."""
    match = _NAME.fullmatch(text)
    if match is None or _braces(match) != (1, 1):
        return None
    return parse_expression(match[2])


def value_of(expression: Expression, context: Context, where: str) -> Any:
    """The value of a name with fields, such as `ticket.category` or `items.0.name`.

    Raises:
        ContextError: The context lacks the name, or the value a field.
    """
    found = _find_value(expression, context)
    if found is None:
        raise _missing_name_error(expression, context, where)
    before, value = found
    for key in expression.fields:
        subject = f"{where} uses '{{{expression.text}}}', but '{before}'"
        value = _field_of(value, key, subject, literal=expression.text)
        before = f"{before}.{key}"
    return value


def _find_value(
    expression: Expression, context: Context
) -> tuple[str, Any] | None:
    """The name and the value of the first word of an expression; None if there is no such value."""
    run = current()
    if run is not None and expression.is_of_run:
        return RUN, run.template_values
    name = find_name(expression.name, context)
    if name is None:
        return None
    return name, context[name]


def _field_of(value: Any, key: str, subject: str, *, literal: str) -> Any:
    """A field of a value.

    Args:
        value: The value.
        key: The key of an object, or the index of a list.
        subject: The start of an error's message.
        literal: The name with its fields, which may be meant as text.

    Raises:
        ContextError: The value has no such field.
    """
    if isinstance(value, Mapping):
        members = cast("JsonMapping", value)
        known_key = find_name(key, members)
        if known_key is not None:
            return members[known_key]
        raise ContextError(
            f"{subject} has no field '{key}'.",
            suggestion=did_you_mean(key, members) or "It is an empty object.",
        )
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if is_index(key) and int(key) < len(items):
            return items[int(key)]
        raise ContextError(
            f"{subject} has no item {key}, only {len(items)} items.",
            suggestion="Items are counted from 0.",
        )
    raise ContextError(
        f"{subject} is {_describe_type(value)}, which has no fields.",
        suggestion="Only data has fields: give the agent a 'response_schema', or pass the input as an object. "
        + _how_to_write(literal),
    )


def is_index(key: str) -> bool:
    """Whether a field is the index of a list: digits, at most as many as an index has."""
    return key.isascii() and key.isdecimal() and len(key) < 10


def _describe_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, bool):
        return "a boolean"
    return "a number"


def _missing_name_error(
    expression: Expression, context: Context, where: str
) -> ContextError:
    return ContextError(
        f"{where} uses '{{{expression.text}}}', which is not in the context.",
        suggestion=suggest_name(expression, visible(context)),
    )


class _Filler:
    """Replaces the names of one template, and limits the characters of their values."""

    def __init__(
        self, context: Context, where: str, longest: int | None
    ) -> None:
        self._context = context
        self._where = where
        self._longest = longest
        self._length = 0
        self._repeated = 0
        self._seen = set[str]()

    def text(self, expression: Expression) -> str:
        """Return the value of an expression as text."""
        value = value_of(expression, self._context, self._where)
        text = to_shown_text(value)
        if self._longest is not None:
            text = truncate(text, self._longest)
        self._count(expression.text, len(text))
        return text

    def _count(self, expression: str, length: int) -> None:
        self._length += length
        if expression in self._seen:
            self._repeated += length
        self._seen.add(expression)
        if self._length > _MAX_CHARACTERS or self._repeated > _MAX_REPEATED:
            raise ContextError(
                f"The template would exceed {_MAX_CHARACTERS} characters, or repeat {_MAX_REPEATED}, at "
                f"'{{{expression}}}'.",
                suggestion="Use a long value only once, or let a step before shorten it.",
            )


def _braces(match: _Match) -> tuple[int, int]:
    """How many braces a name has before and after it."""
    return len(match[1]), len(match[3])


def _pairs(match: _Match) -> int:
    """How many pairs of braces a name has around it."""
    return min(len(match[1]), len(match[3]))


def _inside_braces(match: _Match, text: str) -> str:
    """A text with the literal braces of a name around it; braces of one side only stay."""
    opening, _, closing = match.groups()
    pairs = _pairs(match)
    literal = pairs // 2
    removed = pairs - literal
    return opening[removed:] + text + closing[removed:]


def _undouble_objects(template: str) -> str:
    """Undouble the braces of each JSON object all of whose braces are doubled."""
    objects = {match.start() for match in _DOUBLED_OBJECT.finditer(template)}
    if not objects:
        return template
    redundant = _redundant_braces(template, objects)
    if not redundant:
        return template
    return "".join(
        char
        for position, char in enumerate(template)
        if position not in redundant
    )


def _redundant_braces(template: str, objects: Collection[int]) -> set[int]:
    """The positions of the second brace of each pair inside the objects with doubled braces.

    Args:
        template: The template.
        objects: Where such an object may start.
    """
    pairs = _DoubledPairs(objects)
    for start, brace, length in _brace_runs(template):
        if brace == "{":
            rest = pairs.open(start, length)
        else:
            rest = pairs.close(start, length)
        # a single brace inside an object shows that its braces are not doubled; outside of objects nothing is kept
        if rest == 1 or not pairs.unclosed:
            pairs.forget()
    return pairs.redundant


class _DoubledPairs:
    """The doubled braces of a template that is read from its start, by the position of their first brace."""

    def __init__(self, objects: Collection[int]) -> None:
        self.redundant = set[int]()
        self.unclosed: list[int] = []
        self._closed: list[tuple[int, int]] = []
        self._objects = objects

    def open(self, start: int, length: int) -> int:
        """Take the doubled braces of a run; returns how many braces are left over."""
        self.unclosed += range(start, start + length - 1, 2)
        return length % 2

    def close(self, start: int, length: int) -> int:
        """Close as many doubled braces as a run does; returns how many braces are left over."""
        while self.unclosed and length >= 2:
            opening = self.unclosed.pop()
            self._closed.append((opening, start))
            if opening in self._objects:
                self._undouble(opening)
            start += 2
            length -= 2
        return length

    def _undouble(self, opening: int) -> None:
        """Take the braces of an object, and those inside it, for redundant."""
        while self._closed and self._closed[-1][0] >= opening:
            self.redundant.update(self._closed.pop())

    def forget(self) -> None:
        self.unclosed.clear()
        self._closed.clear()


def _brace_runs(template: str) -> Iterator[tuple[int, str, int]]:
    """The runs of equal braces that belong to no name: position, brace and length."""
    for match in _BRACES.finditer(template):
        if match[2] is None:
            braces = match[0]
            yield match.start(), braces[0], len(braces)
            continue
        pairs = 0
        if parse_expression(match[2]) is not None:
            pairs = _pairs(match)
        before = len(match[1]) - pairs
        if before:
            yield match.start(), "{", before
        after = len(match[3]) - pairs
        if after:
            yield match.end() - after, "}", after


def suggest_name(expression: Expression, known: Collection[str]) -> str:
    """What to do about a name, perhaps with fields, that nothing fills."""
    if expression.name == RUN and expression.fields and RUN not in known:
        field = most_similar(str(expression.fields[0]), RUN_FIELDS)
        if field is not None:
            return f"Did you mean '{RUN}.{field}'?"
    hint = did_you_mean(expression.name, known)
    if most_similar(expression.name, known) is not None:
        return hint
    return f"{hint} {_how_to_write(expression.text)}".lstrip()


def _how_to_write(literal: str) -> str:
    """How to write a name in braces that is meant as text."""
    return f"For the text '{{{literal}}}', write '{{{{{literal}}}}}'."


def visible(
    context: Context, leave_out: Collection[str] = ()
) -> dict[str, Any]:
    """The part of a context that models and people see: names without a leading underscore."""
    return {
        name: value
        for name, value in context.items()
        if not name.startswith("_") and name not in leave_out
    }


def sections(context: Context, leave_out: Collection[str] = ()) -> str:
    """A context as text for a model: a single value as it is, several with a heading each."""
    shown = visible(context, leave_out)
    if len(shown) == 1:
        return to_shown_text(next(iter(shown.values())))
    paragraphs = [
        f"## {name}\n{to_shown_text(value)}" for name, value in shown.items()
    ]
    return "\n\n".join(paragraphs)
