"""Where requests go: providers, their variables, the settings of the environment, and what a component overrides."""

import itertools
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.library.model_clients import question
from tests.library.upstream import Upstream, completion, reply

from podwright import Agent, errors
from podwright.messages.usage import Usage
from podwright.models import (
    Connection,
    Model,
    ScriptedModel,
    choose_client,
    register_provider,
    resolve,
)
from podwright.models.protocols.http_model import HTTPModel
from podwright.models.protocols.openai_compatible import ChatModel
from podwright.models.providers import ENDPOINTS
from podwright.models.retries import Retries

ASK = question("openai/m")
_numbers = itertools.count()


def unused(provider: str) -> str:
    """A name of a model that no test has resolved: a resolved model keeps what the environment was."""
    return f"{provider}/m{next(_numbers)}"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No provider's variable of this machine counts."""
    for variable in list(os.environ):
        if variable.startswith("PODWRIGHT_MODEL") or variable.endswith(
            ("_API_KEY", "_API_BASE", "_BASE_URL")
        ):
            monkeypatch.delenv(variable)


@pytest.mark.parametrize("name", ENDPOINTS)
async def test_a_provider_needs_its_own_variables(name: str) -> None:
    """At its own URL a provider needs a key; one without a URL needs that; the error names the variable."""
    endpoint = ENDPOINTS[name]
    if endpoint.url.startswith("https://"):
        with pytest.raises(errors.ModelAuthenticationError) as missing_key:
            await resolve(unused(name)).complete(ASK)
        assert endpoint.keys[0] in missing_key.value.suggestion
    elif not endpoint.url:
        with pytest.raises(errors.ConfigurationError) as missing_url:
            await resolve(unused(name)).complete(ASK)
        assert endpoint.urls[0] in missing_url.value.suggestion


