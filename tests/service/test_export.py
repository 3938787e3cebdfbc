"""Where spans go: what the `OTEL_` variables may say, and collectors that do not do as they should."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from podwright.errors import ConfigurationError
from podwright_service import export

Command = Callable[..., subprocess.Popen[str]]

SECRET = "sk-secret"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")


def refused(**variables: str) -> ConfigurationError:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        with pytest.raises(ConfigurationError) as caught:
            export.provider({}, "podwright", "1")
    return caught.value


def unserved(command: Command, tmp_path: Path, **variables: str) -> str:
    """What the command says that does not start."""
    (tmp_path / "made.py").write_text("from podwright import Agent\nagent = Agent('a', 'Go.', model='offline/echo')\n")
    process = command("serve", "made:agent", "--port", "0", cwd=tmp_path, PYTHONPATH=str(tmp_path), **variables)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.startswith("ConfigurationError [configuration_invalid]: "), said
    return said


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"])
@pytest.mark.parametrize(
    "value",
    [
        f"authorization: Bearer {SECRET}",
        SECRET,
        f"a b={SECRET}",
        f"authorization={SECRET}\nx=1",
        f"authorization={SECRET}é",
        f"authorization={SECRET}%E2%82%AC",
        f"authorization={SECRET}%0d%0ax:1",
        f"=%20{SECRET}",
    ],
)
def test_headers_that_are_none_stop_the_start(name: str, value: str) -> None:
    """The error names the variable and the place in it; the value may be a key, and is nowhere."""
    error = refused(**{name: f"x-first=1, ,{value}"})
    assert str(error).startswith(f"{name}: entry 3 is no header.")
    assert SECRET not in f"{error!r}{error}{error.suggestion}"
    assert error.__suppress_context__


def test_keys_of_a_collector_are_not_told(command: Command, tmp_path: Path) -> None:
    """A colon in place of `=` stops the start, and what was written after it is in no line."""
    wrong = f"authorization: Bearer {SECRET}"
    said = unserved(
        command, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", OTEL_EXPORTER_OTLP_HEADERS=wrong
    )
    assert "OTEL_EXPORTER_OTLP_HEADERS: entry 1 is no header." in said
    assert SECRET not in said
