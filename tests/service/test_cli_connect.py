"""`podwright connect`: the configuration of MCP clients for a served component."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.service.support import AGENT, Serve, Shell

from podwright import Agent

KEY = "run-0123456789abcdef"
FILES = {
    "claude": ".mcp.json",
    "vscode": ".vscode/mcp.json",
    "cursor": ".cursor/mcp.json",
    "codex": ".codex/config.toml",
}


@pytest.fixture
def url(serve: Serve) -> str:
    """The address of a service that serves MCP without keys."""
    client = serve(Agent.from_blueprint(AGENT, []), mcp=True)
    return str(client.base_url).rstrip("/")


@pytest.fixture
def locked_url(serve: Serve) -> str:
    """The address of one that needs a key; a caller's key may only run."""
    client = serve(
        Agent.from_blueprint(AGENT, []),
        mcp=True,
        api_keys=f"run:{KEY}",
    )
    return str(client.base_url).rstrip("/")


def read(path: Path) -> dict[str, Any]:
    text = path.read_text()
    if path.suffix == ".toml":
        return tomllib.loads(text)
    return json.loads(text)


def test_each_client(shell: Shell, url: str, tmp_path: Path) -> None:
    """Each is printed in its own form; what is printed is what `--write` writes, and writing again changes nothing."""
    everything = shell("connect", url)
    assert everything.returncode == 0, everything.stderr
    for client, name in FILES.items():
        printed = shell("connect", url, "--client", client)
        assert printed.stdout in everything.stdout
        written = shell("connect", url, "--client", client, "--write")
        assert written.returncode == 0, written.stderr
        file = tmp_path / name
        assert file.read_text() == printed.stdout
        again = shell("connect", url, "--client", client, "--write")
        assert "there already" in again.stdout
        assert file.read_text() == printed.stdout
    server = {"type": "http", "url": f"{url}/mcp"}
    assert read(tmp_path / FILES["claude"]) == {
        "mcpServers": {"writer": server}
    }
    assert read(tmp_path / FILES["vscode"]) == {"servers": {"writer": server}}
    only_url = {"url": f"{url}/mcp"}
    assert read(tmp_path / FILES["cursor"]) == {
        "mcpServers": {"writer": only_url}
    }
    assert read(tmp_path / FILES["codex"]) == {
        "mcp_servers": {"writer": only_url}
    }


def test_keys_are_never_written(
    shell: Shell, locked_url: str, tmp_path: Path
) -> None:
    """Each client takes the key from a variable, or asks for it; a wrong key is refused before anything is written."""
    options = ("--name", "news-desk", "--write")
    for client in FILES:
        done = shell(
            "connect",
            locked_url,
            "--client",
            client,
            "--api-key",
            KEY,
            *options,
        )
        assert done.returncode == 0, done.stderr
        assert "NEWS_DESK_API_KEY" in done.stderr
    texts = {
        client: (tmp_path / name).read_text() for client, name in FILES.items()
    }
    assert not any(KEY in text for text in texts.values())
    for client, reference in (
        ("claude", "Bearer ${NEWS_DESK_API_KEY}"),
        ("vscode", "Bearer ${input:NEWS_DESK_API_KEY}"),
        ("cursor", "Bearer ${env:NEWS_DESK_API_KEY}"),
        ("codex", 'bearer_token_env_var = "NEWS_DESK_API_KEY"'),
    ):
        assert reference in texts[client]
    assert read(tmp_path / FILES["vscode"])["inputs"] == [
        {
            "type": "promptString",
            "id": "NEWS_DESK_API_KEY",
            "description": "API key of news-desk",
            "password": True,
        }
    ]
    # how the user gives the key stays as it is
    own = {"id": "NEWS_DESK_API_KEY", "type": "command", "command": "vault"}
    (tmp_path / FILES["vscode"]).write_text(json.dumps({"inputs": [own]}))
    again = shell(
        *("connect", locked_url, "--client", "vscode", "--api-key", KEY),
        *options,
    )
    assert again.returncode == 0, again.stderr
    assert read(tmp_path / FILES["vscode"])["inputs"] == [own]
    wrong = shell("connect", locked_url, "--api-key", "another")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "another" not in wrong.stderr
    # a key that is not given is not checked
    without = shell("connect", locked_url, "--client", "claude")
    assert without.returncode == 0
    assert "_API_KEY}" in without.stdout


def test_a_key_that_may_only_run(shell: Shell, locked_url: str) -> None:
    """It is enough for the component's name and variable; without a key, the host stands for it."""
    options = ("--client", "cursor")
    done = shell("connect", locked_url, *options, "--api-key", KEY)
    assert list(json.loads(done.stdout)["mcpServers"]) == ["writer"]
    assert "WRITER_API_KEY" in done.stderr
    without = shell("connect", locked_url, *options)
    assert list(json.loads(without.stdout)["mcpServers"]) == ["127_0_0_1"]


