"""What is secret in the URLs of settings is shown nowhere: by no command, in no log line, error or response."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.helpers import NO_AUTHORITIES
from tests.service.background_support import begin, wait
from tests.service.support import (
    AGENT,
    Address,
    Command,
    Shell,
    wait_for_line,
    write,
)

from podwright_service.background.storage.database import database_url, migrate

SECRET = "canary-7d1f"
SECRET_KEY = f"whsec_{'MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'}"
QUERY = f"?token={SECRET}"
USER = f"ann:{SECRET}"
VALID = {
    "PODWRIGHT_WEBHOOK": f"http://127.0.0.1:9/hook{QUERY}",
    "PODWRIGHT_WEBHOOK_SECRET": SECRET_KEY,
    "PODWRIGHT_AGENTS": '{"writer": "http://127.0.0.1:9"}',
    "PODWRIGHT_AGENT_PROXIES": f'{{"writer": "http://{USER}@127.0.0.1:9"}}',
    "PODWRIGHT_CORS_ORIGINS": f"https://example.com{QUERY}",
    "PODWRIGHT_TRUST_ENV": "true",
    "HTTP_PROXY": f"http://{USER}@127.0.0.1:9",
    "NO_PROXY": "",
    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{USER}@127.0.0.1:9/{QUERY}",
    "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {SECRET}",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "OPENAI_API_KEY": SECRET,
}
"""Variables with which a service starts."""
INVALID = {
    "PODWRIGHT_WEBHOOK": [
        f"https://{USER}@example.com/hook",
        f"https://example.com/hook?token=a {SECRET}",
        f"https://example.com/hook#{SECRET}",
    ],
    "PODWRIGHT_RUNS_DATABASE": [f"mysql://{USER}@example.com/runs"],
    "PODWRIGHT_AGENTS": [
        f'{{"writer": "http://{USER}@writer:8000/{QUERY}"}}',
        f'{{"writer": "http://{USER}@writer:8000/{QUERY}"',
        f'{{"writer": ["http://{USER}@writer:8000/{QUERY}"]}}',
        f"http://{USER}@writer:8000/{QUERY}",
    ],
    "PODWRIGHT_AGENT_PROXIES": [f'{{"writer": "http://{USER}@proxy/{QUERY}"}}'],
    "PODWRIGHT_MODEL_BASE_URL": [
        f"https://{USER}@example.com/v1",
        f"https://example.com/v1{QUERY}",
        f"{USER}@example.com/v1",
    ],
    "PODWRIGHT_DOCS_URL": [
        f"https://docs.example.com/{QUERY}",
        f"https://ann:{'x' * 80}{SECRET}@docs.example.com",
    ],
    "PODWRIGHT_CORS_ORIGINS": [f"https://{USER}@example.com/{QUERY}"],
    "PODWRIGHT_ALLOWED_HOSTS": [f"https://{USER}@example.com/{QUERY}"],
    "PODWRIGHT_HOST": [f"https://{USER}@example.com/{QUERY}"],
    "PODWRIGHT_MODEL": [f"https://{USER}@example.com/{QUERY}"],
    "PODWRIGHT_PRICES": [f"https://{USER}@example.com/{QUERY}"],
    "PODWRIGHT_AGENTS_FILE": [f"https://{USER}@example.com/{QUERY}"],
    "PODWRIGHT_SECRETS_DIR": [f"https://{USER}@example.com/{QUERY}"],
    "PODWRIGHT_PREVIOUS": [f"https://{USER}@example.com/{QUERY}"],
    "OPENAI_BASE_URL": [f"https://{USER}@example.com/{QUERY}"],
    "OTEL_TRACES_EXPORTER": [f"https://{USER}@example.com/{QUERY}"],
    "OTEL_EXPORTER_OTLP_PROTOCOL": [f"https://{USER}@example.com/{QUERY}"],
}
"""Values that most commands refuse, or that the settings have and nothing uses."""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """The folder of a component whose model is called over HTTP."""
    blueprint = {**AGENT, "config": {"model": "openai/gpt-5"}}
    write(tmp_path / "writer" / "blueprint.json", blueprint)
    return str(tmp_path / "writer")


@pytest.fixture
def used_port() -> Iterator[str]:
    """A port that another program listens on, so that a service ends as soon as its settings are read and used."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield str(listening.getsockname()[1])


@pytest.mark.parametrize(
    "arguments",
    [["settings"], ["settings", "--json"], ["settings", "--check"]],
    ids=" ".join,
)
def test_settings_show_no_secrets(
    shell: Shell, folder: str, arguments: list[str]
) -> None:
    """The settings have URLs without user, query and fragment, so that they can be shown to others."""
    database = f"postgresql://{USER}@127.0.0.1:9/runs"
    variables = {**VALID, "PODWRIGHT_RUNS_DATABASE": database}
    done = shell(*arguments, folder, **variables)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    if "--check" not in arguments:
        assert "http://127.0.0.1:9/hook?…" in done.stdout


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in INVALID.items() for value in values],
)
def test_invalid_urls_are_not_shown(
    shell: Shell, folder: str, used_port: str, name: str, value: str
) -> None:
    """An error names the variable, and has no more of its URL than scheme, host and path."""
    variables = {"OPENAI_API_KEY": "x", name: value}
    serve = ("serve", folder, "--host", "127.0.0.1", "--port", used_port)
    for arguments in (("settings",), ("settings", folder, "--check"), serve):
        done = shell(*arguments, **variables)
        assert SECRET not in done.stdout + done.stderr, arguments


def test_the_address_that_is_checked_is_not_shown(shell: Shell) -> None:
    """`podwright check` names the address without user and query."""
    done = shell("check", f"http://{USER}@127.0.0.1:9/ready{QUERY}")
    assert done.returncode == 1
    assert "127.0.0.1:9/ready?…" in done.stderr
    assert SECRET not in done.stderr


def test_a_service_shows_no_secrets(
    command: Command, address: Address, folder: str, sqlite_database: str
) -> None:
    """Failed requests to the webhook, the model, the proxy and the collector are reported without what is secret."""
    migrate(database_url(sqlite_database))
    process = command(
        "serve", folder, "--host", "127.0.0.1", "--port", "0",
        PODWRIGHT_RUNS_DATABASE=sqlite_database,
        PODWRIGHT_MODEL_TRIES="1",
        OTEL_METRICS_EXPORTER="otlp",
        **VALID,
    )  # fmt: skip
    with httpx.Client(
        verify=NO_AUTHORITIES,
        base_url=address(process),
        timeout=60,
        trust_env=False,
    ) as client:
        run = client.post("/run", json={"input": "x"})
        assert run.status_code >= 500
        url = begin(client)
        assert wait(client, url)["status"] == "failed"
        responses = [run, client.get(url), client.get("/info")]
        wait_for_line(process, "webhook request failed")
    texts = [response.text for response in responses]
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert SECRET not in output + json.dumps(texts)
