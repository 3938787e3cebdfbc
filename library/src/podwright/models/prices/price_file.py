"""The operator's file of prices: rates, tiers and aliases of models, by name or by pattern."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, NotRequired, cast

from pydantic import (
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    with_config,
)
from typing_extensions import TypedDict

from podwright.blueprints.files import from_json, read_data
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    json_pointer,
)
from podwright.data.redaction import without_url_secrets
from podwright.data.text import did_you_mean, short_repr, truncate
from podwright.errors import ConfigurationError, Problem
from podwright.schemas.validation_errors import to_problems
from podwright.settings import current_settings

VARIABLE = "PODWRIGHT_PRICES"
"""The environment variable that names the file, which is read again every minute, or has its content as JSON."""
_log = logging.getLogger("podwright.models")
_MOST = 1_000_000_000
_Rate = Annotated[Decimal, Field(ge=0, lt=_MOST)]
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

    above: Annotated[int, Field(ge=0)]
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
        self._names = entries.keys() | aliases.keys()
        patterns = [name for name in self._names if "*" in name]
        # the name decides between patterns of one length, so that every process decides alike
        self._patterns = sorted(patterns, key=lambda name: (-len(name), name))

    @property
    def has_aliases(self) -> bool:
        """Whether a model costs as much as another one."""
        return bool(self._aliases)

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
        wild_part = _wild_part(name, model)
        alias = self._aliases[name].replace("*", wild_part)
        target = alias
        if alias not in self._entries:
            target = self._pattern(alias)
        entry = self._entries.get(target)
        return Match(entry, alias=alias, is_exact=is_exact)

    def _pattern(self, model: str) -> str:
        """The longest pattern that fits a model; empty if none does."""
        for pattern in self._patterns:
            if _fits(pattern, model):
                return pattern
        return ""

    def unused(self, models: Iterable[str]) -> list[Problem]:
        """The entries that fit none of these models, and that no alias of them names: they may be misspelled."""
        named = list(models)
        names = [*named, *self._targets(named)]
        problems: list[Problem] = []
        for entry in sorted(self._names):
            if _is_used(entry, names):
                continue
            problem = Problem(
                json_pointer(entry),
                f"The entry {short_repr(entry)} of {VARIABLE} fits no model that is named here.",
                did_you_mean(entry, names),
            )
            problems.append(problem)
        return problems

    def _targets(self, models: Iterable[str]) -> Iterator[str]:
        """The models that these models cost as much as, where they have aliases."""
        for model in models:
            for match in self.find(model):
                if match.alias:
                    yield match.alias


EMPTY = PriceFile({}, {})


def _is_used(entry: str, models: Iterable[str]) -> bool:
    """Whether an entry is the name of one of these models, or a pattern that fits one."""
    for model in models:
        if entry == model or _fits(entry, model):
            return True
    return False


def _fits(pattern: str, model: str) -> bool:
    """Whether a pattern with one `*` fits a model."""
    start, star, end = pattern.partition("*")
    if not star:
        return False
    shortest = len(start) + len(end)
    if len(model) < shortest:
        return False
    return model.startswith(start) and model.endswith(end)


def _wild_part(pattern: str, model: str) -> str:
    """What the `*` of a pattern that fits a model stands for."""
    start, _, end = pattern.partition("*")
    return model.removeprefix(start).removesuffix(end)


_valid: dict[str, PriceFile] = {}
"""The last valid content of each file."""
_stale: set[str] = set()
"""Files whose content was invalid when they were last read."""
_minutes: dict[str, int] = {}
"""The minute since 1970 in which each file was last read."""


def current_prices(file: str) -> PriceFile:
    """The last valid content of a file, which is read only if there is none yet.

    Args:
        file: Its path, or its content as JSON; empty if there is none.

    Raises:
        ConfigurationError: It cannot be read, or is invalid.
    """
    if not file:
        return EMPTY
    if file not in _valid:
        refresh_prices(file)
    return _valid[file]


def is_current(file: str) -> bool:
    """Whether a file need not be read: there is none, or it has valid content and was read in this minute."""
    if not file:
        return True
    return file in _valid and _minutes[file] == _this_minute()


def refresh_prices(file: str) -> None:
    """Read a file, unless it has been read in this minute; on an event loop, call this in a thread.

    The last valid content of a file that has become invalid stays.

    Args:
        file: As in `current_prices`.

    Raises:
        ConfigurationError: It cannot be read, or is invalid, and has never been valid.
    """
    if is_current(file):
        return
    _minutes[file] = _this_minute()
    try:
        _valid[file] = _parse(file)
        _stale.discard(file)
    except ConfigurationError as error:
        _stale.add(file)
        if file not in _valid:
            raise
        _log.error("%s The previous prices stay valid.", error.message)


def _this_minute() -> int:
    return int(time.time() // 60)


def is_valid() -> bool:
    """Whether the file was valid when it was last read, or there is none."""
    return current_settings().prices not in _stale


def _parse(file: str) -> PriceFile:
    models = _read_models(file)
    aliases: JsonObject = {}
    entries: JsonObject = {}
    for name, entry in models.items():
        if "as" in as_object(entry):
            aliases[name] = entry
        else:
            entries[name] = entry
    problems = list(_entry_problems(entries))
    problems += _alias_problems(aliases)
    problems += _name_problems(models)
    if problems:
        raise _invalid_file_error(file, map(str, problems))
    targets = {name: alias["as"] for name, alias in aliases.items()}
    return PriceFile(_entries.validate_python(entries), targets)


def _read_models(file: str) -> JsonObject:
    """The content of a file, or of a text in JSON: an object with models, which are not checked."""
    try:
        if file.lstrip().startswith("{"):
            data = from_json(file)
        else:
            data = read_data(file)
    except ConfigurationError as error:
        details = [error.message, *error.details()]
        raise _invalid_file_error(file, details) from error
    if not isinstance(data, dict):
        details = ["Expected an object of prices by model."]
        raise _invalid_file_error(file, details)
    return cast("JsonObject", data)


def _name_problems(models: Iterable[str]) -> Iterator[Problem]:
    for name in models:
        if name.count("*") > 1:
            yield Problem(json_pointer(name), "A name has one '*' at most.")


def _entry_problems(entries: JsonMapping) -> Iterator[Problem]:
    try:
        _entries.validate_python(entries)
    except ValidationError as error:
        yield from to_problems(error.errors(), entries, _keys)
    for name, entry in entries.items():
        if not isinstance(entry, dict):
            continue
        for key in ("input", "output"):
            if key not in entry:
                yield Problem(json_pointer(name), f"Missing key '{key}'.")


def _keys(location: Any) -> Iterable[str]:
    """The keys of the object at a place."""
    if "tiers" in location:
        return Tier.__annotations__
    if "service_tiers" in location:
        return TieredRates.__annotations__
    return Entry.__annotations__


def _alias_problems(aliases: JsonMapping) -> Iterator[Problem]:
    for name, entry in aliases.items():
        for key in entry:
            if key != "as":
                detail = "An alias has no other keys than 'as'."
                yield Problem(json_pointer(name, key), detail)
        fault = _target_fault(name, entry["as"])
        if fault:
            yield Problem(json_pointer(name, "as"), fault)


def _target_fault(name: str, target: object) -> str:
    """What is wrong with the model that an alias costs as much as; empty if nothing is."""
    if not isinstance(target, str) or not _is_model_name(target):
        expected = "Expected the name of a model, such as openai/gpt-4o"
        return f"{expected}, got {short_repr(target)}."
    allowed_stars = min(name.count("*"), 1)
    if target.count("*") > allowed_stars:
        return "It may have one '*', if the name has one."
    return ""


def _is_model_name(text: str) -> bool:
    """Whether a text is the name of a model, or the `*` that stands for one."""
    if text == "*":
        return True
    provider, _, model_name = text.partition("/")
    return bool(provider and model_name)


def _invalid_file_error(
    file: str, details: Iterable[str]
) -> ConfigurationError:
    reasons = "; ".join(details)
    message = (
        f"Invalid price file '{truncate(file, 200)}' ({VARIABLE}): {reasons}"
    )
    return ConfigurationError(
        without_url_secrets(message),
        suggestion="Write {model: {input, output}} in USD per million tokens, or {model: {as: model}}.",
    )
