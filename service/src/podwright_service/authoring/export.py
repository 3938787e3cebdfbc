"""Writing a component that was made in Python as a component folder."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from podwright import blueprints
from podwright.blueprints.named_parts import condition_names
from podwright.components import Agent, Component
from podwright.data.text import os_error_reason
from podwright.errors import ConfigurationError, UnknownModelError
from podwright.folders.folder import Folder
from podwright.folders.loader import has_blueprint
from podwright.folders.walks import component_digest, remotes_in
from podwright.kinds import TRAITS
from podwright.mcp.definitions import ToolDefinition
from podwright.mcp.lock import LOCK_FILE, MCPLock
from podwright.mcp.mcp_tool import MCPTool
from podwright.models.registry import registered_provider
from podwright_service.authoring.copy_check import check_copy
from podwright_service.authoring.local_code import (
    LocalCode,
    Named,
    named,
    needed_by,
    package_files,
    registering_module,
)
from podwright_service.images.building import Report, no_report
from podwright_service.images.context import (
    copy_folder,
    credentials_below,
    files_with_credentials,
)
from podwright_service.images.credentials import note_on_credentials
from podwright_service.model_checks import model_errors
from podwright_service.remotes import remotes_of
from podwright_service.settings import read_settings
from podwright_service.source import (
    is_folder,
    load_component,
    load_from_module,
    names_module,
    whole,
)

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_HEADING = '"""Written by `podwright export`: {what}."""'
_FILES = {
    "tools": ("tools.py", "the functions of the tools"),
    "functions": ("functions.py", "the functions of steps and of components"),
    "conditions": ("conditions.py", "the conditions of the workflow"),
    "agents": ("agents.py", "the agents in Python"),
}
"""The files of a folder with what its blueprint names, and what they have."""


@dataclass
class Exported:
    """What was written."""

    folder: Path
    digest: str
    """The digest of the component; see `podwright.folders.walks.component_digest`."""
    files: list[str]
    notes: list[str]
    """What may be missing where it runs."""


@dataclass
class _Plan:
    """The files of one folder."""

    blueprint: dict[str, Any]
    code: dict[str, dict[str, Named]] = field(
        default_factory=lambda: {key: {} for key in _FILES}
    )
    """What each file with code supplies, by name."""
    providers: dict[str, str] = field(default_factory=dict[str, str])
    """The module that registers each provider of models when it is imported."""
    agents: dict[str, _Plan] = field(default_factory=dict[str, "_Plan"])
    """The folders in `agents/`."""
    files: dict[str, dict[str, Any]] = field(
        default_factory=dict[str, dict[str, Any]]
    )
    """The blueprints of the files in `agents/`, whose code is that of this folder."""
    remotes: list[str] = field(default_factory=list[str])
    definitions: dict[str, dict[str, ToolDefinition]] = field(
        default_factory=dict[str, dict[str, ToolDefinition]]
    )
    """The locked definitions of MCP tools, by server and tool."""

    def lock(self, tool: MCPTool) -> None:
        """Let the lock of the folder have the definition of an MCP tool.

        Raises:
            ConfigurationError: It is not locked.
        """
        definition = tool.locked
        if definition is None:
            raise ConfigurationError(
                f"The definition of the tool '{tool.name}' of the MCP server '{tool.mcp_server}' is not locked.",
                suggestion="Write the blueprint to a folder, and run `podwright sync FOLDER --mcp "
                f"{tool.mcp_server}` there.",
            )
        tools = self.definitions.setdefault(tool.mcp_server, {})
        tools[tool.mcp_tool] = definition

    def modules(self) -> Iterator[str]:
        """The modules that the code is imported from."""
        yield from self.providers.values()
        for supplied in self.code.values():
            for item in supplied.values():
                yield item.module
        for agent in self.agents.values():
            yield from agent.modules()

    def supply(self, key: str, name: str, item: Named) -> None:
        """Let the code of the folder supply something under a name.

        Raises:
            ConfigurationError: The name is that of something else there.
        """
        other = self.code[key].setdefault(name, item)
        if other != item:
            raise ConfigurationError(
                f"Two functions are called '{name}': in {other.module} and in {item.module}.",
                suggestion="Give each its own name.",
            )


@contextmanager
def component_folder(
    source: str, report: Report = no_report
) -> Generator[Path]:
    """The component folder of a source: itself, or of `module:attribute` what `export` writes, for the time being.

    Args:
        source: As for `export`.
        report: As for `export`.

    Raises:
        PodwrightError: As `export`.
    """
    if not names_module(source):
        yield Path(source)
        return
    with tempfile.TemporaryDirectory(prefix="podwright-") as work:
        yield export(source, within=Path(work), report=report).folder


def _folder_name(component: Component) -> str:
    """The name of a component as the chart and every file system take it."""
    name = _NOT_IN_NAMES.sub("-", component.name.lower()).strip("-")
    return name[:63].rstrip("-") or component.kind


def export(
    source: str,
    target: Path | None = None,
    *,
    within: Path = Path(),
    report: Report = no_report,
) -> Exported:
    """Write a component as a folder that has all of it: the blueprint, the code and the agents.

    Of a folder, the agents and packages beside it are copied too. Of a component that was made in Python, the files of
    the project that its functions need are copied, and the installed packages are listed in `requirements.txt`. The
    result is loaded in a process of its own, which must find the same blueprint.

    Args:
        source: A component folder, a blueprint file, or `module:attribute`.
        target: A folder that is empty or does not exist; by default one with the name of the component.
        within: The folder in which that default is.
        report: Called with a line about the files with credentials that are left out, if there are any.

    Raises:
        PodwrightError: The component cannot be loaded, a function cannot be imported by a name, the folder is not empty
            or cannot be written, or the folder does not give the same component.
    """
    remotes = remotes_of(read_settings())
    module = None
    if names_module(source):
        component, module = load_from_module(source)
    else:
        component = load_component(source, remotes)
    component = whole(component)
    digest = component_digest(component)
    if target is None:
        target = within / _folder_name(component)
    _check_is_empty(target)
    code = LocalCode()
    providers: Collection[str] = ()
    with tempfile.TemporaryDirectory(prefix="podwright-") as work:
        folder = Path(work, "component")
        try:
            if is_folder(source):
                needed = sorted(remotes)
                copied = Folder(Path(source))
                copy_folder(copied, folder, needed)
                left_out = files_with_credentials(copied, needed)
            else:
                plan = _plan_of(component, module)
                _add_providers(plan, component, module)
                needed = plan.remotes
                providers = plan.providers
                code = needed_by(plan.modules())
                _share_code(plan, "")
                _write_component(plan, code, folder)
                left_out = _credentials_of(code)
            if left_out:
                report(note_on_credentials(left_out))
            check_copy(folder, digest, remotes=needed, providers=providers)
            shutil.copytree(folder, target, dirs_exist_ok=True)
        except OSError as error:
            raise _write_error(target, error) from error
    files = [path for path in target.rglob("*") if path.is_file()]
    return Exported(
        target,
        digest,
        files=sorted(str(path.relative_to(target)) for path in files),
        notes=_notes(code, component),
    )


def _notes(code: LocalCode, component: Component) -> list[str]:
    notes: list[str] = []
    if code.missing:
        names = ", ".join(sorted(code.missing))
        notes.append(
            f"The code imports {names}, not installed here; if it is needed, add its package to requirements.txt."
        )
    notes += [
        f"'{name}' runs elsewhere; name its address in PODWRIGHT_AGENTS."
        for name in remotes_in(component)
    ]
    notes += [
        f"{error.message} {error.suggestion}"
        for error in model_errors(component.models())
        if isinstance(error, UnknownModelError)
    ]
    return notes


def _write_error(target: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"Cannot write '{target}': {os_error_reason(error)}.",
        suggestion="Name a new folder with --output.",
    )


def _check_is_empty(target: Path) -> None:
    try:
        is_empty = not target.exists() or not any(target.iterdir())
    except OSError as error:
        raise _write_error(target, error) from error
    if not is_empty:
        raise ConfigurationError(
            f"The folder '{target}' is not empty.",
            suggestion="Name a new folder with --output.",
        )


def _write_component(plan: _Plan, code: LocalCode, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    _copy(code, target)
    _write(plan, target)
    _write_requirements(code, target)


def _plan_of(component: Component, beside: ModuleType | None) -> _Plan:
    plan = _Plan(component.to_blueprint())
    _add_code(plan, component, beside)
    _add_agents(plan, component, beside)
    return plan


def _add_agents(
    plan: _Plan, component: Component, beside: ModuleType | None
) -> None:
    """Add the members of a component, and the agents that it hands off to."""
    defines_members = bool(TRAITS[component.kind].member_key)
    for name, member in component.members().items():
        if member.is_remote:
            plan.remotes.append(name)
        elif isinstance(member, Agent) and defines_members:
            # its blueprint is a part of this one, which only names the agents that it hands off to
            _add_code(plan, member, beside)
            _add_agents(plan, member, beside)
        elif has_blueprint(member):
            plan.agents[name] = _plan_of(member, beside)
            plan.remotes += plan.agents[name].remotes
        else:
            plan.code["agents"][name] = named(
                member, f"The agent '{name}'", beside=beside
            )


def _add_providers(
    plan: _Plan, component: Component, beside: ModuleType | None
) -> None:
    """Add the registered providers of the models: the import of their module registers them."""
    for model in component.models():
        provider = model.partition("/")[0]
        function = registered_provider(provider)
        if function is not None:
            plan.providers[provider] = registering_module(function, beside)


def _add_code(
    plan: _Plan, component: Component, beside: ModuleType | None
) -> None:
    wanted = condition_names(component.to_blueprint())
    for name, condition in component.conditions.items():
        if name in wanted:
            plan.code["conditions"][name] = named(
                condition, f"The condition '{name}'", beside=beside
            )
    for name, tool in component.own_tools().items():
        if isinstance(tool, MCPTool):
            plan.lock(tool)
            continue
        found = named(tool.definition, f"The function '{name}'", beside=beside)
        plan.supply(component.file_of(name), name, found)


def _share_code(plan: _Plan, place: str) -> None:
    """Let agents have the code of the folder around them where a file of their own would hide a module of its name.

    A folder `agents/calculator/` with a `tools.py` that imports a module `tools` would import itself.

    Raises:
        ConfigurationError: An agent cannot be without a folder, or its code does not fit to that around it.
    """
    for name, agent in list(plan.agents.items()):
        folder = f"{place}agents/{name}"
        _share_code(agent, f"{folder}/")
        hidden = _hidden_modules(agent)
        if not hidden:
            continue
        if agent.agents or agent.files or agent.code["agents"]:
            raise ConfigurationError(
                f"The module '{hidden[0]}' has the name of a file that '{folder}' needs for its own code.",
                suggestion="Rename that module.",
            )
        del plan.agents[name]
        plan.files[name] = agent.blueprint
        for key, supplied in agent.code.items():
            for function, item in supplied.items():
                plan.supply(key, function, item)


def _hidden_modules(agent: _Plan) -> list[str]:
    """The modules of the project that the files of an agent's folder would hide from its code."""
    needed = needed_by(agent.modules()).files
    stems = [
        Path(file).stem for key, (file, _) in _FILES.items() if agent.code[key]
    ]
    return [stem for stem in stems if stem in needed]


