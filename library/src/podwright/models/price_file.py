"""The operator's file of prices: rates, tiers and aliases of models, by name or by pattern."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, NotRequired, cast

from annotated_types import Ge, Lt
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from podwright.blueprints.files import from_json, read_data
from podwright.errors import ConfigurationError, Problem
from podwright.json_data import as_object, json_pointer
from podwright.text import did_you_mean, short_repr, truncate
from podwright.validation_errors import to_problems

VARIABLE = "PODWRIGHT_PRICES"
"""The environment variable that names the file, which is read again every minute, or has its content as JSON."""
_log = logging.getLogger("podwright.models")
_MOST = 1_000_000_000
_Rate = Annotated[Decimal, Ge(0), Lt(_MOST)]
"""USD per million tokens."""


@with_config(ConfigDict(extra="forbid"))
class Rates(TypedDict, total=False):
    """What a model costs, in USD per million tokens."""

    input: _Rate
    output: _Rate
    cached_input: _Rate
    cache_write: _Rate
    cache_write_1h: _Rate
    reasoning: _Rate
    input_audio: _Rate
    output_audio: _Rate
    searches: _Rate
    """USD per thousand searches."""


@with_config(ConfigDict(extra="forbid"))
class Tier(Rates):
    """Other rates for long requests; those that it does not have stay."""

    above: Annotated[int, Ge(0)]
    """Input tokens above which it counts."""


@with_config(ConfigDict(extra="forbid"))
class TieredRates(Rates):
    """Rates with those of long requests."""

    tiers: NotRequired[list[Tier]]


@with_config(ConfigDict(extra="forbid"))
class Entry(TieredRates):
    """A model in the file; `input` and `output` are required."""

    service_tiers: NotRequired[dict[str, TieredRates]]


_entries = TypeAdapter(dict[str, Entry])


class Match(NamedTuple):
    """What the file says of a model."""

    entry: Entry | None
    """Its rates; None if it costs what the model `alias` costs in the price lists."""
    alias: str = ""
    """The model that it costs as much as; empty if the entry is its own."""
    is_exact: bool = True
    """Whether it is the name of the model, and not a pattern."""


class PriceFile:
    """The content of a valid file.

    Args:
        entries: Rates by name or pattern.
        aliases: By name or pattern the model that it costs as much as.
    """

    def __init__(
        self, entries: Mapping[str, Entry], aliases: Mapping[str, str]
    ) -> None:
        self._entries = entries
        self._aliases = aliases
        self._names = frozenset({*entries, *aliases})
        self._patterns = sorted(
            (name for name in self._names if "*" in name), key=len, reverse=True
        )

    def find(self, *models: str) -> Iterator[Match]:
        """What the file says of a model that has several names, what counts first coming first.

        A name counts more than a pattern, and of patterns the longest one. An alias may name an entry of the file, but
        not another alias.
        """
        for model in models:
            if model in self._names:
                yield self._match(model, model)
        for model in models:
            pattern = self._pattern(model)
            if pattern:
                yield self._match(pattern, model)

    def _match(self, name: str, model: str) -> Match:
        """What the entry of this name, which may be a pattern, says of a model."""
        is_exact = name == model
        if name in self._entries:
            return Match(self._entries[name], is_exact=is_exact)
        alias = self._aliases[name].replace("*", _wild_part(name, model))
        target = alias if alias in self._entries else self._pattern(alias)
        return Match(self._entries.get(target), alias, is_exact)

    def _pattern(self, model: str) -> str:
        """The longest pattern that fits a model; empty if none does."""
        return next(
            (pattern for pattern in self._patterns if _fits(pattern, model)), ""
        )

    def unused(self, models: Iterable[str]) -> list[Problem]:
        """The entries that fit none of these models, and that no alias of them names: they may be misspelt."""
        names = list(models)
        names += [
            match.alias for name in names for match in self.find(name) if match.alias
        ]
        problems: list[Problem] = []
        for entry in sorted(self._names):
            if any(entry == name or _fits(entry, name) for name in names):
                continue
            hint = did_you_mean(entry, names)
            detail = f"The entry {short_repr(entry)} of {VARIABLE} fits no model that is named here."
            problems.append(Problem(json_pointer(entry), detail, hint))
        return problems


EMPTY = PriceFile({}, {})


def _fits(pattern: str, model: str) -> bool:
    """Whether a pattern with one `*` fits a model."""
    start, star, end = pattern.partition("*")
    is_long_enough = len(model) >= len(start) + len(end)
    return (
        bool(star)
        and is_long_enough
        and model.startswith(start)
        and model.endswith(end)
    )


def _wild_part(pattern: str, model: str) -> str:
    """What the `*` of a pattern that fits a model stands for."""
    start, _, end = pattern.partition("*")
    return model[len(start) : len(model) - len(end)]


_valid: dict[str, PriceFile] = {}
"""The last valid content of each file."""
_stale: set[str] = set()
"""Files whose content was invalid when they were last read."""


@lru_cache(maxsize=1)
def read_prices(file: str, minute: int) -> PriceFile:
    """The content of a file, or its last valid content if it has become invalid.

    Args:
        file: Its path, or its content as JSON; empty if there is none.
        minute: The minute since 1970 in which it is read.

    Raises:
        ConfigurationError: It cannot be read, or is invalid.
    """
    if not file:
        return EMPTY
    try:
        _valid[file] = _parse(file)
        _stale.discard(file)
    except ConfigurationError as error:
        _stale.add(file)
        if file not in _valid:
            raise
        _log.error("%s The previous prices stay valid.", error.message)
    return _valid[file]


def is_valid() -> bool:
    """Whether the file was valid when it was last read, or there is none."""
    return os.environ.get(VARIABLE, "") not in _stale


def _parse(file: str) -> PriceFile:
    try:
        data = from_json(file) if file.lstrip().startswith("{") else read_data(file)
    except ConfigurationError as error:
        raise _invalid(file, [error.message, *error.details()]) from error
    if not isinstance(data, dict):
        raise _invalid(file, ["Expected an object of prices by model."])
    models = cast("dict[str, Any]", data)
    aliases = {
        name: entry for name, entry in models.items() if "as" in as_object(entry)
    }
    entries = {name: entry for name, entry in models.items() if name not in aliases}
    problems = [*_entry_problems(entries), *_alias_problems(aliases)]
    problems += [
        Problem(json_pointer(name), "A name has one '*' at most.")
        for name in models
        if name.count("*") > 1
    ]
    if problems:
        raise _invalid(file, map(str, problems))
    return PriceFile(
        _entries.validate_python(entries),
        {name: entry["as"] for name, entry in aliases.items()},
    )


def _entry_problems(entries: Mapping[str, Any]) -> Iterator[Problem]:
    try:
        _entries.validate_python(entries)
    except ValidationError as error:
        yield from to_problems(error.errors(), entries, _keys)
    for name, entry in entries.items():
        for key in ("input", "output") if isinstance(entry, dict) else ():
            if key not in entry:
                yield Problem(json_pointer(name), f"Missing key '{key}'.")


def _keys(location: Any) -> Iterable[str]:
    """The keys of the object at a place."""
    if "tiers" in location:
        return Tier.__annotations__
    return (
        TieredRates.__annotations__
        if "service_tiers" in location
        else Entry.__annotations__
    )


def _alias_problems(aliases: Mapping[str, Any]) -> Iterator[Problem]:
    for name, entry in aliases.items():
        target = entry["as"]
        for key in entry:
            if key != "as":
                yield Problem(
                    json_pointer(name, key), "An alias has no other keys than 'as'."
                )
        if not isinstance(target, str) or not (
            target == "*" or all(target.partition("/"))
        ):
            expected = "Expected the name of a model, such as openai/gpt-4o"
            yield Problem(
                json_pointer(name, "as"), f"{expected}, got {short_repr(target)}."
            )
        elif target.count("*") > 1 or ("*" in target and "*" not in name):
            yield Problem(
                json_pointer(name, "as"), "It may have one '*', if the name has one."
            )


def _invalid(file: str, details: Iterable[str]) -> ConfigurationError:
    return ConfigurationError(
        f"Invalid price file '{truncate(file, 200)}' ({VARIABLE}): {'; '.join(details)}",
        suggestion="Write {model: {input, output}} in USD per million tokens, or {model: {as: model}}.",
    )
