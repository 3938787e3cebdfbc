"""The settings of the library: read once, checked together, and not again in a run."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping

import pytest
from tests.library.upstream import Upstream, completion, reply

from podwright import Agent
from podwright.errors import ConfigurationError
from podwright.models import choose_client
from podwright.settings import current_settings, forget_settings


class Watched(MutableMapping[str, str]):
    """An environment that notes which variables are read."""

    def __init__(self, variables: MutableMapping[str, str]) -> None:
        self._variables = variables
        self.read: list[str] = []

    def __getitem__(self, name: str) -> str:
        self.read.append(name)
        return self._variables[name]

    def __setitem__(self, name: str, value: str) -> None:
        self._variables[name] = value

    def __delitem__(self, name: str) -> None:
        del self._variables[name]

    def __iter__(self) -> Iterator[str]:
        self.read.append("*")
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)


def test_variables_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change counts once the settings are forgotten; an empty variable is as none."""
    monkeypatch.setenv("PODWRIGHT_TOOL_THREADS", "7")
    assert current_settings().tool_threads == 7
    monkeypatch.setenv("PODWRIGHT_TOOL_THREADS", "")
    assert current_settings().tool_threads == 7
    forget_settings()
    assert current_settings().tool_threads == 64


def test_a_choice_of_a_client_reads_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is set after a first failure counts for the model that is made next."""
    assert choose_client("openai/m").client == "openai"
    monkeypatch.setenv("PODWRIGHT_MODEL_CLIENT", "litellm")
    assert choose_client("openai/m").client == "litellm"


def test_all_mistakes_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has a line for each variable; an error can be made although they are invalid."""
    invalid = {
        "PODWRIGHT_MODEL_CLIENT": "fast",
        "PODWRIGHT_MODEL_TRIES": "0",
        "PODWRIGHT_TOOL_TIMEOUT": "nan",
        "PODWRIGHT_TRUST_ENV": "perhaps",
    }
    for name, value in invalid.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        with pytest.raises(ConfigurationError) as caught:
            current_settings()
        lines = caught.value.message.splitlines()
        assert [line.partition(":")[0] for line in lines] == list(invalid)
    # a process that was told may correct them
    for name in invalid:
        monkeypatch.delenv(name)
    assert current_settings().tool_timeout is None


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key, an address and prices are in no text of the settings."""
    for name in ("MODEL_API_KEY", "MODEL_BASE_URL", "PRICES"):
        monkeypatch.setenv(f"PODWRIGHT_{name}", "canary")
    assert current_settings().model_api_key == "canary"
    assert "canary" not in f"{current_settings()!r} {current_settings()}"


async def test_a_run_reads_no_variable(
    monkeypatch: pytest.MonkeyPatch, provider: Upstream
) -> None:
    """Nothing is read from the environment in a run, once its model has been called."""
    monkeypatch.setenv("PODWRIGHT_MODEL_BASE_URL", provider.url)
    provider.answers([reply(completion("hello"))])

    async def work(text: str) -> str:
        """Work."""
        return text

    agent = Agent("a", "", "openai/read-once", tools=[work])
    assert await agent.arun("?") == "hello"
    environment = Watched(os.environ)
    monkeypatch.setattr(os, "environ", environment)
    assert await agent.arun("?") == "hello"
    assert environment.read == []