def _credentials_of(code: LocalCode) -> list[str]:
    """The files with credentials in the packages that are copied."""
    return [
        f"{name}/{file}"
        for name, path in code.files.items()
        if path.is_dir()
        for file in credentials_below(path)
    ]


def _copy(code: LocalCode, target: Path) -> None:
    for name, path in code.files.items():
        if path.is_file():
            shutil.copyfile(path, target / path.name)
            continue
        for file in package_files(path):
            copy = target / name / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path / file, copy)


def _write(plan: _Plan, target: Path) -> None:
    text = blueprints.to_json(plan.blueprint)
    (target / "blueprint.json").write_text(text, encoding="utf-8")
    _write_providers(target / "providers.py", set(plan.providers.values()))
    for key, (file, what) in _FILES.items():
        _write_code(target / file, what, plan.code[key])
    if plan.definitions:
        MCPLock(plan.definitions).write_file(target / LOCK_FILE)
    for name, blueprint in plan.files.items():
        file = target / "agents" / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(blueprints.to_json(blueprint), encoding="utf-8")
    for name, agent in plan.agents.items():
        folder = target / "agents" / name
        folder.mkdir(parents=True)
        _write(agent, folder)


def _write_providers(path: Path, modules: set[str]) -> None:
    if path.exists():
        modules = modules - {path.stem}
    if not modules:
        return
    if path.exists():
        raise _clash_error(path, "the providers of models", modules)
    lines = [_HEADING.format(what="the providers of models"), ""]
    lines += [f"import {module}" for module in sorted(modules)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_code(path: Path, what: str, supplied: Mapping[str, Named]) -> None:
    others = dict(supplied)
    if path.exists():
        # the module of the project with this name supplies them itself
        for name, item in supplied.items():
            if item == Named(path.stem, name):
                del others[name]
    if not others:
        return
    if path.exists():
        origins = {f"{item.module}.{item.name}" for item in others.values()}
        raise _clash_error(path, what, origins)
    lines = [_HEADING.format(what=what), ""]
    names: list[str] = []
    for name, item in sorted(others.items()):
        alias = _alias(name, item)
        lines.append(item.statement(alias))
        names.append(alias)
    lines += ["", f"__all__ = {json.dumps(names)}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _clash_error(
    path: Path, what: str, others: Collection[str]
) -> ConfigurationError:
    listed = ", ".join(sorted(others))
    return ConfigurationError(
        f"The module '{path.stem}' has the name of the file for {what}, and {listed} is not in it by its own name.",
        suggestion=f"Move all of them to {path.name} by the names that the blueprint has, or rename that module.",
    )


def _alias(name: str, item: Named) -> str:
    """The name under which a file supplies something; an agent is found by its own name too."""
    if name.isidentifier():
        return name
    return item.name


def _write_requirements(code: LocalCode, target: Path) -> None:
    if not code.packages:
        return
    lines = [
        f"{name}=={version}" for name, version in sorted(code.packages.items())
    ]
    path = target / "requirements.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
