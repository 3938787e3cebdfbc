"""The check of an inline blueprint before anything is built from it: one walk over its JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Set
from graphlib import CycleError, TopologicalSorter
from typing import Any, cast

from podwright.components.base import DEFAULT_MAX_LOOPS
from podwright.components.folder import agent_names
from podwright.errors import Problem
from podwright.json_data import as_array, as_object, json_pointer, to_json_bytes
from podwright.text import did_you_mean, short_repr
from podwright.tools import Tool, object_parameters, to_tool
from podwright.validation_errors import MAX_PROBLEMS
from podwright_service.settings import Settings

MAX_VALUES = 10_000
"""Most JSON values of a blueprint and its agents."""
MAX_PLACEHOLDERS = 64
"""Most placeholders, such as `{input}`, in one text, so that a filled template stays of the order of its values."""

_PLACEHOLDER = re.compile(r"\{[\w-]+\}")
_STEP_KEYS = ("steps", "then", "else")
_OPAQUE_KEYS = ("args", "schema", "metadata")
"""Keys under which any JSON may stand: the arguments of a condition, the schema of a tool, notes."""

Objects = Mapping[str, Mapping[str, Any]]


class Inspection:
    """Collects everything that a blueprint names and may not, and everything that is too large, with pointers.

    Args:
        models: The models that it may name.
        tools: The tools that it may name.
        settings: The size limits.
    """

    def __init__(
        self, models: Collection[str], tools: Mapping[str, Tool], settings: Settings
    ) -> None:
        self._models = models
        self._tools = tools
        self._settings = settings
        self.problems: list[Problem] = []
        self.unsafe_to_build = False
        """Whether it cannot be built in a short time: it is too large, has a foreign schema of a tool, or contains
        itself."""
        self._values = self._steps = 0

    def inspect(
        self, blueprint: Mapping[str, Any], agents: Objects, served: Set[str]
    ) -> list[str]:
        """Check a blueprint and the agents that come with it.

        Args:
            blueprint: The blueprint.
            agents: Blueprints of agents by name.
            served: Names of the service's own agents; those of `agents` come before them.

        Returns:
            The names of `agents`, each after those that it names.
        """
        settings = self._settings
        if self._exceeds("/agents", len(agents), settings.max_steps, "agents"):
            return []
        name = blueprint.get("name")
        root = (
            name
            if isinstance(name, str) and name not in {**agents, **dict.fromkeys(served)}
            else None
        )
        parts: dict[str | None, Mapping[str, Any]] = {**agents, root: blueprint}
        pointers = {
            **{name: json_pointer("agents", name) for name in agents},
            root: "/blueprint",
        }
        total = 0
        for name, part in parts.items():
            self._steps = 0
            self._visit(part, pointers[name], "", 1, 0)
            self._exceeds(
                f"{pointers[name]}/steps", self._steps, settings.max_steps, "steps"
            )
            total += self._steps
        if self.unsafe_to_build:
            return []
        # an agent that names itself means the service's own agent, if there is one
        graph = {
            name: (set(agent_names(part)) & parts.keys()) - ({name} & served)
            for name, part in parts.items()
        }
        depths: dict[str | None, int] = {}
        try:
            for name in TopologicalSorter(graph).static_order():
                uses_agents = "steps" in parts[name] or "skills" in parts[name]
                depth = depths[name] = uses_agents + max(
                    (depths[other] for other in graph[name]), default=0
                )
                self._exceeds(
                    pointers[name],
                    depth,
                    settings.max_nesting,
                    "levels of agents that use each other",
                )
        except CycleError as error:
            circle: list[str] = error.args[1][::-1]
            self._add(
                pointers[circle[0]],
                f"A blueprint cannot contain itself: {' → '.join(circle)}.",
            )
            self.unsafe_to_build = True
        self._exceeds("/agents", total, settings.max_steps, "steps in all blueprints")
        size = len(to_json_bytes([blueprint, agents]))
        self._exceeds("/blueprint", size, settings.max_blueprint_bytes, "bytes of JSON")
        return [name for name in depths if name is not None and name in agents]

    def _visit(
        self, value: object, pointer: str, key: str | None, depth: int, nesting: int
    ) -> None:
        """Check a value and everything in it.

        Args:
            value: JSON data.
            pointer: Its JSON pointer.
            key: The key that it stands under, also through arrays; None where any JSON may stand.
            depth: Its depth in the JSON.
            nesting: How many steps it is inside.
        """
        if self._values > MAX_VALUES:
            return
        self._values += 1
        self._exceeds("", self._values, MAX_VALUES, "JSON values")
        if isinstance(value, str):
            self._exceeds(
                pointer,
                len(_PLACEHOLDER.findall(value)),
                MAX_PLACEHOLDERS,
                "placeholders in one text",
            )
        elif isinstance(value, list | dict):
            if self._exceeds(
                pointer, depth, self._settings.max_json_depth, "levels of JSON"
            ):
                return
            if isinstance(value, dict):
                self._visit_object(
                    cast("dict[str, Any]", value), pointer, key, depth, nesting
                )
                return
            for index, item in enumerate(cast("list[object]", value)):
                self._visit(
                    item,
                    f"{pointer}/{index}",
                    "steps" if key == "branches" else key,
                    depth + 1,
                    nesting,
                )

    def _visit_object(
        self,
        value: dict[str, Any],
        pointer: str,
        key: str | None,
        depth: int,
        nesting: int,
    ) -> None:
        if key in _STEP_KEYS:
            self._steps += 1
            nesting += 1
            if nesting == self._settings.max_nesting + 1:
                self._add(
                    pointer,
                    f"Steps are nested deeper than {self._settings.max_nesting} levels.",
                )
        if key is not None:
            self._check_names(value, pointer, key)
            self._check_caps(value, pointer, key)
        for name, item in value.items():
            inner_key = (
                None if key in (None, "config") or name in _OPAQUE_KEYS else name
            )
            self._visit(
                item, pointer + json_pointer(name), inner_key, depth + 1, nesting
            )

    def _check_names(self, value: dict[str, Any], pointer: str, key: str) -> None:
        """Check the model and the tools of an object."""
        if key == "config":
            self._check_model(value.get("model"), f"{pointer}/model")
            for index, model in enumerate(as_array(value.get("fallback"))):
                self._check_model(model, f"{pointer}/fallback/{index}")
        for index, entry in enumerate(as_array(value.get("tools"))):
            self._check_tool(as_object(entry), f"{pointer}/tools/{index}")

    def _check_model(self, model: object, pointer: str) -> None:
        if isinstance(model, str) and model not in self._models:
            hint = did_you_mean(model, self._models)
            self._add(pointer, f"Model {short_repr(model)} is not allowed here.", hint)

    def _check_tool(self, entry: dict[str, Any], pointer: str) -> None:
        name = entry.get("name")
        if not isinstance(name, str):
            return
        tool = self._tools.get(name)
        if tool is None:
            hint = did_you_mean(name, self._tools) or "No tools are allowed here."
            self._add(pointer, f"Tool {short_repr(name)} is not allowed here.", hint)
            return
        function = as_object(as_object(entry.get("schema")).get("function"))
        own = [
            _parameters(schema["function"])
            for schema in (tool.schema, to_tool(tool.function).schema)
        ]
        if (
            isinstance(function.get("parameters"), dict)
            and _parameters(function) not in own
        ):
            detail = f"The parameters differ from those of the served tool '{name}'."
            self._add(
                f"{pointer}/schema/function", detail, "Only descriptions may differ."
            )
            self.unsafe_to_build = True

    def _check_caps(self, value: dict[str, Any], pointer: str, key: str) -> None:
        settings = self._settings
        caps = {
            "max_iterations": settings.max_loops,
            "max_concurrency": settings.max_branches,
        }
        if key == "config":
            caps["max_loops"] = settings.max_loops
        for name, cap in caps.items():
            if isinstance(number := value.get(name), int) and number > cap:
                self._add(
                    f"{pointer}/{name}",
                    f"{name} is {short_repr(number)}; at most {cap} is allowed.",
                )
        default = DEFAULT_MAX_LOOPS if "instructions" in value else 0
        if (
            "max_loops" not in as_object(value.get("config"))
            and default > settings.max_loops
        ):
            detail = f"max_loops is {default} by default; at most {settings.max_loops} is allowed."
            self._add(f"{pointer}/config/max_loops", detail)
        sizes = {
            "branches": settings.max_branches,
            "skills": settings.max_steps,
            "tools": settings.max_steps,
        }
        for name, cap in sizes.items():
            self._exceeds(
                f"{pointer}/{name}", len(as_array(value.get(name))), cap, name
            )

    def _exceeds(self, pointer: str, number: int, limit: int, unit: str) -> bool:
        """Whether a number exceeds a limit, which is a problem."""
        if number <= limit:
            return False
        self._add(pointer, f"{number} {unit}; at most {limit} are allowed.")
        self.unsafe_to_build = True
        return True

    def _add(self, pointer: str, detail: str, suggestion: str = "") -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(pointer, detail, suggestion))


def _parameters(function: Mapping[str, Any]) -> str:
    """The parameters of a tool as a model is shown them, without their descriptions, as canonical JSON."""

    def without_description(item: dict[str, Any]) -> dict[str, Any]:
        return {
            key: value
            for key, value in item.items()
            if key != "description" or not isinstance(value, str)
        }

    parameters = object_parameters(function["parameters"]) or function["parameters"]
    text = json.dumps([parameters, function.get("strict", False)])
    return json.dumps(json.loads(text, object_hook=without_description), sort_keys=True)
