"""The operator's file of prices: rates, tiers and aliases of models, by name or by pattern."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, NotRequired, cast

from annotated_types import Ge, Lt
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from podwright.blueprints.files import read_data
from podwright.errors import ConfigurationError, Problem
from podwright.json_data import as_object, json_pointer
from podwright.text import did_you_mean, short_repr
from podwright.validation_errors import to_problems

VARIABLE = "PODWRIGHT_PRICES"
"""The environment variable that names the file, which is read again every minute."""
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
class Entry(Rates):
    """A model in the file; `input` and `output` are required."""

    tiers: NotRequired[list[Tier]]
    service_tiers: NotRequired[dict[str, Rates]]


class Match(NamedTuple):
    """What the file says of a model."""

    entry: Entry | None
    """Its rates; None if it costs what the model `alias` costs in the price lists."""
    alias: str = ""


@dataclass(frozen=True, slots=True)
class PriceFile:
    """The content of a valid file."""

    entries: Mapping[str, Entry] = field(default_factory=dict[str, Entry])
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])

    def find(self, model: str) -> Match | None:
        """What the file says of a model: by its name, or by the pattern with the most characters that fits it.

        An alias may name an entry of the file, but not another alias.
        """
        name = _best(model, [*self.entries, *self.aliases])
        if name is None:
            return None
        if name in self.entries:
            return Match(self.entries[name])
        alias = self.aliases[name].replace("*", _wild_part(name, model), 1)
        other = _best(alias, self.entries)
        return Match(None, alias) if other is None else Match(self.entries[other])

    def names(self) -> Iterator[str]:
        """The names and patterns of the file."""
        yield from self.entries
        yield from self.aliases

    def unused(self, models: Iterable[str]) -> list[Problem]:
        """The entries that fit none of these models: they may be misspelt."""
        names = list(models)
        problems: list[Problem] = []
        for pattern in self.names():
            if any(_fits(pattern, name) for name in names):
                continue
            hint = did_you_mean(pattern, names)
            detail = f"The price of {short_repr(pattern)} in {VARIABLE} is that of no model here."
            problems.append(Problem(json_pointer(pattern), detail, hint))
        return problems


EMPTY = PriceFile()


def _fits(pattern: str, model: str) -> bool:
    return pattern == model or ("*" in pattern and re.fullmatch(_expression(pattern), model) is not None)


def _expression(pattern: str) -> str:
    return "(.*)".join(map(re.escape, pattern.split("*")))


def _wild_part(pattern: str, model: str) -> str:
    """What the first `*` of a pattern stands for."""
    found = re.fullmatch(_expression(pattern), model)
    return found[1] if found and found.groups() else ""


def _best(model: str, patterns: Iterable[str]) -> str | None:
    fitting = [pattern for pattern in patterns if _fits(pattern, model)]
    return max(fitting, key=lambda pattern: (pattern == model, len(pattern)), default=None)


_valid: dict[str, PriceFile] = {}
"""The last valid content of each file."""
_stale: set[str] = set()
"""Files whose content was invalid when they were last read."""


@lru_cache(maxsize=1)
def read_prices(file: str, minute: int) -> PriceFile:
    """The content of a file, or its last valid content if it has become invalid.

    Args:
        file: Its path; empty if there is none.
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
        data = read_data(file)
    except ConfigurationError as error:
        raise _invalid(file, [error.message, *error.details()]) from error
    if not isinstance(data, dict):
        raise _invalid(file, ["Expected an object of prices by model."])
    models = cast("dict[str, Any]", data)
    aliases = {name: entry for name, entry in models.items() if "as" in as_object(entry)}
    entries = {name: entry for name, entry in models.items() if name not in aliases}
    problems: list[Problem] = [*_entry_problems(entries), *_alias_problems(aliases)]
    if problems:
        raise _invalid(file, map(str, problems))
    return PriceFile(
        TypeAdapter(dict[str, Entry]).validate_python(entries),
        {name: entry["as"] for name, entry in aliases.items()},
    )


def _entry_problems(entries: Mapping[str, Any]) -> Iterator[Problem]:
    try:
        TypeAdapter(dict[str, Entry]).validate_python(entries)
    except ValidationError as error:
        yield from to_problems(error.errors(), entries, _keys)
        return
    for name, entry in entries.items():
        for key in ("input", "output"):
            if key not in entry:
                yield Problem(json_pointer(name), f"Missing key '{key}'.")


def _keys(location: Any) -> Iterable[str]:
    """The keys of the object at a place."""
    if "service_tiers" in location:
        return Rates.__annotations__
    return Tier.__annotations__ if "tiers" in location else Entry.__annotations__


def _alias_problems(aliases: Mapping[str, Any]) -> Iterator[Problem]:
    for name, entry in aliases.items():
        target = entry["as"]
        for key in entry:
            if key != "as":
                yield Problem(json_pointer(name, key), "An alias has no other keys than 'as'.")
        if not isinstance(target, str) or not (target == "*" or all(target.partition("/"))):
            expected = "Expected the name of a model, such as openai/gpt-4o"
            yield Problem(json_pointer(name, "as"), f"{expected}, got {short_repr(target)}.")
        elif target.count("*") > 1 or ("*" in target and "*" not in name):
            yield Problem(json_pointer(name, "as"), "It may have one '*', if the name has one.")


def _invalid(file: str, details: Iterable[str]) -> ConfigurationError:
    return ConfigurationError(
        f"Invalid price file '{file}' ({VARIABLE}): {'; '.join(details)}",
        suggestion="Write {model: {input, output}} in USD per million tokens, or {model: {as: model}}.",
    )