def test_a_link_is_kept(shell: Shell, url: str, tmp_path: Path) -> None:
    """The entry is written into the file that a link leads to, also if there is none yet."""
    claude = tmp_path / ".mcp.json"
    target = tmp_path / "settings" / "claude.json"
    target.parent.mkdir()
    claude.symlink_to(Path("settings") / "claude.json")
    for _ in range(2):
        done = shell(
            *("connect", url, "--client", "claude", "--write", "--force")
        )
        assert done.returncode == 0, done.stderr
        assert claude.is_symlink()
        assert set(read(target)["mcpServers"]) == {"writer"}
        target.write_text('{"mcpServers": {}}')
    assert [each.name for each in target.parent.iterdir()] == ["claude.json"]


def test_other_entries_are_kept(shell: Shell, url: str, tmp_path: Path) -> None:
    """Other servers and settings stay, and comments of TOML; one of the name is replaced with `--force` only."""
    claude = tmp_path / ".mcp.json"
    claude.write_text(
        '{"mcpServers": {"other": {"command": "x"}, "writer": {"command": "y"}}, "more": 1}'
    )
    refused = shell("connect", url, "--client", "claude", "--write")
    assert (refused.returncode, "--force" in refused.stderr) == (1, True)
    assert '"y"' in claude.read_text()
    done = shell("connect", url, "--client", "claude", "--write", "--force")
    assert done.returncode == 0, done.stderr
    assert json.loads(claude.read_text()) == {
        "mcpServers": {
            "other": {"command": "x"},
            "writer": {"type": "http", "url": f"{url}/mcp"},
        },
        "more": 1,
    }
    codex = tmp_path / ".codex" / "config.toml"
    codex.parent.mkdir()
    before = '# mine\nmodel = "m"\n\n[mcp_servers.other]\ncommand = "x"\n'
    codex.write_text(before)
    assert shell("connect", url, "--client", "codex", "--write").returncode == 0
    assert codex.read_text().startswith(before)
    assert set(read(codex)["mcp_servers"]) == {"other", "writer"}
    codex.write_text('[mcp_servers.writer]\ncommand = "x"\n')
    taken = shell("connect", url, "--client", "codex", "--write", "--force")
    assert (taken.returncode, "remove that table" in taken.stderr) == (1, True)


def test_files_that_cannot_be_changed(
    shell: Shell, url: str, tmp_path: Path
) -> None:
    """A file with comments, of another shape or in a folder's place stays as it is; the error says what to do."""
    vscode = tmp_path / ".vscode" / "mcp.json"
    vscode.parent.mkdir()
    for text in ('// mine\n{"servers": {}}', "[]", "{", '{"servers": ["a"]}'):
        vscode.write_text(text)
        done = shell("connect", url, "--client", "vscode", "--write")
        assert (done.returncode, "by hand" in done.stderr) == (1, True)
        assert vscode.read_text() == text
    codex = tmp_path / ".codex" / "config.toml"
    codex.parent.mkdir()
    for text in ("mcp_servers = {a = {url = 'x'}}", "mcp_servers = 3", "["):
        codex.write_text(text)
        done = shell("connect", url, "--client", "codex", "--write")
        assert (done.returncode, "by hand" in done.stderr) == (1, True)
        assert codex.read_text() == text
    (tmp_path / ".cursor").write_text("")
    done = shell("connect", url, "--client", "cursor", "--write")
    assert (done.returncode, ".cursor" in done.stderr) == (1, True)


def test_services_without_mcp(
    shell: Shell, serve: Serve, tmp_path: Path
) -> None:
    """One that does not serve MCP, one that does not answer, and what is wrong in the command are told apart."""
    client = serve(Agent.from_blueprint(AGENT, []))
    off = shell("connect", str(client.base_url), "--client", "claude")
    assert (off.returncode, "PODWRIGHT_MCP=true" in off.stderr) == (1, True)
    nobody = shell("connect", "http://127.0.0.1:9", "--client", "claude")
    assert (nobody.returncode, "cannot be reached" in nobody.stderr) == (
        1,
        True,
    )
    for arguments, word in (
        (("--client", "cursr"), "cursor"),
        (("--write",), "--client"),
        (("--client", "claude", "--name", "a b"), "name"),
    ):
        done = shell("connect", "http://127.0.0.1:9", *arguments)
        assert (done.returncode, word in done.stderr) == (1, True), arguments
    assert list(tmp_path.iterdir()) == []