@pytest.mark.parametrize("name", ENDPOINTS)
async def test_variables_of_the_providers(
    name: str, provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each provider's variables set its key and base URL."""
    endpoint = ENDPOINTS[name]
    speaks_messages = endpoint.protocol == "messages"
    path = f"{endpoint.suffix or '/v1'}/{'messages' if speaks_messages else 'chat/completions'}"
    body = (
        {"content": [{"type": "text", "text": "Hi."}], "type": "message"}
        if speaks_messages
        else completion()
    )
    provider.answers([reply(body)])
    for key, url in zip(endpoint.keys, endpoint.urls * 4, strict=False):
        monkeypatch.setenv(key, f"key-of-{name}\n")
        monkeypatch.setenv(
            url,
            provider.url.removesuffix("/v1" if endpoint.suffix else "") + "/",
        )
        model = unused(name)
        assert (await resolve(model).complete(ASK)).text == "Hi."
        sent = provider.headers[-1][endpoint.key_header.lower()]
        assert sent.removeprefix("Bearer ") == f"key-of-{name}"
        assert sent.startswith("Bearer ") == (
            endpoint.key_header == "Authorization"
        )
        assert provider.headers[-1][":line"] == f"POST {path} HTTP/1.1"
        assert (
            provider.requests[-1]["model"]
            == endpoint.model_prefix + model.partition("/")[2]
        )
        monkeypatch.delenv(key)


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("name", ENDPOINTS)
async def test_a_refused_key_is_named_by_its_variable(
    name: str,
    status: int,
    provider: Upstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refusal names the variable that the key came from, or those that it may be set in, and never the key."""
    endpoint = ENDPOINTS[name]
    monkeypatch.setenv(endpoint.urls[0], provider.url)
    provider.answers([reply({"error": {"message": "No."}}, status)])
    for variable in endpoint.keys:
        monkeypatch.setenv(variable, "sk-canary-0123456789")
        with pytest.raises(errors.ModelAuthenticationError) as refused:
            await resolve(unused(name)).complete(ASK)
        monkeypatch.delenv(variable)
        assert f"refused the API key in {variable}" in refused.value.message
        assert variable in refused.value.suggestion
        assert "canary" not in str(refused.value)
    if endpoint.needs_key:
        return
    with pytest.raises(errors.ModelAuthenticationError) as missing:
        await resolve(unused(name)).complete(ASK)
    assert "no API key was sent" in missing.value.message
    for variable in endpoint.keys:
        assert variable in missing.value.message
        assert variable in missing.value.suggestion


@pytest.mark.parametrize(
    ("connection", "key", "message", "suggestion"),
    [
        (Connection(), "sk-canary", "key in PODWRIGHT_MODEL_API_KEY", "valid"),
        (Connection(), "", "PODWRIGHT_MODEL_API_KEY is not set", "MODEL_API"),
        (Connection("sk-canary"), "other", "the API key in api_key", "api_key"),
        (Connection(""), "other", "because api_key is empty", "Set api_key."),
    ],
    ids=["shared", "no shared one", "argument", "empty argument"],
)
async def test_a_refused_key_of_another_source(
    connection: Connection,
    key: str,
    message: str,
    suggestion: str,
    provider: Upstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the endpoint for all models the key is that of its variable or of the component, never the provider's."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-of-openai")
    monkeypatch.setenv("PODWRIGHT_MODEL_BASE_URL", provider.url)
    monkeypatch.setenv("PODWRIGHT_MODEL_API_KEY", key)
    provider.answers([reply({"error": {"message": "No."}}, 401)])
    with pytest.raises(errors.ModelAuthenticationError) as refused:
        await resolve(unused("openai"), None, connection).complete(ASK)
    assert message in refused.value.message
    assert suggestion in refused.value.suggestion
    text = str(refused.value)
    assert "canary" not in text
    assert "OPENAI_API_KEY" not in text.replace("PODWRIGHT_MODEL_API_KEY", "")


CALL_SETTINGS = {
    "PODWRIGHT_MODEL_CONNECT_TIMEOUT": "connect",
    "PODWRIGHT_MODEL_FIRST_BYTE_TIMEOUT": "first_byte",
    "PODWRIGHT_MODEL_IDLE_TIMEOUT": "idle",
    "PODWRIGHT_MODEL_TIMEOUT": "total",
    "PODWRIGHT_MODEL_TRIES": "tries",
    "PODWRIGHT_MODEL_FIRST_WAIT": "first_wait",
    "PODWRIGHT_MODEL_LONGEST_WAIT": "longest_wait",
    "PODWRIGHT_MODEL_LONGEST_RETRY_AFTER": "longest_retry_after",
}


def call_settings(model: Model) -> dict[str, Any]:
    """The time-outs and retries of a model by the names of their fields."""
    return {**asdict(model.timeouts), **asdict(model.retries)}


@pytest.mark.parametrize("variable", CALL_SETTINGS)
@pytest.mark.parametrize("provider_name", ["openai", "anthropic", "mine"])
def test_the_environment_sets_time_outs_and_retries(
    variable: str, provider_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each variable sets one value of all models that are given by name; the others stay those of the class."""
    monkeypatch.setattr("podwright.models.registry._providers", {})
    register_provider("mine", lambda name, _: ScriptedModel(name=name))
    defaults = call_settings(resolve(unused(provider_name)))
    monkeypatch.setenv(variable, "7")
    changed = call_settings(resolve(unused(provider_name)))
    assert changed == {**defaults, CALL_SETTINGS[variable]: 7}


def test_defaults_of_the_class_stay_where_the_environment_sets_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python's own defaults hold, also for a model that was made before, unless a variable sets another value."""
    model = resolve(unused("openai"))
    monkeypatch.setattr(HTTPModel, "retries", Retries(tries=5, first_wait=2.0))
    assert model.retries == Retries(tries=5, first_wait=2.0)
    monkeypatch.setenv("PODWRIGHT_MODEL_TRIES", "9")
    again = resolve(unused("openai"))
    assert again.retries == Retries(tries=9, first_wait=2.0)
    assert resolve("offline/echo").timeouts.total == math.inf


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "nan", "inf"])
def test_invalid_tries_are_refused(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value that is not possible is an error that names the variable."""
    monkeypatch.setenv("PODWRIGHT_MODEL_TRIES", value)
    with pytest.raises(
        errors.ConfigurationError, match="PODWRIGHT_MODEL_TRIES"
    ):
        resolve(unused("openai"))


@pytest.mark.parametrize(
    ("variables", "milliseconds", "requests"),
    [
        ({"PODWRIGHT_MODEL_TRIES": "1"}, "0", 1),
        ({"PODWRIGHT_MODEL_TRIES": "5"}, "0", 5),
        (
            {"PODWRIGHT_MODEL_LONGEST_RETRY_AFTER": "0.5"},
            "501",
            1,
        ),
        (
            {"PODWRIGHT_MODEL_LONGEST_RETRY_AFTER": "0.5"},
            "1",
            3,
        ),
    ],
    ids=["one try", "five", "a long wait", "a short one"],
)
async def test_attempts_are_those_of_the_environment(
    variables: dict[str, str],
    milliseconds: str,
    requests: int,
    provider: Upstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failing provider is asked as often as the variables say, and not again if it asks for too long a wait."""
    monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
    monkeypatch.setenv("PODWRIGHT_MODEL_FIRST_WAIT", "0")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    headers: dict[str, Any] = {"retry-after-ms": milliseconds}
    refused = reply({"error": {"message": "busy"}}, 503, **headers)
    provider.answers([refused])
    with pytest.raises(errors.ModelUnavailableError):
        await Agent("guide", "", unused("openai")).arun("x")
    assert len(provider.requests) == requests


async def test_one_endpoint_for_all_models(
    provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PODWRIGHT_MODEL_BASE_URL is the endpoint of every model, and never gets a provider's key."""
    monkeypatch.setenv("PODWRIGHT_MODEL_BASE_URL", provider.url)
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    provider.answers([reply(completion())])
    for name in map(unused, ("openai", "anthropic", "mistral", "nobody")):
        model = resolve(name)
        assert isinstance(model, ChatModel)
        await model.complete(ASK)
        assert "authorization" not in provider.headers[-1]
        assert provider.requests[-1]["model"] == name.partition("/")[2]
    assert resolve("offline/echo").name == "offline/echo"


@pytest.mark.parametrize(
    ("connection", "sent"),
    [
        (Connection(), "Bearer key-for-all"),
        (Connection("my-own"), "Bearer my-own"),
        (Connection(""), None),
    ],
    ids=["no key", "a key", "an empty key"],
)
async def test_the_shared_endpoint_has_a_key_of_its_own(
    connection: Connection,
    sent: str | None,
    provider: Upstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PODWRIGHT_MODEL_API_KEY is sent to that endpoint, unless the component has a key, which may be empty."""
    monkeypatch.setenv("PODWRIGHT_MODEL_BASE_URL", provider.url)
    monkeypatch.setenv("PODWRIGHT_MODEL_API_KEY", "key-for-all")
    provider.answers([reply(completion())])
    await resolve(unused("anthropic"), None, connection).complete(ASK)
    assert provider.headers[-1].get("authorization") == sent


async def test_a_component_overrides_the_environment(
    provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`api_key` and `base_url` of a component win; `address` tells where requests go."""
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    for variable in ("OPENAI_BASE_URL", "PODWRIGHT_MODEL_BASE_URL"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9/v1")
    provider.answers([reply(completion())])
    agent = Agent(
        "a", "", "openai/gpt-4o", api_key="mine", base_url=provider.url
    )
    assert await agent.arun("Hello?") == "Hi."
    assert provider.headers[-1]["authorization"] == "Bearer mine"
    assert agent.model.address() == ("127.0.0.1", provider.port)
    assert ChatModel(
        "openai/m", Connection("k"), ENDPOINTS["openai"]
    ).address() == (
        "127.0.0.1",
        9,
    )
    assert ChatModel("mine/m", Connection("k")).address() is None


def test_the_client_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """PODWRIGHT_MODEL_CLIENT chooses the client; `openai` refuses unknown providers without a base URL."""
    monkeypatch.setenv("PODWRIGHT_MODEL_CLIENT", "openai")
    assert isinstance(resolve(unused("openai")), ChatModel)
    with pytest.raises(errors.UnknownModelError) as unknown:
        resolve("opneai/m")
    assert "'openai'" in unknown.value.suggestion
    assert isinstance(
        resolve(unused("opneai"), None, Connection(None, "http://localhost")),
        ChatModel,
    )
    with pytest.raises(
        errors.ConfigurationError, match="no Chat Completions endpoint"
    ):
        resolve(unused("anthropic"))
    monkeypatch.setenv("PODWRIGHT_MODEL_CLIENT", "litellm")
    assert type(resolve(unused("mistral"))).__name__ == "LiteLLMModel"
    monkeypatch.setenv("PODWRIGHT_MODEL_CLIENT", "fast")
    with pytest.raises(errors.ConfigurationError, match="fast"):
        resolve(unused("groq"))


@pytest.mark.parametrize("client", ["openai", "litellm"])
def test_the_shared_base_url_is_checked_before_the_first_call(
    client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid PODWRIGHT_MODEL_BASE_URL is refused when a model is resolved, without its secrets."""
    monkeypatch.setenv("PODWRIGHT_MODEL_CLIENT", client)
    monkeypatch.setenv("PODWRIGHT_MODEL_BASE_URL", "me:pass@vendor/v1")
    with pytest.raises(
        errors.ConfigurationError, match="PODWRIGHT_MODEL_BASE_URL"
    ) as caught:
        resolve(unused("openai"))
    assert "pass" not in str(caught.value)
    name = unused("openai")
    assert (
        resolve(name, None, Connection("key", "http://localhost/v1")).name
        == name
    )


@pytest.mark.parametrize("name", ["gpt-4o", "anthropic/", "/m", "a b/c"])
def test_a_name_without_a_provider_has_no_client(name: str) -> None:
    """A client is chosen for complete names only."""
    with pytest.raises(errors.UnknownModelError):
        choose_client(name)


@pytest.mark.parametrize(
    "url",
    [
        "https://api.anthropic.com",
        "https://api.anthropic.com/v1/",
        "https://gw.example/v1",
    ],
)
def test_list_prices_hold_at_the_vendor(url: str) -> None:
    """Also at a base URL that lacks the suffix; at another URL they do not."""
    model = resolve("anthropic/claude-haiku-4-5", None, Connection("key", url))
    model.load_prices()
    assert (model.cost(Usage(1_000_000)) == 1) == ("anthropic.com" in url)


@pytest.mark.parametrize(
    ("name", "url", "sent"),
    [
        (
            "anthropic",
            "https://gw.example/v1/messages",
            "https://gw.example/v1/messages",
        ),
        (
            "gemini",
            "https://gw.example/v1beta",
            "https://gw.example/v1beta/openai/chat/completions",
        ),
        (
            "azure",
            "https://gw.example/openai/",
            "https://gw.example/openai/v1/chat/completions",
        ),
        (
            "azure",
            "https://gw.example/team",
            "https://gw.example/team/openai/v1/chat/completions",
        ),
        (
            "openai",
            "https://gw.example/v1/chat/completions",
            "https://gw.example/v1/chat/completions",
        ),
    ],
)
def test_what_a_base_url_lacks(name: str, url: str, sent: str) -> None:
    """Only the parts that are missing are appended."""
    model = resolve(unused(name), None, Connection("key", url))
    assert isinstance(model, HTTPModel)
    assert model.destination().url == sent


async def test_invalid_urls_and_keys_are_refused_and_not_shown(
    provider: Upstream,
) -> None:
    """A base URL with a password and a key with a line break are never sent."""
    with pytest.raises(errors.ConfigurationError) as invalid_url:
        await ChatModel(
            "openai/m", Connection("key", "https://me:pass@host/v1")
        ).complete(ASK)
    assert "pass" not in str(invalid_url.value)
    with pytest.raises(errors.ModelAuthenticationError) as invalid_key:
        await ChatModel(
            "openai/m", Connection("key\r\nX: y", provider.url)
        ).complete(ASK)
    assert "X: y" not in str(invalid_key.value)
    assert "key\r" not in repr(Connection("key\r\nX: y"))


def test_the_reference_lists_every_provider() -> None:
    """The table in the documentation is the one in the code."""
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    for name, endpoint in ENDPOINTS.items():
        keys, urls = (
            ", ".join(f"`{variable}`" for variable in variables)
            for variables in (endpoint.keys, endpoint.urls)
        )
        assert (
            f"| `{name}` | {keys} | {urls} | {endpoint.url or '(none)'} |"
            in page
        )
