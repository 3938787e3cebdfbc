"""Settings: where each comes from, and the errors for invalid ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podwright.errors import ConfigurationError
from podwright_service.settings import (
    Settings,
    adopt_secrets,
    read_settings,
    source_of,
    variables_of,
)
from podwright_service.variables import LIBRARY

ROOT = Path(__file__).parents[2]


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of secret files."""
    folder = tmp_path / "secrets"
    folder.mkdir()
    monkeypatch.setenv("PODWRIGHT_SECRETS_DIR", str(folder))
    return folder


def error_message(**options: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_settings(**options)
    assert "pydantic" not in caught.value.message
    assert "validation error" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("proxy", ["http://ann:s3cret#x@host:1", "http://"])
def test_a_proxy_that_is_not_a_url(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    """It stops the start if proxies are trusted; the error names the variable without what is in it."""
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("http_proxy", proxy)
    read_settings()
    monkeypatch.setenv("PODWRIGHT_TRUST_ENV", "true")
    message = error_message()
    assert "HTTP_PROXY: Expected the URL" in message
    assert "s3cret" not in message


def test_an_option_goes_before_a_variable_before_a_file_before_the_default(
    secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each source counts only where those above it say nothing, and every value knows where it came from."""
    assert (read_settings().title, source_of("title", {})) == (None, "default")
    (secrets / "podwright_title").write_text("from the file\n")
    assert (read_settings().title, source_of("title", {})) == (
        "from the file",
        f"file {secrets / 'podwright_title'}",
    )
    monkeypatch.setenv("PODWRIGHT_TITLE", "from the variable")
    assert (read_settings().title, source_of("title", {})) == (
        "from the variable",
        "environment",
    )
    options = {"title": "option"}
    assert (read_settings(**options).title, source_of("title", options)) == (
        "option",
        "option --title",
    )


def test_keys_in_a_secret_file(secrets: Path) -> None:
    """A file of API keys may have one in a line or commas between them; no key shows when settings are printed."""
    (secrets / "podwright_api_keys").write_text(
        "first\nrun:second\n\nthird,fourth\n"
    )
    settings = read_settings()
    assert [key.get_secret_value() for key in settings.api_keys] == [
        "first",
        "run:second",
        "third",
        "fourth",
    ]
    assert "second" not in repr(settings)


def test_files_as_kubernetes_mounts_them(secrets: Path) -> None:
    """A secret that is a link into a hidden folder beside it is read."""
    (secrets / "..2026").mkdir()
    (secrets / "..2026" / "podwright_api_keys").write_text("key")
    (secrets / "..data").symlink_to("..2026")
    (secrets / "podwright_api_keys").symlink_to("..data/podwright_api_keys")
    assert [key.get_secret_value() for key in read_settings().api_keys] == [
        "key"
    ]


def test_the_librarys_key_in_a_secret_file(
    secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's key may be a secret file too; a variable goes before it."""
    import os

    monkeypatch.setenv("PODWRIGHT_MODEL_API_KEY", "")
    file = secrets / "podwright_model_api_key"
    file.write_text("sk-1\n")
    assert adopt_secrets() == {"PODWRIGHT_MODEL_API_KEY": file}
    assert os.environ["PODWRIGHT_MODEL_API_KEY"] == "sk-1"
    file.write_text("sk-2\n")
    assert adopt_secrets() == {}
    assert os.environ["PODWRIGHT_MODEL_API_KEY"] == "sk-1"


def test_secret_files_that_would_leave_the_service_open(secrets: Path) -> None:
    """A misspelt or an empty secret file stops the start, for it would be as none."""
    (secrets / "podwright_api_key").write_text("key")
    (secrets / "podwright_agents_file").write_text("\n")
    (secrets / "database").write_text("")
    message = error_message()
    assert f"{secrets / 'podwright_api_key'}" in message
    assert "'PODWRIGHT_API_KEYS'" in message
    assert f"{secrets / 'podwright_agents_file'}" in message
    assert "database" not in message


def test_secret_files_that_are_no_text(secrets: Path) -> None:
    """A file that is not UTF-8 is one readable error."""
    (secrets / "podwright_title").write_bytes(b"\xff\xfe")
    assert str(secrets) in error_message()


def test_all_mistakes_are_in_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invalid values and misspelt names are listed together, each with its variable."""
    invalid = {
        "PODWRIGHT_PRT": "80",
        "PODWRIGHT_HOST": "localhost:8000",
        "PODWRIGHT_PORT": "70000",
        "WEB_CONCURRENCY": "many",
        "PODWRIGHT_RUN_COST": "inf",
        "PODWRIGHT_LOG_LEVEL": "verbos",
        "PODWRIGHT_LOG_CONTENT": "perhaps",
        "PODWRIGHT_AGENTS": "{'writer': 1}",
        "PODWRIGHT_MAX_RUNS": "0",
        "PODWRIGHT_SECRETS_DIR": "/nowhere",
        "PODWRIGHT_MODEL_CLIENT": "direct",
        "PODWRIGHT_TRUST_ENV": "ture",
        "PODWRIGHT_DOCS_URL": "docs.example",
        "PODWRIGHT_TOOL_THREADS": "0",
        "PODWRIGHT_TOOL_TIMEOUT": "-1",
        "PODWRIGHT_MAX_RESULT_TOKENS": "many",
        "PODWRIGHT_MODEL_TIMEOUT": "0",
        "PODWRIGHT_MODEL_IDLE_TIMEOUT": "inf",
        "PODWRIGHT_MODEL_TRIES": "2.5",
        "PODWRIGHT_MODEL_LONGEST_RETRY_AFTER": "soon",
    }
    for name, value in invalid.items():
        monkeypatch.setenv(name, value)
    lines = error_message().split("\n  - ")
    assert len(lines) == 1 + len(invalid)
    for name in invalid:
        assert any(name in line for line in lines[1:]), name


@pytest.mark.parametrize(
    "value",
    [
        '["sk-secret"]',
        "sk-secret",
        '{"writer": ["sk-secret"]}',
        '{"writer": sk-secret}',
    ],
)
def test_a_wrong_secret_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """The error of a secret setting does not contain its value."""
    monkeypatch.setenv("PODWRIGHT_AGENT_KEYS", value)
    message = error_message()
    assert "PODWRIGHT_AGENT_KEYS" in message
    assert "sk-secret" not in message


@pytest.mark.parametrize(
    ("text", "models"),
    [
        ("openai/gpt-5", {"*": "openai/gpt-5"}),
        ("writer=openai/gpt-5", {"writer": "openai/gpt-5"}),
        (
            "offline/echo, my writer = openai/gpt-5\ncritic=a/b=c/d,",
            {
                "*": "offline/echo",
                "my writer": "openai/gpt-5",
                "critic": "a/b=c/d",
            },
        ),
        ("azure/my=model/x", {"*": "azure/my=model/x"}),
        ("*=offline/echo", {"*": "offline/echo"}),
    ],
    ids=["all", "one agent", "several", "equals sign", "star"],
)
def test_models_of_agents(
    monkeypatch: pytest.MonkeyPatch, text: str, models: dict[str, str]
) -> None:
    """PODWRIGHT_MODEL has models for all or for single agents, separated by commas."""
    monkeypatch.setenv("PODWRIGHT_MODEL", text)
    settings = read_settings()
    assert settings.models == models
    assert settings.model == text


@pytest.mark.parametrize(
    "text", ["=openai/gpt-5", "writer=", "a/b,c/d", "w=a/b,w=c/d"]
)
def test_models_of_agents_that_are_wrong(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """An entry without a name or a model, and a second one for the same agent, are refused."""
    monkeypatch.setenv("PODWRIGHT_MODEL", text)
    assert "PODWRIGHT_MODEL: " in error_message()


def test_an_option_that_is_wrong_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error of a command line option names the option, although its variable is valid."""
    monkeypatch.setenv("PODWRIGHT_PORT", "8000")
    assert "--port: " in error_message(port=-1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", "100000"),
        ("allowed_hosts", "a,b:80"),
        ("cors_origins", "https://example.com/"),
    ],
)
def test_values_that_would_be_useless(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Too many processes, a host with a port, and an origin with a path are refused with what is expected."""
    monkeypatch.setenv(variable := f"PODWRIGHT_{name.upper()}", value)
    assert re.search(
        rf"{variable}(/1|/0)?: Expected .*(more only take|without)",
        error_message(),
    )


@pytest.mark.parametrize(
    "name", ["PODWRIGHT_API_KEY", "podwright_api_key", "PODWRIGHT_APIKEYS"]
)
def test_a_misspelt_variable(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A variable that nothing reads is an error with the nearest name, in any letter case."""
    monkeypatch.setenv(name, "key")
    message = error_message()
    assert name in message
    assert "'PODWRIGHT_API_KEYS'" in message


def test_variables_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a developer sets for the tests of Podwright does not stop a service."""
    monkeypatch.setenv("PODWRIGHT_TEST_KUBECONFIG", "/home/me/kind")
    assert read_settings().port == 8000


def test_the_links_of_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that Kubernetes sets beside Services named `podwright…` do not stop the start, nor set the port."""
    for service in ("PODWRIGHT", "PODWRIGHT_API", "PODWRIGHT_TITLE"):
        link = f"{service}_PORT_8000_TCP"
        monkeypatch.setenv(f"{service}_SERVICE_HOST", "10.0.0.7")
        monkeypatch.setenv(f"{service}_SERVICE_PORT", "8000")
        monkeypatch.setenv(f"{service}_SERVICE_PORT_HTTP", "8000")
        for name in (f"{service}_PORT", link):
            monkeypatch.setenv(name, "tcp://10.0.0.7:8000")
        for part, value in (
            ("PROTO", "tcp"),
            ("PORT", "8000"),
            ("ADDR", "10.0.0.7"),
        ):
            monkeypatch.setenv(f"{link}_{part}", value)
    assert read_settings().port == 8000
    assert source_of("port", {}) == "default"
    assert read_settings(port=9000).port == 9000


def test_the_documented_table_is_complete() -> None:
    """docs/service.md has a row for each setting and variable, and for nothing else."""
    text = (ROOT / "docs" / "service.md").read_text()
    table = text[text.index("## Settings") :]
    rows = [
        line.split("|")[1]
        for line in table.splitlines()
        if line.startswith("| `")
    ]
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    expected = {
        name for field in Settings.model_fields for name in variables_of(field)
    } | set(LIBRARY)
    assert sorted(documented) == sorted(expected)
