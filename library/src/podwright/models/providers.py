"""Model providers, read from `providers.toml`: their OpenAI-compatible endpoints and their names in price lists."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Literal
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from podwright.data.json_data import JsonMapping, JsonObject

Protocol = Literal["chat_completions", "messages"]
"""OpenAI's Chat Completions, or Anthropic's Messages."""

PROTOCOL_NAMES: dict[Protocol, str] = {
    "chat_completions": "Chat Completions",
    "messages": "the Messages protocol",
}


@dataclass(frozen=True, slots=True)
class MediaForms:
    """Which files and audio a provider takes in messages. All take files that are texts."""

    documents: Literal["file", "image_url", "document_url", ""] = "file"
    """The type of the part that has a file; empty if it takes none."""
    only_pdf: bool = False
    """Whether PDFs are the only other files that it takes."""
    text_documents: bool = False
    """Whether a file that is a text is sent as a document, and not as a text."""
    document_urls: bool = True
    """Whether it fetches a file at an https URL."""
    audio: bool = True
    """Whether it takes audio."""
    audio_models: str = ""
    """What is in the names of its models that take audio; empty if the names do not say it."""

    def at_other_server(self) -> MediaForms:
        """Return what is known of a server that is not the provider's own: nothing but the form."""
        return MediaForms(documents=self.documents or "file")

    def of_model(self, model: str) -> MediaForms:
        """Return what one of the provider's models takes."""
        return replace(self, audio=self.audio and self.audio_models in model)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a provider answers, and how it differs from others."""

    protocol: Protocol = "chat_completions"
    """The protocol that it speaks."""
    url: str = ""
    """The default base URL; the path of the protocol is appended. Empty if only the operator knows it."""
    keys: tuple[str, ...] = ()
    """Environment variables of the API key; the first that is set counts."""
    key_header: str = "Authorization"
    """The header of the key; in `Authorization` it stands after `Bearer`."""
    needs_key: bool = False
    """Whether it needs a key at every base URL, because no server of one's own speaks for it."""
    identities: tuple[str, ...] = ()
    """Environment variables of an identity that LiteLLM uses where no key is set."""
    urls: tuple[str, ...] = ()
    """Environment variables of another base URL; the first that is set counts."""
    suffix: str = ""
    """What a base URL ends with; appended if it is missing."""
    json_schema: bool = True
    """Whether its models take `response_format` with a JSON Schema; if not, structured output is a tool call."""
    strict: bool = False
    """Whether it enforces such a schema with `strict`, if that is one of `strict_schemas`."""
    stream_options: bool = True
    """Whether it takes `stream_options`, which ask for the usage of a stream."""
    reports_cost: bool = False
    """Whether its responses say what the call costs in USD, in `usage.cost` or as Vercel's gateway does."""
    cost_header: str = ""
    """The header of its responses that says it."""
    hosts: tuple[str, ...] = ()
    """Further hosts of the vendor, where its list prices hold as at `url`; `*.` stands for any subdomain."""
    seed: str = "seed"
    """Its name for the setting `seed`."""
    completion_tokens: bool = False
    """Whether the setting `max_tokens` is `max_completion_tokens` for all of its models."""
    unsigned_call: JsonMapping = field(default_factory=JsonObject)
    """What it wants with a tool call that another model has made."""
    model_prefix: str = ""
    """Put before the name of a model that does not begin with the first part of this."""
    media: MediaForms = field(default_factory=MediaForms)
    """Which files and audio it takes at its own URL, as far as that is known."""
    self_hosted: bool = False
    """Whether it is a server that operators run themselves; no price list knows what its models cost."""

    def media_at(self, *, is_at_vendor: bool) -> MediaForms:
        """Return which files and audio are taken where the provider is called."""
        if is_at_vendor or self.self_hosted:
            return self.media
        return self.media.at_other_server()


_file = files("podwright.models") / "providers.toml"
_tables = tomllib.loads(_file.read_text(encoding="utf-8"))

ENDPOINTS = TypeAdapter(dict[str, Endpoint]).validate_python(
    _tables["endpoints"]
)
"""By provider, the part of a model's name before the first slash."""

PRICE_NAMES: dict[str, str] = _tables["price_names"]
"""Providers whose name differs from their id in genai-prices."""

ANY = Endpoint()
"""An unknown provider at a base URL of the operator."""


def how_vendor_is_named(vendor: str) -> str:
    """Return a sentence on the providers of a vendor whose own name is none; empty if it has none.

    `google` is the vendor of `gemini` and `vertex_ai`.
    """
    names = [name for name, own in PRICE_NAMES.items() if own == vendor]
    if not names:
        return ""
    models = " or ".join(f"'{name}/…'" for name in names)
    return f"The models of '{vendor}' are called {models}."


def first_variable(variables: Iterable[str]) -> str:
    """The first of these environment variables that is set; empty if none is."""
    for variable in variables:
        if os.environ.get(variable):
            return variable
    return ""


def first_value(variables: Iterable[str]) -> str:
    """The value of the first of these environment variables that is set; empty if none is."""
    return os.environ.get(first_variable(variables), "")


def is_vendors(provider: str, base_url: str) -> bool:
    """Whether a base URL is that of a provider itself, where its list prices hold."""
    endpoint = ENDPOINTS.get(provider, ANY)
    parts = urlsplit(base_url)
    if parts.scheme != "https" or endpoint.self_hosted:
        return False
    host = parts.hostname or ""
    own_host = urlsplit(endpoint.url).hostname or ""
    patterns = (own_host, *endpoint.hosts)
    return any(fnmatchcase(host, pattern) for pattern in patterns)
