"""Values of the chart from component folders, and the changes between values."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.component_values import SERVED, UNSERVED
from tests.helpers import NEWSROOM
from tests.service.support import AGENT

from podwright import blueprints
from podwright.errors import BlueprintValidationError, ConfigurationError
from podwright_service.fleet import chart_values
from podwright_service.fleet.changes import diff


def folder(path: Path, blueprint: dict[str, Any] = AGENT, **files: str) -> Path:
    path.mkdir(parents=True)
    (path / "blueprint.json").write_text(json.dumps(blueprint))
    for name, text in files.items():
        (path / name.replace("_py", ".py")).write_text(text)
    return path


def test_a_fleet_of_folders() -> None:
    """Folders become components with their blueprints, their files, and each other as agents."""
    folders = [
        NEWSROOM / name
        for name in ("writer", "newsroom", "researcher", "reviewer", "press")
    ]
    components = chart_values.render(folders)["components"]
    assert list(components) == [
        "newsroom",
        "press",
        "researcher",
        "reviewer",
        "writer",
    ]
    assert components["newsroom"]["agents"] == [
        "researcher",
        "reviewer",
        "writer",
    ]
    assert components["press"]["agents"] == ["researcher", "writer"]
    assert "agents" not in components["writer"]
    assert components["researcher"]["files"] == {
        name: (NEWSROOM / "researcher" / name).read_text()
        for name in ("archive.txt", "tools.py")
    }
    for path in folders:
        (file,) = path.glob("blueprint.*")
        assert components[path.name]["blueprint"] == {
            "inline": blueprints.read_file(file)
        }
    assert yaml.safe_load(yaml.safe_dump(components)) == components


def test_agents_inside_and_outside_of_a_folder(tmp_path: Path) -> None:
    """An agent in `agents/` is a file of the component; another one is a component with a valid name for the chart."""
    workflow = {
        "type": "Workflow", "name": "w",
        "steps": [{"type": "agent_step", "agent": agent, "name": agent} for agent in ("inner", "Chief_Editor")],
    }  # fmt: skip
    outer = folder(tmp_path / "outer", workflow)
    folder(outer / "agents" / "inner", {**AGENT, "name": "inner"}, tools_py="")
    (outer / ".hidden").write_text("no")
    (outer / "__pycache__").mkdir()
    (outer / "__pycache__" / "x.pyc").write_bytes(b"\xff")
    values = chart_values.render([outer, folder(tmp_path / "Chief_Editor")])
    assert list(values["components"]) == ["chief-editor", "outer"]
    assert values["components"]["outer"]["agents"] == [
        {"name": "Chief_Editor", "component": "chief-editor"}
    ]
    assert list(values["components"]["outer"]["files"]) == [
        "agents/inner/blueprint.json",
        "agents/inner/tools.py",
    ]


def test_files_that_are_left_out(tmp_path: Path) -> None:
    """Tests, evaluations, virtual environments and a lock without dependencies are not files of a component."""
    path = folder(
        tmp_path / "writer",
        tools_py="",
        test_writer_py="",
        conftest_py="",
        blueprint_py="",
    )
    for inside in ("env", "evals"):
        (path / inside).mkdir()
    for name in (
        "env/pyvenv.cfg",
        "env/notes.txt",
        "evals/checks.py",
        "requirements.lock",
    ):
        (path / name).write_text("")
    assert list(
        chart_values.render([path])["components"]["writer"]["files"]
    ) == [
        "blueprint.py",
        "tools.py",
    ]


def test_shared_packages_are_files_of_each_component(tmp_path: Path) -> None:
    """Code that components share is in the values of each."""
    folders = [folder(tmp_path / name, tools_py="") for name in ("a", "b")]
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "words.py").write_text("x = 1")
    components = chart_values.render(folders)["components"]
    for name in ("a", "b"):
        files = {"shared/words.py": "x = 1", "tools.py": ""}
        assert components[name]["files"] == files


def test_agents_in_code_are_no_other_components(tmp_path: Path) -> None:
    """A folder beside a component is none of its agents if `agents.py` supplies the agent."""
    step = {"type": "agent_step", "agent": "helper", "name": "first"}
    workflow = {"type": "Workflow", "name": "w", "steps": [step]}
    flow = folder(
        tmp_path / "flow", workflow, agents_py="def helper(task): ..."
    )
    helper = folder(tmp_path / "helper")
    components = chart_values.render([flow, helper])["components"]
    assert "agents" not in components["flow"]


def test_files_for_readers_are_left_out(tmp_path: Path) -> None:
    """README, CHANGELOG, LICENSE and NOTICE are no files of a component, unless a blueprint has a text in one."""
    blueprint = {**AGENT, "instructions": {"file": "README.md"}}
    path = folder(tmp_path / "writer", tools_py="")
    inner = folder(path / "agents" / "inner", blueprint)
    for name in (
        "README.md",
        "README.de.md",
        "CHANGELOG",
        "LICENSE.txt",
        "LICENSE-MIT",
    ):
        (path / name).write_text("x")
    for name in ("NOTICE.csv", "NOTICE-old.csv", "README.py", "facts.md"):
        (path / name).write_text("x")
    for name in ("README.md", "NOTICE"):
        (inner / name).write_text("Be brief.")
    component = chart_values.render([path])["components"]["writer"]
    assert list(component["files"]) == [
        "NOTICE-old.csv",
        "NOTICE.csv",
        "README.py",
        "agents/inner/README.md",
        "agents/inner/blueprint.json",
        "facts.md",
        "tools.py",
    ]


def test_a_text_with_a_hidden_name(tmp_path: Path) -> None:
    """The text is in the blueprint of the values, which need no file of it."""
    blueprint = {**AGENT, "instructions": {"file": ".prompt.md"}}
    path = folder(tmp_path / "writer", blueprint, tools_py="")
    (path / ".prompt.md").write_text("Be brief.")
    component = chart_values.render([path])["components"]["writer"]
    inline = component["blueprint"]["inline"]
    assert inline["instructions"] == "Be brief."
    assert list(component["files"]) == ["tools.py"]


def error_of(*folders: Path) -> str:
    with pytest.raises(ConfigurationError) as raised:
        chart_values.render(folders)
    return str(raised.value)


def test_folders_that_the_chart_cannot_deploy(tmp_path: Path) -> None:
    """Files that a ConfigMap cannot hold, missing agents and names that clash are errors."""
    assert "'researcher'" in error_of(NEWSROOM / "newsroom")
    packaged = folder(tmp_path / "packaged")
    (packaged / "requirements.txt").write_text("numpy\n")
    assert "requirements.txt" in error_of(packaged)
    binary = folder(tmp_path / "binary")
    (binary / "model.bin").write_bytes(b"\xff\xfe")
    assert "model.bin" in error_of(binary)
    named = folder(tmp_path / "named")
    (named / "a b.txt").write_text("x")
    assert "'a b.txt'" in error_of(named)
    linked = folder(tmp_path / "linked")
    (linked / "key.txt").symlink_to("/etc/hostname")
    assert "key.txt" in error_of(linked)
    large = folder(tmp_path / "large")
    (large / "notes.txt").write_text("x" * 1_000_000)
    assert "large" in error_of(large)
    assert "a_b" in error_of(folder(tmp_path / "a_b"), folder(tmp_path / "a-b"))
    assert "'ä'" in error_of(folder(tmp_path / "ä"))
    with pytest.raises(BlueprintValidationError):
        chart_values.render([folder(tmp_path / "bad", {**AGENT, "bogus": 1})])


def test_a_missing_agent_may_be_a_remote(tmp_path: Path) -> None:
    """The error names the value for a remote, with which the folder is rendered."""
    step = {"type": "agent_step", "agent": "translator", "name": "translate"}
    flow = {"type": "Workflow", "name": "publisher", "steps": [step]}
    publisher = folder(tmp_path / "Publisher", flow)
    with pytest.raises(ConfigurationError) as refused:
        chart_values.render([publisher])
    suggestion = refused.value.suggestion or ""
    path, _, agents = suggestion.removesuffix(".").rpartition(": [")
    assert path.endswith("components.publisher.agents")
    remotes = yaml.safe_load(f"[{agents}")
    running = {"components": {"publisher": {"agents": remotes}}}
    values = chart_values.update(running, [publisher])
    assert values["components"]["publisher"]["agents"] == remotes


@pytest.mark.parametrize("place", ["chief.json", "chief/blueprint.json"])
def test_agents_of_an_agent_are_components_of_the_release(
    tmp_path: Path, place: str
) -> None:
    """The members of a conductor in `agents/` that are not in the folder are agents of its component."""
    step = {"type": "agent_step", "agent": "chief", "name": "build"}
    flow = {"type": "Workflow", "name": "game", "steps": [step]}
    game = folder(tmp_path / "game", flow)
    senior = folder(tmp_path / "senior", {**AGENT, "name": "senior"})
    skills = [{"type": "Agent", "name": name} for name in ("senior", "junior")]
    chief = {
        "type": "Conductor",
        "name": "chief",
        "instructions": "",
        "config": {"model": "offline/echo"},
        "skills": skills,
    }
    file = game / "agents" / place
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(chief))
    (game / "agents" / "junior.json").write_text(
        json.dumps({**AGENT, "name": "junior"})
    )
    with pytest.raises(ConfigurationError) as refused:
        chart_values.render([game])
    assert "'senior'" in refused.value.message
    values = chart_values.render([game, senior])
    assert values["components"]["game"]["agents"] == ["senior"]


def test_changes_between_values() -> None:
    """Components are added and removed, their blueprints change, breaking or not, and their other values."""
    running = chart_values.render(
        [NEWSROOM / name for name in ("writer", "researcher", "reviewer")]
    )
    running["components"]["old"] = {"blueprint": {"inline": AGENT}}
    new = copy.deepcopy(running)
    del new["components"]["old"]
    new["components"]["fresh"] = {}
    new["components"]["writer"]["blueprint"]["inline"]["instructions"] = (
        "Write more."
    )
    new["components"]["writer"]["replicas"] = 3
    function = {"name": "extra", "parameters": {"type": "object"}}
    tool = {
        "name": "extra",
        "schema": {"type": "function", "function": function},
    }
    new["components"]["researcher"]["blueprint"]["inline"]["tools"].append(tool)
    changes = {change.component: change for change in diff(running, new)}
    assert {
        name: (change.what, change.breaking) for name, change in changes.items()
    } == {
        "fresh": ("added", False),
        "old": ("removed", True),
        "writer": ("changed", False),
        "researcher": ("changed", True),
    }
    assert [str(change) for change in changes["writer"].blueprint] == [
        "compatible: /instructions changed"
    ]
    assert changes["writer"].values == ["replicas"]
    assert diff(running, running) == []
    new = copy.deepcopy(running)
    new["components"]["writer"]["previous"] = []
    assert diff(running, new) == []


def test_blueprints_as_text_are_compared_as_data() -> None:
    """A blueprint as text equals one as data; without an inline blueprint, its source is compared."""
    to_text = {
        "components": {
            "x": {
                "blueprint": {
                    "inline": blueprints.to_yaml(AGENT),
                    "file": "blueprint.yaml",
                }
            }
        }
    }
    as_data = {"components": {"x": {"blueprint": {"inline": AGENT}}}}
    assert diff(to_text, as_data) == []
    (change,) = diff(
        as_data, {"components": {"x": {"blueprint": {"configMap": "mine"}}}}
    )
    assert change.values == ["blueprint"]
    assert diff({}, {}) == []
    with pytest.raises(
        ConfigurationError, match=r"components\.x\.blueprint\.inline"
    ):
        diff(
            {"components": {"x": {"blueprint": {"inline": "- no\n"}}}}, as_data
        )


def test_values_that_are_not_yaml() -> None:
    """The message says where, and ends with one full stop."""
    with pytest.raises(ConfigurationError) as refused:
        chart_values.read_values("a: [1")
    message = refused.value.message
    assert "line 1" in message
    assert message.endswith(".")
    assert not message.endswith("..")


@pytest.mark.parametrize(("component", "defaults"), SERVED.values(), ids=SERVED)
def test_what_may_be_served(
    component: dict[str, Any], defaults: dict[str, Any]
) -> None:
    """Values that the chart accepts are accepted."""
    values = {"defaults": defaults, "components": {"x": component}}
    assert chart_values.update(values, []) == values


@pytest.mark.parametrize(
    ("component", "defaults"), UNSERVED.values(), ids=UNSERVED
)
def test_a_component_that_serves_nothing(
    component: dict[str, Any], defaults: dict[str, Any]
) -> None:
    """What the chart would refuse is an error before."""
    values = {"defaults": defaults, "components": {"x": component}}
    with pytest.raises(ConfigurationError, match="no blueprint"):
        chart_values.update(values, [])


@pytest.mark.parametrize(
    ("component", "is_there"),
    [
        (None, True),
        ({"replicas": 3}, True),
        ({"image": {"tag": "1-full", "repository": "podwright"}}, True),
        ({"image": {"tag": "calculator-1"}}, False),
    ],
)
def test_a_base_image_for_all(
    tmp_path: Path, component: dict[str, Any] | None, *, is_there: bool
) -> None:
    """An image in `defaults` has not the folders that are given; one that only a component names has its folder."""
    image = {"repository": "registry.example/team/agents", "tag": "1"}
    values = {
        "defaults": {"image": image},
        "components": {"calculator": component},
    }
    path = folder(tmp_path / "calculator", tools_py="")
    updated = chart_values.update(values, [path])["components"]["calculator"]
    assert ("blueprint" in updated, "files" in updated) == (is_there, is_there)


def test_what_is_in_images() -> None:
    """A component that is null is nowhere, and one with a blueprint in the values has it there."""
    values = {
        "defaults": {"image": {"repository": "registry.example/agents"}},
        "components": {
            "served": {},
            "removed": None,
            "given": {"blueprint": {"inline": AGENT}},
        },
    }
    assert chart_values.components_in_images(values) == ["served"]


def test_mcp_servers_of_a_folder(tmp_path: Path) -> None:
    """A folder that names MCP servers needs their URLs in the values, its own or the defaults'; they are kept."""
    blueprint = {**AGENT, "mcp": [{"server": "files", "tools": ["read"]}]}
    desk = folder(tmp_path / "desk", blueprint)
    assert "components.desk.mcpServers: {files: " in error_of(desk)
    servers = {"files": "http://files:8080/mcp"}
    own = {"components": {"desk": {"mcpServers": servers}}}
    values = chart_values.update(own, [desk])
    assert values["components"]["desk"]["mcpServers"] == servers
    for defaults in (
        {"mcpServers": servers},
        {"settings": {"mcp_servers_file": "/servers.json"}},
    ):
        chart_values.update({"defaults": defaults}, [desk])
    removed = {"components": {"desk": {"mcpServers": {"files": None}}}}
    with pytest.raises(ConfigurationError):
        chart_values.update(
            {"defaults": {"mcpServers": servers}, **removed}, [desk]
        )
